//! A process of ingest that ends or stops at a step of its work.

use super::stage::{NAMESPACE, Stage};
use crate::crash::life::{self, Life};
use nix::sys::signal::Signal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_ingest::{IngestConfig, IngestOptions, Steps, run};
use tallystone_kafka::KafkaOptions;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

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

/// Starts it as the instance `a`, which sends itself this signal at its end.
pub(super) fn start(stage: &Stage, signal: Signal, (step, time): End) -> Life {
    let (topics, url) = (&stage.topics, stage.counters.url());
    let (group, time) = (topics.group(), time.to_string());
    let arguments = [&topics.brokers, &topics.source, &group, &url, step, &time];
    Life::start("ingest::life::ingests_until_it_comes_to_its_end", signal, &arguments)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that other tests start and kill"]
async fn ingests_until_it_comes_to_its_end() {
    let Some(([brokers, source, group, url, step_of_end, time], its_end)) = life::arguments() else { return };
    let time: usize = time.parse().expect("a number");
    let (has_records, came) = (Mutex::new(false), AtomicUsize::new(0));
    let steps = Steps::observed_by(move |step| {
        let mut has_records = has_records.lock().expect("no panic");
        *has_records = step != BEGUN && step != ANSWERED && (*has_records || step == RECORDS);
        let name = format!("{step}{}", if *has_records { WITH_RECORDS } else { "" });
        if name == step_of_end && came.fetch_add(1, Ordering::SeqCst) + 1 == time {
            its_end.come();
        }
    });
    let config = IngestConfig { topic: Some(source), ..IngestConfig::default() };
    let options = IngestOptions {
        kafka: KafkaOptions { brokers, ..KafkaOptions::default() },
        topics: config.topics().expect("a topic"),
        group,
        instance: Some("a".to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        creation: None,
        batch_records_max: 5_000,
        undecided: Arc::default(),
        steps,
    };
    let counters = CounterClient::builder(url).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let (is_serving, _served) = watch::channel(false);
    run(options, counters, is_serving, CancellationToken::new()).await.expect("good options");
}
