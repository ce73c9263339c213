//! Child processes of the bench.

use anyhow::{Result, ensure};
use std::ffi::OsStr;
use std::path::Path;
use tokio::process::Command;

/// A command whose process ends together with the bench, even when the bench is killed.
pub(crate) fn command(program: impl AsRef<OsStr>, dir: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(program).current_dir(dir).kill_on_drop(true);
    command
}

/// Sends a signal such as `-STOP`.
pub(crate) fn signal(pid: u32, signal: &str) -> Result<()> {
    let status = std::process::Command::new("kill").arg(signal).arg(pid.to_string()).status()?;
    ensure!(status.success(), "kill {signal} failed");
    Ok(())
}
