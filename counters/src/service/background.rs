//! The background work of one namespace: touches go to the store, slices past their retention go, rollups become jobs.
//! It runs until the namespace is opened again in another revision.

use super::open::OpenNamespace;
use super::trigger;
use crate::log::{Events, RollupSchedule};
use crate::namespace::SHARDS;
use crate::refusal::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::Client;

const TOUCH_EVERY: Duration = Duration::from_millis(100);
/// Counters of one call of the store.
const TOUCHED_MAX: usize = 500;
const PRUNE_EVERY: Duration = Duration::from_secs(60);

/// Starts it. Without a queue no rollup becomes a job.
pub(super) fn start(open: Arc<OpenNamespace>, queue: Option<Client>) {
    let until = open.until.clone();
    tokio::spawn(until.clone().run_until_cancelled_owned(touch(open.clone())));
    tokio::spawn(until.clone().run_until_cancelled_owned(prune(open.clone())));
    if let Some(queue) = queue {
        tokio::spawn(until.run_until_cancelled_owned(trigger::run(open, queue)));
    }
}

/// Notifies the store of counters that clients have read, so that their rollups fall due sooner (N11).
async fn touch<S: RollupSchedule>(open: Arc<OpenNamespace<S>>) {
    let mut every = tokio::time::interval(TOUCH_EVERY);
    loop {
        every.tick().await;
        for touched in open.touches.take().chunks(TOUCHED_MAX) {
            match open.store.touch(touched).await {
                Ok(true) => open.touches.hurried.notify_one(),
                Ok(false) => {}
                Err(Refusal::Stale) => return open.set_refused(),
                // The counters still fall due: each append has marked its own (N9).
                Err(error) => tracing::debug!(%error, "cannot hurry the rollups of counters that were read"),
            }
        }
    }
}

/// Drops the slices of events that are past their retention.
async fn prune<S: Events>(open: Arc<OpenNamespace<S>>) {
    let mut every = tokio::time::interval(PRUNE_EVERY);
    loop {
        every.tick().await;
        for shard in 0..SHARDS {
            match open.store.prune(shard).await {
                Ok(0) => {}
                Ok(slices) => {
                    tracing::info!(namespace = %open.name, shard, slices, "old events were deleted, in slices")
                }
                Err(Refusal::Stale) => return open.set_refused(),
                // The witness has logged it, once for all namespaces.
                Err(Refusal::ClockSkew { .. }) => {}
                Err(error) => tracing::warn!(namespace = %open.name, shard, %error, "cannot drop old events"),
            }
        }
    }
}
