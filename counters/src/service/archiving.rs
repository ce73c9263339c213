//! Requests of archive jobs (N15): a namespace whose log has events that are not archived gets a job at an interval. Jobs
//! coalesce, so that those of several servers are one, and the queue is exclusive by namespace. A namespace without events is
//! not polled, since its trigger notes when a counter is dirty; once an hour it has a job, too.

use super::open::OpenNamespace;
use super::rollup_queue::job_queue;
use crate::refusal::Refusal;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Client, Error, NewMessage, QueueConfig};
use tallystone_model::names::INTERNAL_QUEUES;

/// Between two jobs of a namespace without new events.
const IDLE: Duration = Duration::from_secs(3_600);
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// The metadata key by which the queue is exclusive.
const EXCLUSIVITY_KEY: &str = "namespace";
const LEASE_MS: u64 = 10_000;
const BACKOFF_MS: RangeInclusive<u64> = 500..=30_000;

/// The queue of the archive jobs of all namespaces. The id of a job is the [tag](crate::redis::Namespace::tag) of its namespace.
/// No namespace has a rollup queue of this name.
pub fn archive_queue() -> String {
    format!("{INTERNAL_QUEUES}archive")
}

/// The configuration of that queue.
pub fn archive_queue_config() -> QueueConfig {
    job_queue(EXCLUSIVITY_KEY, LEASE_MS, BACKOFF_MS)
}

/// Runs until the namespace is opened again in another revision.
pub(super) async fn run(open: Arc<OpenNamespace>, queue: Client, interval: Duration) {
    loop {
        match Box::pin(open.store.has_unarchived()).await {
            Ok(true) => {}
            Ok(false) => {
                if tokio::time::timeout(IDLE, open.dirtied.notified()).await.is_ok() {
                    // Nothing is old enough sooner.
                    tokio::time::sleep(interval).await;
                    continue;
                }
                // A job also closes slices, merges their objects, and deletes what is past its retention.
                if !Box::pin(open.store.has_begun()).await.unwrap_or(false) {
                    continue;
                }
            }
            Err(Refusal::Stale) => return open.set_refused(),
            Err(error) => {
                tracing::debug!(namespace = %open.name, %error, "cannot find what is not archived");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        }
        let pause = match Box::pin(request(&queue, &open.tag, open.store.now_ms())).await {
            Ok(()) => interval,
            Err(error) => {
                tracing::debug!(namespace = %open.name, %error, "cannot request its archive job");
                PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

async fn request(queue: &Client, tag: &str, now_ms: u64) -> Result<(), Error> {
    let name = archive_queue();
    let job = || NewMessage::new(tag, Vec::new()).metadata(EXCLUSIVITY_KEY, tag).priority(now_ms as i64).coalesce();
    let is_missing = |error: &Error| error.refused().is_some_and(|refused| refused.reason == "QUEUE_NOT_FOUND");
    match queue.enqueue(&name, vec![job()]).await {
        Err(error) if is_missing(&error) => {
            queue.create_queue(&name, archive_queue_config()).await?;
            queue.enqueue(&name, vec![job()]).await.map(drop)
        }
        done => done.map(drop),
    }
}
