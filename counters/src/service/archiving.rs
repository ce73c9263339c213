//! Requests of archive jobs (N15): a namespace whose log has events that are not archived gets a job at an interval. Jobs
//! coalesce, so that those of several servers are one, and the queue is exclusive by namespace. A namespace without events is
//! not polled, since its trigger notes when a counter is dirty; once an hour it has a job, too.

use super::open::OpenNamespace;
use super::rollup_queue::job_queue;
use crate::names::NamespaceName;
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

/// The metric of how far the archive of a namespace is behind.
struct Behind {
    namespace: NamespaceName,
    /// Up to then all events were archived, as far as this server knows, in Unix ms. A namespace that was idle for a year has
    /// archived no later one.
    caught_up_ms: u64,
}

impl Behind {
    fn new(namespace: NamespaceName, now_ms: u64) -> Behind {
        let behind = Behind { namespace, caught_up_ms: now_ms };
        behind.show(0);
        behind
    }

    fn note(&self, unarchived_from_ms: Option<u64>, now_ms: u64) {
        self.show(unarchived_from_ms.map_or(0, |from_ms| now_ms.saturating_sub(from_ms.max(self.caught_up_ms))));
    }

    fn show(&self, behind_ms: u64) {
        crate::metrics::archive_behind(&self.namespace, Duration::from_millis(behind_ms));
    }
}

impl Drop for Behind {
    /// Another server or revision has the namespace, or it was deleted.
    fn drop(&mut self) {
        self.show(0);
    }
}

/// Runs until the namespace is opened again in another revision.
pub(super) async fn run(open: Arc<OpenNamespace>, queue: Client, interval: Duration) {
    let mut behind = Behind::new(open.name.clone(), open.store.now_ms());
    loop {
        let read_ms = open.store.now_ms();
        let unarchived = Box::pin(open.store.unarchived_from_ms()).await;
        if let Ok(from_ms) = unarchived {
            behind.note(from_ms, open.store.now_ms());
        }
        match unarchived {
            Ok(Some(_)) => {}
            Ok(None) => {
                let dirtied = tokio::time::timeout(IDLE, open.dirtied.notified()).await;
                // Without a notification, other servers may have added since.
                behind.caught_up_ms = if dirtied.is_ok() { open.store.now_ms() } else { read_ms };
                if dirtied.is_ok() {
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
