//! The background work of one namespace: touches go to the store, slices past their retention go, rollups become jobs.
//! It runs until the namespace is opened again in another revision.

use super::archiving;
use super::idle::IdleNamespaces;
use super::open::OpenNamespace;
use super::touches::TOUCHED_MAX;
use super::trigger;
use crate::log::{Events, RollupSchedule};
use crate::names::CounterName;
use crate::namespace::{NamespaceConfig, SHARDS};
use crate::refusal::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::Client;
use tallystone_link::ScanPosition;

/// Counters that are read within this time are touched together.
const TOGETHER: Duration = Duration::from_millis(100);
/// Between two prunes while there is something to drop, and after a failure.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// The longest time between two prunes: buckets that were kept for a late rollup go then, too.
const PRUNE_MAX: Duration = Duration::from_secs(6 * 3_600);

/// The shortest and the longest time between two searches for counters that may have expired.
const SEARCH_MIN: Duration = Duration::from_secs(300);
const SEARCH_MAX: Duration = Duration::from_secs(6 * 3_600);

/// Starts it. Without a queue no rollup becomes a job.
///
/// The calls of each part are boxed: between two calls a part of an idle namespace keeps no room for them.
pub(super) fn start(open: Arc<OpenNamespace>, queue: Option<Client>, idle: &Arc<IdleNamespaces>) {
    let until = open.until.clone();
    tokio::spawn(until.clone().run_until_cancelled_owned(touch(open.clone())));
    tokio::spawn(until.clone().run_until_cancelled_owned(prune(open.clone())));
    if open.config.expire_after_ms > 0 {
        tokio::spawn(until.clone().run_until_cancelled_owned(expire(open.clone())));
    }
    if let (Some(queue), Some(interval), true) = (queue.clone(), open.store.archive_interval(), open.config.archived) {
        tokio::spawn(until.clone().run_until_cancelled_owned(archiving::run(open.clone(), queue, interval)));
    }
    if let Some(queue) = queue {
        tokio::spawn(until.run_until_cancelled_owned(trigger::run(open, queue, idle.clone())));
    }
}

/// Notifies the store of counters that clients have read, so that their rollups fall due sooner (N11).
async fn touch<S: RollupSchedule>(open: Arc<OpenNamespace<S>>) {
    loop {
        open.touches.arrived.notified().await;
        tokio::time::sleep(TOGETHER).await;
        for touched in open.touches.take().chunks(TOUCHED_MAX) {
            match Box::pin(open.store.touch(touched)).await {
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
async fn prune(open: Arc<OpenNamespace>) {
    loop {
        let mut pause = until_next_slice(&open.config, open.store.now_ms());
        for shard in 0..SHARDS {
            match Box::pin(open.store.prune(shard)).await {
                Ok(0) => {}
                Ok(slices) => {
                    pause = PRUNE_EVERY;
                    tracing::info!(namespace = %open.name, shard, slices, "old events were deleted, in slices")
                }
                Err(Refusal::Stale) => return open.set_refused(),
                // The witness has logged it, once for all namespaces.
                Err(Refusal::ClockSkew { .. }) => pause = PRUNE_EVERY,
                Err(error) => {
                    pause = PRUNE_EVERY;
                    tracing::warn!(namespace = %open.name, shard, %error, "cannot drop old events")
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Makes counters due that may have expired (N14): their rollups decide. A counter of a LOW namespace is in circulation anyway.
async fn expire(open: Arc<OpenNamespace>) {
    let pause = search_every(&open.config);
    // Namespaces that were opened together are not searched together.
    tokio::time::sleep(pause.mul_f64(rand::random_range(0.0..1.0))).await;
    loop {
        for shard in 0..SHARDS {
            match expire_shard(&open, shard).await {
                Ok(()) => {}
                Err(Refusal::Stale) => return open.set_refused(),
                Err(error) => tracing::debug!(namespace = %open.name, shard, %error, "cannot search for idle counters"),
            }
        }
        tokio::time::sleep(pause).await;
    }
}

async fn expire_shard(open: &OpenNamespace, shard: u16) -> Result<(), Refusal> {
    let mut position = ScanPosition::default();
    loop {
        let (counters, next) = open.store.expiring(shard, position).await?;
        let touched: Vec<(CounterName, bool)> = counters.into_iter().map(|counter| (counter, true)).collect();
        for touched in touched.chunks(TOUCHED_MAX) {
            open.store.touch(touched).await?;
        }
        let Some(next) = next else { return Ok(()) };
        position = next;
    }
}

/// How often a namespace is searched for counters that may have expired.
fn search_every(config: &NamespaceConfig) -> Duration {
    Duration::from_millis(config.expire_after_ms / 4).clamp(SEARCH_MIN, SEARCH_MAX)
}

/// The time until the next slice is past its retention, and up to a minute more: slices of all namespaces end at the same
/// time.
fn until_next_slice(config: &NamespaceConfig, now_ms: u64) -> Duration {
    let slice_ms = config.seconds_per_slice * 1_000;
    let into_slice_ms = now_ms.saturating_sub(config.delete_after_ms) % slice_ms;
    let spread = PRUNE_EVERY.mul_f64(rand::random_range(0.0..1.0));
    (Duration::from_millis(slice_ms - into_slice_ms) + spread).min(PRUNE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q18_old_events_are_dropped_when_a_slice_ends_and_not_polled_for() {
        let config = NamespaceConfig::default();
        let slice_ms = config.seconds_per_slice * 1_000;
        let begin_ms = 1_795_176_000_000 / slice_ms * slice_ms + config.delete_after_ms;
        for (into_slice_ms, least_ms) in [(slice_ms - 1, 1), (slice_ms - 3_600_000, 3_600_000)] {
            let pause_ms = until_next_slice(&config, begin_ms + into_slice_ms).as_millis() as u64;
            assert!((least_ms..least_ms + 60_000).contains(&pause_ms), "{into_slice_ms}: {pause_ms}");
        }
        assert_eq!(until_next_slice(&config, begin_ms), PRUNE_MAX);
    }

    /// A search of an idle namespace reads an empty hash of each shard.
    #[test]
    fn q18_searches_for_idle_counters_cost_little() {
        let commands_s = |expire_after_ms| {
            let config = NamespaceConfig { expire_after_ms, ..NamespaceConfig::default() };
            f64::from(SHARDS) / search_every(&config).as_secs_f64()
        };
        assert!(2_000.0 * commands_s(86_400_000) < 1.0);
        assert!(2_000.0 * commands_s(600_000) < 60.0);
    }
}
