//! The command of a message, from its start to its end.

use super::environment::{environment, withheld};
use super::guard::{Group, Guard};
use super::tail::{Tail, with_end};
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use tallystone_client::{Failure, Lease};
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// Waits for one line on standard input, then runs the command `$0` with the rest of it. If the worker dies before the
/// guard knows the process, the line never comes, and the command does not begin.
const BEGIN: &str = r#"read -r line && exec sh -c "$0""#;

/// What runs for each message.
pub(super) struct Program {
    pub(super) queue: String,
    pub(super) command: String,
    /// The queue's exclusivity key.
    pub(super) key: Option<String>,
    /// Standard output is for JSON, so the command's goes to stderr.
    pub(super) quiet: bool,
    pub(super) guard: Arc<Guard>,
    /// Kills the commands; their messages are released.
    pub(super) interrupted: CancellationToken,
}

impl Program {
    /// Runs the command. Dropping the future kills it, because the lease is lost or the worker stops.
    pub(super) async fn run(&self, lease: Lease) -> Result<(), Failure> {
        if self.interrupted.is_cancelled() {
            return Err(interrupted());
        }
        let (mut child, group) =
            self.start(&lease).map_err(|error| Failure::new(format!("cannot run a command: {error}")))?;
        let stdin = child.stdin.take();
        let tail = child.stderr.take().map(Tail::of);
        let write = async {
            if let Some(mut stdin) = stdin {
                // A command may end without reading its input.
                let _ = stdin.write_all(b"\n").await;
                let _ = stdin.write_all(&lease.payload).await;
            }
        };
        let status = tokio::select! {
            (status, ()) = async { tokio::join!(child.wait(), write) } => status,
            () = self.interrupted.cancelled() => {
                group.kill();
                // It is dead before its message is released to another worker.
                let _ = child.wait().await;
                return Err(interrupted());
            }
        };
        match status {
            Ok(status) => {
                // Processes that it has left behind would hold the pipe open.
                group.kill();
                let said = match tail {
                    Some(tail) => tail.text().await,
                    None => String::new(),
                };
                if status.success() { Ok(()) } else { Err(failure(status, &said)) }
            }
            Err(error) => Err(Failure::new(format!("cannot wait for the command: {error}"))),
        }
    }

    /// Starts a process that waits to begin, and takes its process group under guard.
    fn start(&self, lease: &Lease) -> std::io::Result<(Child, Group)> {
        let mut command = Command::new("sh");
        for name in withheld() {
            command.env_remove(name);
        }
        command.args(["-c", BEGIN, &self.command]).envs(environment(&self.queue, self.key.as_deref(), lease));
        // Its own process group: Ctrl-C in a terminal does not reach it, and it can be killed with all that it starts.
        command.process_group(0).stdin(Stdio::piped()).stderr(Stdio::piped());
        if self.quiet {
            command.stdout(std::io::stderr());
        }
        let child = command.spawn()?;
        let id = child.id().ok_or_else(|| std::io::Error::other("it has no process id"))?;
        let group = self.guard.hold(id)?;
        Ok((child, group))
    }
}

/// The message runs again at once, on another worker.
fn interrupted() -> Failure {
    Failure::new("the worker was interrupted").retry_after_ms(0)
}

/// The statuses with a meaning are those of qmail's programs.
fn failure(status: ExitStatus, said: &str) -> Failure {
    let failure = Failure::new(with_end(&reason(status), said));
    match status.code() {
        Some(99) => failure.cancel(),
        Some(100) => failure.never_again(),
        _ => failure,
    }
}

fn reason(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended without a status".to_owned(),
    }
}
