//! A process that deduplicates, and ends or stops at a step of its transactions: this test binary, started again with the one
//! test that is ignored.

use super::stage::Stage;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_kafka::KafkaOptions;
use tallystone_views::kafka::KafkaLog;
use tallystone_views::{ViewService, ViewsConfig};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

const ARGUMENTS: &str = "TALLYSTONE_TEST_VIEWS";
const PARTITIONS: u16 = 2;

/// Every step of a transaction.
pub(super) const STEPS: [&str; 5] = [
    "a transaction has begun",
    "records are in the transaction",
    "the group's positions are in the transaction",
    "the ledgers are in the transaction",
    "a transaction is committed",
];

/// The process. Killed when it is dropped.
pub(super) struct Life {
    child: Child,
    dir: TempDir,
}

impl Life {
    /// Starts it; it sends itself this signal at this step.
    pub(super) fn start(stage: &Stage, signal: Signal, step: &str) -> Life {
        let dir = TempDir::new().expect("a temporary folder");
        let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
        command.args([
            "--exact",
            "views::kafka::life::deduplicates_until_it_comes_to_its_end",
            "--ignored",
            "--nocapture",
        ]);
        let (topics, url, sign) = (&stage.topics, stage.counters.url(), sign(&dir));
        let sign = sign.to_str().expect("a plain path");
        let arguments = [&topics.brokers, &topics.source, &url, signal.as_str(), step, sign];
        command.env(ARGUMENTS, arguments.join("\n")).stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        Life { child: command.spawn().expect("this test starts again"), dir }
    }

    /// Waits until it has come to its end.
    pub(super) async fn has_come(&self) {
        let has_come = async || sign(&self.dir).exists();
        crate::counting::house::until(has_come, |has_come| *has_come).await;
    }

    /// Waits until it is dead.
    pub(super) async fn dies(mut self) {
        self.has_come().await;
        let status = self.child.wait().await.expect("a child");
        assert_eq!(status.code(), None, "it was not killed, but ended");
    }

    /// Lets it go on after it has stopped.
    pub(super) fn goes_on(&self) {
        let pid = self.child.id().expect("not waited for yet");
        kill(Pid::from_raw(pid.cast_signed()), Signal::SIGCONT).expect("it was stopped");
    }
}

/// The file by which it says that it has come to its end.
fn sign(dir: &TempDir) -> PathBuf {
    dir.path().join("has-come")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that other tests start and kill"]
async fn deduplicates_until_it_comes_to_its_end() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments: Vec<String> = arguments.split('\n').map(str::to_owned).collect();
    let [brokers, topic, url, signal, end, sign] = &arguments[..] else { panic!("six arguments: {arguments:?}") };
    let (signal, end, sign): (Signal, _, _) = (signal.parse().expect("a signal"), end.clone(), sign.clone());
    let has_come = AtomicBool::new(false);
    let options = KafkaOptions { brokers: brokers.clone(), ..KafkaOptions::default() };
    let log = KafkaLog::connect(&options, topic, PARTITIONS).await.expect("a log");
    let log = log.observed_by(Arc::new(move |step| {
        if step == end && !has_come.swap(true, Ordering::SeqCst) {
            std::fs::write(&sign, "").expect("room");
            kill(Pid::this(), signal).expect("a signal to this process");
        }
    }));
    let counters = CounterClient::builder(url).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let config = ViewsConfig { partitions: PARTITIONS, ..ViewsConfig::default() };
    let (_service, tasks, _) = ViewService::start_on_kafka(&config, log, &counters);
    tasks.run_member(CancellationToken::new()).await;
}
