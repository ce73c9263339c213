//! Other queues, installed by `lab/bench/peers/install`. The result names a missing one instead of leaving it out.

pub(crate) mod beanstalkd;
pub(crate) mod bullmq;

use tokio::process::Command;

/// What a row says about a peer that is not installed.
pub(crate) const NOT_INSTALLED: &str = "not installed: run lab/bench/peers/install";

/// The version that the program prints; `None`: it is not installed.
async fn version_of(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().await.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
