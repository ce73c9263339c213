//! The trigger (N9): counters that are due become jobs in the rollup queues.
//!
//! Every server requests the due counters from every shard. The shard holds those that it returns for a while, so the
//! servers share the work without speaking to each other, and a server that dies before it has made the jobs loses
//! nothing: after the hold the counters fall due again. Jobs coalesce (Q12): two jobs of one counter are one rollup.

use super::open::OpenNamespace;
use super::rollup_queue::{EXCLUSIVITY_KEY, is_retired, prefix, queue_config, queue_of, retired, rollup_queue};
use crate::log::{Due, RollupSchedule};
use crate::names::CounterName;
use crate::namespace::{CounterType, NamespaceConfig, SHARDS};
use crate::refusal::Refusal;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Client, Error, NewMessage, QueueConfig};

/// Counters that one call of a shard returns: a batch of the queue holds those of a few shards.
const DUE_MAX: usize = 250;
const JOBS_MAX: usize = 1_000;
/// Counters that fall due within this time become jobs together.
const TOGETHER: Duration = Duration::from_millis(50);
/// The longest time between two polls.
const POLL_MAX: Duration = Duration::from_secs(5);
/// Bounds of the time for which a shard holds a counter: its rollup should be done within it.
const HOLD_MS: RangeInclusive<u64> = 1_000..=5_000;
const PAUSE: Duration = Duration::from_millis(500);

/// Runs until the namespace is opened again in another revision.
pub(super) async fn run<S: RollupSchedule>(open: Arc<OpenNamespace<S>>, queue: Client) {
    if open.config.counter_type == CounterType::BestEffort {
        return;
    }
    // A job that is not made now is made after the hold, so a call need not be repeated for longer.
    let trigger = Trigger { open, queue: queue.with_retry_for(Duration::from_secs(1)) };
    let namespace = trigger.open.name.clone();
    while let Err(error) = trigger.make_queues().await {
        tracing::warn!(%namespace, %error, "cannot create the rollup queues");
        tokio::time::sleep(PAUSE).await;
    }
    loop {
        match trigger.poll().await {
            Ok(pause) => tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = trigger.open.touches.hurried.notified() => tokio::time::sleep(TOGETHER).await,
            },
            Err(Failed::Store(Refusal::Stale)) => return trigger.open.set_refused(),
            // The witness has logged it, once for all namespaces.
            Err(Failed::Store(Refusal::ClockSkew { .. })) => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tracing::warn!(%namespace, %error, "cannot enqueue rollup jobs for the counters that are due");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

struct Trigger<S> {
    open: Arc<OpenNamespace<S>>,
    queue: Client,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the store: {0}")]
    Store(#[from] Refusal),
    #[error("the queue: {0}")]
    Queue(#[from] Error),
}

impl<S: RollupSchedule> Trigger<S> {
    fn config(&self) -> &NamespaceConfig {
        &self.open.config
    }

    /// Creates or updates the queues of this revision, and deletes those of another `num_queues` when no job of theirs runs.
    async fn make_queues(&self) -> Result<(), Error> {
        let name = &self.open.name;
        let ours: Vec<String> = (0..self.config().num_queues).map(|n| rollup_queue(name, self.config(), n)).collect();
        let config = queue_config(self.config());
        let (mut there, mut page_token) = (BTreeMap::new(), String::new());
        loop {
            let page = self.queue.list_queues(&prefix(name), 1_000, &page_token).await?;
            there.extend(page.items.into_iter().map(|found| (found.queue.name.clone(), found)));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        for (old, summary) in there.iter().filter(|(name, _)| !ours.contains(name)) {
            self.queue.update_queue(old, retired()).await?;
            while self.queue.depth(old, None).await?.running > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            tracing::info!(
                queue = old,
                waiting = summary.depth.pending,
                "deleting a rollup queue that is no longer used"
            );
            self.queue.delete_queue(old, true).await?;
        }
        for ours in &ours {
            match there.get(ours) {
                None => drop(self.queue.create_queue(ours, config.clone()).await?),
                Some(there) => {
                    let dequeue_blocked = is_retired(&there.queue.config).then_some(false);
                    let change = QueueConfig { queue_type: None, shards: None, dequeue_blocked, ..config.clone() };
                    self.queue.update_queue(ours, change).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes jobs of what is due in each shard, and returns how long to wait until the next poll.
    async fn poll(&self) -> Result<Duration, Failed> {
        let store = &self.open.store;
        let hold_ms = self.config().lag_ms().clamp(*HOLD_MS.start(), *HOLD_MS.end());
        let replies = join_all((0..SHARDS).map(|shard| store.due(shard, DUE_MAX, hold_ms))).await;
        // A shard holds what it has returned: that becomes jobs even if another shard does not reply.
        let (found, failed): (Vec<Due>, Vec<Refusal>) =
            replies.into_iter().fold(Default::default(), |(mut found, mut failed), due| {
                match due {
                    Ok(due) => found.push(due),
                    Err(refusal) => failed.push(refusal),
                }
                (found, failed)
            });
        let dirty: u64 = found.iter().map(|due| due.dirty).sum();
        crate::metrics::dirty(&self.open.name, dirty);
        let mut jobs: BTreeMap<u16, BTreeMap<&CounterName, u64>> = BTreeMap::new();
        for (counter, due_ms) in found.iter().flat_map(|due| &due.counters) {
            // Several shards may have something of the same counter.
            let due = jobs.entry(queue_of(counter, self.config())).or_default().entry(counter).or_insert(*due_ms);
            *due = (*due).min(*due_ms);
        }
        let enqueued = join_all(jobs.iter().map(|(number, jobs)| self.enqueue(*number, jobs))).await;
        let queues_missing = enqueued.into_iter().collect::<Result<Vec<bool>, Error>>()?.contains(&true);
        if queues_missing {
            // They were deleted. Only the latest revision may create them again: this call fails for any other.
            store.due(0, 0, 0).await?;
            self.make_queues().await?;
        }
        if let Some(refusal) = failed.into_iter().next() {
            return Err(refusal.into());
        }
        if found.iter().any(|due| due.counters.len() == DUE_MAX) {
            return Ok(Duration::ZERO);
        }
        // No event that comes from now on makes a counter due before the accept limit is over, unless a client reads it.
        let poll = Duration::from_millis(self.config().lag_ms()).min(POLL_MAX);
        let next = found.iter().filter_map(|due| Some(Duration::from_millis(due.next_ms?.saturating_sub(due.now_ms))));
        Ok(next.fold(poll, Duration::min).max(TOGETHER))
    }

    /// Makes jobs in one queue. Returns whether that queue is missing: its counters fall due again after the hold.
    async fn enqueue(&self, number: u16, jobs: &BTreeMap<&CounterName, u64>) -> Result<bool, Error> {
        let queue = rollup_queue(&self.open.name, self.config(), number);
        let messages: Vec<NewMessage> = jobs
            .iter()
            .map(|(counter, due_ms)| {
                let job = NewMessage::new(counter.as_str(), Vec::new()).metadata(EXCLUSIVITY_KEY, counter.as_str());
                job.priority(*due_ms as i64).coalesce()
            })
            .collect();
        for messages in messages.chunks(JOBS_MAX) {
            let results = match self.queue.enqueue(&queue, messages.to_vec()).await {
                Err(error) if error.refused().is_some_and(|refused| refused.reason == "QUEUE_NOT_FOUND") => {
                    return Ok(true);
                }
                results => results?,
            };
            crate::metrics::jobs(results.iter().filter(|result| result.is_ok()).count());
            if let Some(refused) = results.into_iter().find_map(Result::err) {
                tracing::warn!(queue, %refused, "a rollup job was refused; it will be enqueued again in a few seconds");
            }
        }
        Ok(false)
    }
}
