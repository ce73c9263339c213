//! The trigger (N9): counters that are due become jobs in the rollup queues.
//!
//! Which they are, the event log says; who asks holds them for a while, so several servers share the work without a word
//! to each other. A server that dies in between has told nobody: after the hold they are due again. Jobs coalesce (Q12):
//! a counter that is told of twice is rolled up once.

use super::directory::Open;
use super::rollup_queue::{EXCLUSIVITY_KEY, is_retired, prefix, queue_config, queue_of, retired, rollup_queue};
use crate::log::{Due, RollupSchedule};
use crate::names::CounterName;
use crate::namespace::{CounterType, NamespaceConfig, SHARDS};
use crate::refusal::Refusal;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Client, Error, NewMessage, QueueConfig};

/// Counters that one question to a shard is answered with: a batch of the queue holds those of a few shards.
const DUE_MAX: usize = 250;
const JOBS_MAX: usize = 1_000;
/// What is due within this becomes jobs together.
const TOGETHER: Duration = Duration::from_millis(50);
/// The longest time between two looks.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// A server told of a counter may take so long to get its rollup done before another one tells again.
const HOLD_MS: (u64, u64) = (1_000, 5_000);
const PAUSE: Duration = Duration::from_millis(500);

/// Runs for as long as this revision of the namespace holds.
pub(super) async fn run(open: Arc<Open>, queue: Client) {
    if open.store.config().counter_type == CounterType::BestEffort {
        return;
    }
    // What is not told is told after the hold: repeating a call longer than that helps nobody.
    let trigger = Trigger { open, queue: queue.with_retry_for(Duration::from_secs(1)) };
    let namespace = trigger.open.store.name().clone();
    while let Err(error) = trigger.make_queues().await {
        tracing::warn!(%namespace, %error, "cannot make the rollup queues");
        tokio::time::sleep(PAUSE).await;
    }
    loop {
        match trigger.turn().await {
            Ok(pause) => tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = trigger.open.touches.hurried.notified() => tokio::time::sleep(TOGETHER).await,
            },
            Err(Failed::Store(Refusal::Stale)) => return trigger.open.refuse(),
            Err(error) => {
                tracing::warn!(%namespace, %error, "cannot tell which counters are due");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

struct Trigger {
    open: Arc<Open>,
    queue: Client,
}

#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the store: {0}")]
    Store(#[from] Refusal),
    #[error("the queue: {0}")]
    Queue(#[from] Error),
}

impl Trigger {
    fn config(&self) -> &NamespaceConfig {
        self.open.store.config()
    }

    /// The queues of this revision; those of another number of queues go, when nothing in them runs any more.
    async fn make_queues(&self) -> Result<(), Error> {
        let name = self.open.store.name();
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
            tracing::info!(queue = old, waiting = summary.depth.pending, "a rollup queue that is no longer used goes");
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

    /// Asks each shard once, tells the queues, and says how long there is nothing to do.
    async fn turn(&self) -> Result<Duration, Failed> {
        let store = &self.open.store;
        let hold_ms = self.config().lag_ms().clamp(HOLD_MS.0, HOLD_MS.1);
        let asked = join_all((0..SHARDS).map(|shard| store.due(shard, DUE_MAX, hold_ms))).await;
        // What one shard has said is held there: it is told though another does not answer.
        let (found, failed): (Vec<Due>, Vec<Refusal>) =
            asked.into_iter().fold(Default::default(), |(mut found, mut failed), due| {
                match due {
                    Ok(due) => found.push(due),
                    Err(refusal) => failed.push(refusal),
                }
                (found, failed)
            });
        let dirty: u64 = found.iter().map(|due| due.dirty).sum();
        crate::metrics::dirty(store.name(), dirty);
        let mut jobs: BTreeMap<u16, BTreeMap<&CounterName, u64>> = BTreeMap::new();
        for (counter, due_ms) in found.iter().flat_map(|due| &due.counters) {
            // Several shards may have something of the same counter.
            let due = jobs.entry(queue_of(counter, self.config())).or_default().entry(counter).or_insert(*due_ms);
            *due = (*due).min(*due_ms);
        }
        let told = join_all(jobs.iter().map(|(number, jobs)| self.tell(*number, jobs))).await;
        let queues_missing = told.into_iter().collect::<Result<Vec<bool>, Error>>()?.contains(&true);
        if queues_missing {
            // Somebody has deleted them; only the last revision may make them anew, which this question finds out.
            store.due(0, 0, 0).await?;
            self.make_queues().await?;
        }
        if let Some(refusal) = failed.into_iter().next() {
            return Err(refusal.into());
        }
        if found.iter().any(|due| due.counters.len() == DUE_MAX) {
            return Ok(Duration::ZERO);
        }
        // What comes from now on cannot be due before it is past the accept limit, unless somebody reads.
        let look = Duration::from_millis(self.config().lag_ms()).min(LOOK_MAX);
        let next = found.iter().filter_map(|due| Some(Duration::from_millis(due.next_ms?.saturating_sub(due.now_ms))));
        Ok(next.fold(look, Duration::min).max(TOGETHER))
    }

    /// Whether their queue is missing: what it was to be told is due again after the hold.
    async fn tell(&self, number: u16, jobs: &BTreeMap<&CounterName, u64>) -> Result<bool, Error> {
        let queue = rollup_queue(self.open.store.name(), self.config(), number);
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
                tracing::warn!(queue, %refused, "a rollup waits: it is due again after the hold");
            }
        }
        Ok(false)
    }
}
