//! A process that ends or stops at a step of its work: this test binary, started again with one test that is ignored.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::{Child, Command};

const ARGUMENTS: &str = "TALLYSTONE_TEST_LIFE";

/// The process. Killed when it is dropped.
pub(crate) struct Life {
    child: Child,
    dir: TempDir,
}

impl Life {
    /// Starts the ignored test of this name, which [reads](arguments) these arguments and sends itself this signal at its end.
    pub(crate) fn start(test: &str, signal: Signal, arguments: &[&str]) -> Life {
        let dir = TempDir::new().expect("a temporary folder");
        let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
        command.args(["--exact", test, "--ignored", "--nocapture"]);
        let sign = sign(&dir);
        let end = [signal.as_str(), sign.to_str().expect("a plain path")];
        let arguments = [arguments, &end[..]].concat().join("\n");
        command.env(ARGUMENTS, arguments).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        Life { child: command.spawn().expect("this test starts again"), dir }
    }

    /// Waits until it has come to its end.
    pub(crate) async fn has_come(&self) {
        let has_come = async || sign(&self.dir).exists();
        crate::counting::house::until(has_come, |has_come| *has_come).await;
    }

    /// Waits until it is dead.
    pub(crate) async fn dies(mut self) {
        self.has_come().await;
        let status = self.child.wait().await.expect("a child");
        assert_eq!(status.code(), None, "it was not killed, but ended");
    }

    /// Lets it continue after it has stopped.
    pub(crate) fn goes_on(&self) {
        let pid = self.child.id().expect("not waited for yet");
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGCONT).expect("it was stopped");
    }
}

/// The file by which it says that it has come to its end.
fn sign(dir: &TempDir) -> PathBuf {
    dir.path().join("has-come")
}

/// The end of this process.
pub(crate) struct End {
    signal: Signal,
    sign: String,
}

impl End {
    /// This process has come to it.
    pub(crate) fn come(&self) {
        std::fs::write(&self.sign, "").expect("room");
        kill(Pid::this(), self.signal).expect("a signal to this process");
    }
}

/// The arguments of this process, and its end; `None`: it is an ordinary run of the tests.
pub(crate) fn arguments<const N: usize>() -> Option<([String; N], End)> {
    let arguments = std::env::var(ARGUMENTS).ok()?;
    let mut arguments: Vec<String> = arguments.split('\n').map(str::to_owned).collect();
    let sign = arguments.pop().expect("a path");
    let signal = arguments.pop().and_then(|signal| signal.parse().ok()).expect("a signal");
    let arguments = arguments.try_into().unwrap_or_else(|more| panic!("{N} arguments: {more:?}"));
    Some((arguments, End { signal, sign }))
}
