//! Other queues, where `lab/bench/peers/install` put them. One that is not there is said to be missing, never left out.

pub(crate) mod beanstalkd;
pub(crate) mod bullmq;

use tokio::process::Command;

/// What a row says of a peer that is not there.
pub(crate) const NOT_INSTALLED: &str = "not installed: run lab/bench/peers/install";

/// What the program prints when asked for its version; `None`: it is not there.
async fn version_of(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().await.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
