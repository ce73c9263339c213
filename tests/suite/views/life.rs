//! A process that owns the partitions of a log in Redis, and ends or stops at a step of its work.

use crate::crash::life::{self, Life};
use futures::future::join_all;
use nix::sys::signal::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_tests::volatile;
use tallystone_views::log::ViewLog;
use tallystone_views::{ViewService, ViewsConfig};
use tokio_util::sync::CancellationToken;

pub(super) const PARTITIONS: u16 = 2;

/// Every step of an owner.
pub(super) const STEPS: [&str; 5] = [
    "views are read",
    "a commit is durable",
    "some deltas are counted",
    "a record of deltas is counted",
    "a record of deltas is settled",
];

/// Starts it on this log and these counters; it sends itself this signal at this step.
pub(super) fn start(redis_url: &str, counters_url: &str, signal: Signal, step: &str) -> Life {
    Life::start("views::life::owns_until_it_comes_to_its_end", signal, &[redis_url, counters_url, step])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is the process that other tests start and kill"]
async fn owns_until_it_comes_to_its_end() {
    let Some(([redis_url, counters_url, step_of_end], its_end)) = life::arguments() else { return };
    let has_come = AtomicBool::new(false);
    let log = ViewLog::connect(&volatile(&redis_url), PARTITIONS).await.expect("a log");
    let log = log.observed_by(Arc::new(move |step| {
        if step == step_of_end && !has_come.swap(true, Ordering::SeqCst) {
            its_end.come();
        }
    }));
    let counters = CounterClient::builder(counters_url).retry_for(Duration::ZERO).connect_lazy().expect("an address");
    let config = ViewsConfig { partitions: PARTITIONS, ..ViewsConfig::default() };
    let (_service, partitions) = ViewService::start(&config, log, &counters);
    join_all(partitions.into_iter().map(|partition| partition.run(CancellationToken::new()))).await;
}
