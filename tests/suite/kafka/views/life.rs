//! A process that deduplicates, and ends or stops at a step of its transactions.

use super::stage::Stage;
use crate::crash::life::{self, Life};
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_kafka::KafkaOptions;
use tallystone_views::kafka::KafkaLog;
use tallystone_views::{ViewService, ViewsConfig};
use tokio_util::sync::CancellationToken;

pub(super) const PARTITIONS: u16 = 2;

/// Every step of a transaction.
pub(super) const STEPS: [&str; 5] = [
    "a transaction has begun",
    "records are in the transaction",
    "the group's positions are in the transaction",
    "the ledgers are in the transaction",
    "a transaction is committed",
];

/// Starts it; it sends itself this signal at this step.
pub(super) fn start(stage: &Stage, signal: Signal, step: &str) -> Life {
    let (topics, url) = (&stage.topics, stage.counters.url());
    let arguments = [&topics.brokers, &topics.source, &url, step];
    Life::start("kafka::views::life::deduplicates_until_it_comes_to_its_end", signal, &arguments)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that other tests start and kill"]
async fn deduplicates_until_it_comes_to_its_end() {
    let Some(([brokers, topic, url, step_of_end], its_end)) = life::arguments() else { return };
    let has_come = AtomicBool::new(false);
    let options = KafkaOptions { brokers, ..KafkaOptions::default() };
    let log = KafkaLog::connect(&options, &topic, PARTITIONS).await.expect("a log");
    let log = log.observed_by(Arc::new(move |step| {
        if step == step_of_end && !has_come.swap(true, Ordering::SeqCst) {
            its_end.come();
        }
    }));
    let counters = CounterClient::builder(url).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let config = ViewsConfig { partitions: PARTITIONS, ..ViewsConfig::default() };
    let (_service, tasks, _) = ViewService::start_on_kafka(&config, log, &counters);
    tasks.run_member(CancellationToken::new()).await;
}
