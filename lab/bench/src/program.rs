//! Our own program as a child process, and its memory, read from /proc.

use crate::child;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::process::Child;

/// How long a server may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(50);

/// Resident memory of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Resident {
    pub(crate) now_mib: f64,
    /// Its maximum so far.
    pub(crate) peak_mib: f64,
}

/// Our program as users run it. Dropping this ends it.
pub(crate) struct Program {
    process: Child,
    pid: u32,
}

impl Program {
    /// Starts the running program again with other arguments and environment.
    pub(crate) fn start(dir: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<Program> {
        let program = std::env::current_exe().context("the path of this program")?;
        Program::start_other(&program, dir, arguments, environment)
    }

    /// Starts another build of it.
    pub(crate) fn start_other(
        program: &Path,
        dir: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Program> {
        let mut command = child::command(program, dir);
        command.args(arguments).envs(environment.iter().copied()).env("RUST_LOG", "warn");
        let process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start another process of this program")?;
        let pid = process.id().context("the process ended at once")?;
        Ok(Program { process, pid })
    }

    /// Starts the running program, or another build of it, as a server, and waits until it accepts connections. Returns its
    /// URL too.
    pub(crate) async fn serve(other: Option<&Path>, dir: &Path, arguments: &[&str]) -> Result<(Program, String)> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string();
        let arguments = [arguments, &["--listen", &address]].concat();
        let mut program = match other {
            Some(other) => Program::start_other(other, dir, &arguments, &[])?,
            None => Program::start(dir, &arguments, &[])?,
        };
        let give_up_at = Instant::now() + START_LIMIT;
        while let Err(error) = TcpStream::connect(&address).await {
            ensure!(program.process.try_wait()?.is_none(), "{} ended", arguments[0]);
            ensure!(Instant::now() < give_up_at, "{} does not start: {error}", arguments[0]);
            tokio::time::sleep(START_POLL).await;
        }
        Ok((program, format!("http://{address}")))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn resident(&mut self) -> Result<Resident> {
        ensure!(self.process.try_wait()?.is_none(), "the process has ended");
        resident(&fs::read_to_string(format!("/proc/{}/status", self.pid))?)
            .context("its /proc status has no memory fields")
    }

    /// From now on the peak is that of the time since.
    pub(crate) fn reset_peak(&self) -> Result<()> {
        const PEAK: &str = "5";
        fs::write(format!("/proc/{}/clear_refs", self.pid), PEAK).context("cannot reset the peak of its memory")
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        Ok(self.process.kill().await?)
    }
}

fn resident(status: &str) -> Option<Resident> {
    let mib = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().strip_suffix(" kB")?.parse::<f64>().ok()? / 1_024.0)
    };
    Some(Resident { now_mib: mib("VmRSS")?, peak_mib: mib("VmHWM")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_proc() {
        let status = "Name:\tx\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\n";
        assert_eq!(resident(status), Some(Resident { now_mib: 100.0, peak_mib: 200.0 }));
    }
}
