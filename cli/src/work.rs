//! `tallystone work QUEUE --exec CMD`

use crate::connection::Session;
use crate::duration::parse_ms;
use crate::error::CliError;
use crate::output::grouped;
use crate::shutdown::Shutdown;
use crate::text::parse_pair;
use clap::Args;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{self as client, Filter, Lease, Outcome, QueueType, Worker};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

#[derive(Args, Debug)]
#[command(after_help = "\
CMD runs as `sh -c CMD`, once per message, with the payload on its standard input. Exit status 0 completes the message; \
any other status releases it with the reason \"exit status N\". The worker extends the lease while CMD runs, and kills \
CMD when the lease is lost. A worker that is killed with SIGKILL cannot do that: its commands run to their end, while \
other workers may already have their messages. Use the fencing token to reject their late writes.

Environment of CMD:
  TALLYSTONE_QUEUE          the queue
  TALLYSTONE_ID             the message's id
  TALLYSTONE_PRIORITY       its priority
  TALLYSTONE_KEY            the value of its exclusivity key (exclusive queues)
  TALLYSTONE_META_<NAME>    its metadata; NAME in upper case, other characters as _
  TALLYSTONE_ATTEMPT        this attempt, from 1
  TALLYSTONE_MAX_ATTEMPTS   attempts before the message is errored
  TALLYSTONE_DEADLINE_MS    Unix ms at which the lease ends unless it is extended
  TALLYSTONE_FENCING_TOKEN  rises with every lease; pass it to the systems that CMD writes to")]
pub(crate) struct WorkArgs {
    /// The queue
    queue: String,
    /// The command to run for each message
    #[arg(long, value_name = "CMD")]
    exec: String,
    /// Maximum number of commands that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// The worker's name, which `msg get` and `msg explain` show [default: a new name]
    #[arg(long)]
    name: Option<String>,
    /// Length of the leases: if this worker dies, others get its messages after this time [default: the message's or the
    /// queue's]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,
    /// Only messages with all of this metadata, such as origin=JFK,carrier=UA; if repeated, messages that match any of them
    #[arg(long, value_name = "KEY=VALUE[,…]", value_parser = filter)]
    filter: Vec<Filter>,
    /// How long running commands may continue after Ctrl-C or SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "30s")]
    grace: u64,
}

/// The outcome of one message, as a line of JSON.
#[derive(Serialize)]
struct OutcomeLine<'a> {
    id: &'a str,
    fencing_token: u64,
    outcome: &'static str,
}

pub(crate) async fn run(args: WorkArgs, session: &Session) -> Result<(), CliError> {
    let queue = session.call(&args.queue, session.client.get_queue(&args.queue)).await?;
    let key = match queue.config.queue_type {
        Some(QueueType::Exclusive { key }) => Some(key),
        _ => None,
    };
    let output = session.output;
    let program = Arc::new(Program { queue: queue.name, command: args.exec, key, quiet: output.json });
    let worker = Worker::new(session.client.clone(), &args.queue)
        .concurrency(args.concurrency)
        .grace(Duration::from_millis(args.grace))
        .on_outcome(move |lease, outcome| {
            let outcome = match outcome {
                Outcome::Completed(_) => "completed",
                Outcome::Released(_) => "released",
                Outcome::Lost(_) => "lost",
            };
            let line = OutcomeLine { id: &lease.id, fencing_token: lease.fencing_token, outcome };
            if output.json
                && let Err(error) = output.one(&line, |_| String::new())
            {
                tracing::error!(%error, "cannot write an outcome");
            }
        });
    let worker = args.filter.into_iter().fold(worker, Worker::filter);
    let worker = args.lease.map_or(worker.clone(), |lease_ms| worker.lease_ms(lease_ms));
    let worker = match args.name {
        Some(name) => worker.name(name),
        None => worker,
    };

    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let handler = move |lease| {
        let program = program.clone();
        async move { program.run(lease).await }
    };
    let stop = async {
        shutdown.requested().await;
        if std::io::stderr().is_terminal() {
            eprintln!("Waiting for running commands; Ctrl-C again kills them.");
        }
    };
    let stats = session.call(&args.queue, worker.run_until(stop, handler)).await?;
    if !output.json {
        let counts = [stats.completed, stats.released, stats.lost].map(grouped);
        output.line(&format!("{} completed, {} released, {} lost.", counts[0], counts[1], counts[2]))?;
    }
    Ok(())
}

/// For clap: `key=value,key=value`.
fn filter(text: &str) -> Result<Filter, String> {
    let mut pairs = text.split(',').map(parse_pair);
    let (key, value) = pairs.next().unwrap_or_else(|| parse_pair(text))?;
    pairs.try_fold(Filter::equals(key, value), |filter, next| next.map(|(key, value)| filter.and(key, value)))
}

/// The command of each message.
struct Program {
    queue: String,
    command: String,
    /// The queue's exclusivity key.
    key: Option<String>,
    /// Standard output is for JSON, so the command's goes to stderr.
    quiet: bool,
}

impl Program {
    async fn run(&self, lease: Lease) -> Result<(), client::Failure> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command).envs(environment(&self.queue, self.key.as_deref(), &lease));
        // Its own process group: Ctrl-C in a terminal does not reach it, and a lost lease kills every process it started.
        command.process_group(0).stdin(Stdio::piped());
        if self.quiet {
            command.stdout(std::io::stderr());
        }
        let mut child = command.spawn().map_err(|error| client::Failure::new(format!("cannot run sh: {error}")))?;
        let mut group = Group(child.id());
        let stdin = child.stdin.take();
        let write = async {
            if let Some(mut stdin) = stdin {
                // A command may end without reading its input.
                let _ = stdin.write_all(&lease.payload).await;
            }
        };
        let (status, ()) = tokio::join!(child.wait(), write);
        group.0 = None;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(client::Failure::new(reason(status))),
            Err(error) => Err(client::Failure::new(format!("cannot wait for sh: {error}"))),
        }
    }
}

/// A running process group, killed when it is dropped: the lease is lost, or the worker stops.
struct Group(Option<u32>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // The leader is not reaped yet, so no other process has its id.
            let _ = killpg(Pid::from_raw(leader.cast_signed()), Signal::SIGKILL);
        }
    }
}

fn reason(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended without a status".to_owned(),
    }
}

fn environment(queue: &str, key: Option<&str>, lease: &Lease) -> BTreeMap<String, String> {
    let mut environment: BTreeMap<String, String> = lease
        .metadata
        .iter()
        .map(|(name, value)| {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
            (format!("TALLYSTONE_META_{}", name.chars().map(plain).collect::<String>()), value.clone())
        })
        .collect();
    let mut set = |name: &str, value: String| environment.insert(format!("TALLYSTONE_{name}"), value);
    set("QUEUE", queue.to_owned());
    set("ID", lease.id.clone());
    set("PRIORITY", lease.priority.to_string());
    set("ATTEMPT", lease.attempt.to_string());
    set("MAX_ATTEMPTS", lease.max_attempts.to_string());
    set("DEADLINE_MS", lease.lease_expires_at_ms.to_string());
    set("FENCING_TOKEN", lease.fencing_token.to_string());
    if let Some(value) = key.and_then(|key| lease.metadata.get(key)) {
        set("KEY", value.clone());
    }
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(payload: &'static str) -> Lease {
        Lease {
            id: "2013-01-01T10:15:00Z/UA1545/EWR".to_owned(),
            payload: payload.into(),
            priority: i64::MIN,
            metadata: [("tailnum".to_owned(), "N14228".to_owned()), ("de-st".to_owned(), "IAH".to_owned())].into(),
            fencing_token: 7,
            attempt: 2,
            max_attempts: 5,
            enqueued_at_ms: 1,
            leased_at_ms: 2,
            lease_expires_at_ms: 3,
            version: 4,
        }
    }

    fn program(command: &str) -> Program {
        Program { queue: "flights".into(), command: command.into(), key: Some("tailnum".into()), quiet: true }
    }

    #[test]
    fn the_environment_has_every_field_of_the_lease() {
        let environment = environment("flights", Some("tailnum"), &lease(""));
        let expected = [
            ("ATTEMPT", "2"),
            ("DEADLINE_MS", "3"),
            ("FENCING_TOKEN", "7"),
            ("ID", "2013-01-01T10:15:00Z/UA1545/EWR"),
            ("KEY", "N14228"),
            ("MAX_ATTEMPTS", "5"),
            ("META_DE_ST", "IAH"),
            ("META_TAILNUM", "N14228"),
            ("PRIORITY", "-9223372036854775808"),
            ("QUEUE", "flights"),
        ];
        let expected = expected.map(|(name, value)| (format!("TALLYSTONE_{name}"), value.to_owned()));
        assert_eq!(environment, BTreeMap::from(expected));
    }

    #[test]
    fn filters_are_conjunctions() {
        assert_eq!(filter("a=1,b=2"), Ok(Filter::equals("a", "1").and("b", "2")));
        assert!(filter("a=1,b").is_err() && filter("").is_err());
    }

    #[tokio::test]
    async fn the_exit_status_decides() {
        let check = r#"[ "$(cat)" = hello ] && [ "$TALLYSTONE_KEY" = N14228 ]"#;
        assert_eq!(program(check).run(lease("hello")).await, Ok(()));
        assert_eq!(program("exit 3").run(lease("not read")).await, Err(client::Failure::new("exit status 3")));
        assert_eq!(program("kill -9 $$").run(lease("")).await, Err(client::Failure::new("killed by signal 9")));
    }

    #[tokio::test]
    async fn a_lost_lease_kills_every_started_process() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("alive");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        // A grandchild holds the fifo open; end of file means that it is gone.
        let program = program(&format!("sleep 600 > {0} & wait", fifo.display()));
        let handler = tokio::spawn(async move { program.run(lease("")).await });
        let mut alive = tokio::task::spawn_blocking(move || std::fs::File::open(fifo)).await.unwrap().unwrap();
        handler.abort();
        let end = tokio::task::spawn_blocking(move || std::io::Read::read(&mut alive, &mut [0])).await.unwrap();
        assert_eq!(end.unwrap(), 0);
    }
}
