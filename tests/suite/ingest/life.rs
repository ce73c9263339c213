//! A process of ingest that ends or stops at a step of its work: this test binary, started again with the one test that is
//! ignored.

use super::stage::{NAMESPACE, Stage};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_ingest::{IngestConfig, IngestOptions, Steps, run};
use tallystone_kafka::KafkaOptions;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const ARGUMENTS: &str = "TALLYSTONE_TEST_INGEST";
pub(super) const BEGUN: &str = "a transaction has begun";
pub(super) const ANSWERED: &str = "adds are answered";
const RECORDS: &str = "records are in the transaction";
/// What follows the name of a step of a transaction with records.
const WITH_RECORDS: &str = ", with records";

/// Where a process ends: at which of its steps, and when it comes there for which time, from 1 on.
pub(super) type End = (&'static str, usize);

/// Every step that matters, once; without a claim, a transaction has either records or none.
pub(super) const ENDS: [End; 12] = [
    (BEGUN, 1),
    ("the group's positions are in the transaction", 1),
    ("the ledgers are in the transaction", 1),
    ("a transaction is committed", 1),
    (ANSWERED, 1),
    (BEGUN, 2),
    ("records are in the transaction, with records", 1),
    ("the group's positions are in the transaction, with records", 1),
    ("the ledgers are in the transaction, with records", 1),
    ("a transaction is committed, with records", 1),
    (BEGUN, 3),
    (ANSWERED, 2),
];

/// The process. Killed when it is dropped.
pub(super) struct Life {
    child: Child,
    dir: TempDir,
}

impl Life {
    /// Starts it as the instance `a`, which sends itself this signal at its end.
    pub(super) fn start(stage: &Stage, signal: Signal, (step, time): End) -> Life {
        let dir = TempDir::new().expect("a temporary folder");
        let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
        command.args(["--exact", "ingest::life::ingests_until_it_comes_to_its_end", "--ignored", "--nocapture"]);
        let (topics, url) = (&stage.topics, stage.counters.url());
        let (group, time, sign) = (topics.group(), time.to_string(), sign(&dir));
        let sign = sign.to_str().expect("a plain path");
        let arguments = [&topics.brokers, &topics.source, &group, &url, signal.as_str(), step, &time, sign];
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

    /// Lets it continue after it has stopped.
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
async fn ingests_until_it_comes_to_its_end() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments: Vec<String> = arguments.split('\n').map(str::to_owned).collect();
    let [brokers, source, group, url, signal, end, time, sign] = &arguments[..] else {
        panic!("eight arguments: {arguments:?}")
    };
    let (signal, time): (Signal, usize) = (signal.parse().expect("a signal"), time.parse().expect("a number"));
    let (end, sign) = (end.clone(), sign.clone());
    let (has_records, came) = (Mutex::new(false), AtomicUsize::new(0));
    let steps = Steps::observed_by(move |step| {
        let mut has_records = has_records.lock().expect("no panic");
        *has_records = step != BEGUN && step != ANSWERED && (*has_records || step == RECORDS);
        let name = format!("{step}{}", if *has_records { WITH_RECORDS } else { "" });
        if name == end && came.fetch_add(1, Ordering::SeqCst) + 1 == time {
            std::fs::write(&sign, "").expect("room");
            kill(Pid::this(), signal).expect("a signal to this process");
        }
    });
    let config = IngestConfig { topic: Some(source.clone()), ..IngestConfig::default() };
    let options = IngestOptions {
        kafka: KafkaOptions { brokers: brokers.clone(), ..KafkaOptions::default() },
        topics: config.topics().expect("a topic"),
        group: group.clone(),
        instance: Some("a".to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        batch_records_max: 5_000,
        steps,
    };
    let counters = CounterClient::builder(url).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let (is_serving, _served) = watch::channel(false);
    run(options, counters, is_serving, CancellationToken::new()).await.expect("good options");
}
