//! The counts of finished rollups on their way to counter sets (W6). No rollup waits for them: they gather in memory, one
//! for each counter, and go in batches.

use crate::metrics::{self, Outcome};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_counters::namespace::PublishedTo;
use tallystone_counters::publish::{CounterSets, Published, PublishedCount, Unpublished};
use tallystone_counters::{Checkpoint, CounterName};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Counts that wait at most, about 10 MB of memory. Those beyond are dropped.
const WAITING_MAX: usize = 100_000;
/// Counts of one call of `CounterSets`, which divides them into commands.
const BATCH_MAX: usize = 1_000;
/// Rollups that end within this time are published together.
const TOGETHER: Duration = Duration::from_millis(5);
/// The pause before a Redis that does not answer is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// Between two reports that some counts of a field are not published.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Publishes counts, until it is stopped.
pub(crate) struct Publisher {
    sets: CounterSets,
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

/// The latest count of each counter, by the field that it goes to.
type Counts = HashMap<PublishedTo, HashMap<u64, PublishedCount>>;

#[derive(Default)]
struct Waiting {
    counts: Counts,
    /// Counts in all of them.
    number: usize,
}

impl Waiting {
    /// Adds a count, unless a later one of the counter waits. Returns whether there was room.
    fn add(&mut self, to: &PublishedTo, count: PublishedCount) -> bool {
        if !self.counts.contains_key(to) {
            self.counts.insert(to.clone(), HashMap::new());
        }
        let Some(counts) = self.counts.get_mut(to) else { return false };
        match counts.entry(count.id) {
            Entry::Occupied(mut waiting) => {
                if waiting.get().exact_to_ms < count.exact_to_ms {
                    waiting.insert(count);
                }
                true
            }
            Entry::Vacant(_) if self.number >= WAITING_MAX => false,
            Entry::Vacant(free) => {
                free.insert(count);
                self.number += 1;
                true
            }
        }
    }
}

impl Publisher {
    pub(crate) fn new(sets: CounterSets) -> Publisher {
        Publisher { sets, waiting: Mutex::default(), arrived: Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the new checkpoints of counters. Never waits for the Redis.
    pub(crate) fn take<'a>(
        &self,
        to: &PublishedTo,
        committed: impl Iterator<Item = (&'a CounterName, &'a Checkpoint)>,
    ) {
        let (mut not_decimal, mut dropped) = (0, 0);
        let mut waiting = self.waiting();
        for (counter, checkpoint) in committed {
            match PublishedCount::of(counter, checkpoint) {
                Some(count) if waiting.add(to, count) => {}
                Some(_) => dropped += 1,
                None => not_decimal += 1,
            }
        }
        drop(waiting);
        metrics::published(Outcome::NotDecimal, not_decimal);
        metrics::published(Outcome::Dropped, dropped);
        self.arrived.notify_one();
    }

    /// Publishes what arrives until the token is cancelled, then what is left.
    pub(crate) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let mut reports = Reports::default();
        loop {
            let is_last = stopping.run_until_cancelled(self.arrived.notified()).await.is_none();
            stopping.run_until_cancelled(sleep(TOGETHER)).await;
            let is_available = self.publish_waiting(&mut reports).await;
            if is_last {
                return;
            }
            if !is_available {
                stopping.run_until_cancelled(sleep(PAUSE)).await;
                self.arrived.notify_one();
            }
        }
    }

    /// Publishes all counts that wait now. Returns false if some wait again: the Redis does not answer, or cannot read their records.
    async fn publish_waiting(&self, reports: &mut Reports) -> bool {
        let Waiting { counts, .. } = std::mem::take(&mut *self.waiting());
        let (mut is_available, mut are_all_sent) = (true, true);
        for (to, counts) in counts {
            let counts: Vec<PublishedCount> = counts.into_values().collect();
            for batch in counts.chunks(BATCH_MAX) {
                let sent = if is_available { self.publish(&to, batch, reports).await } else { Sent::NotAvailable };
                is_available = is_available && sent != Sent::NotAvailable;
                if sent != Sent::Yes {
                    are_all_sent = false;
                    self.wait_again(&to, batch);
                }
            }
        }
        are_all_sent
    }

    async fn publish(&self, to: &PublishedTo, batch: &[PublishedCount], reports: &mut Reports) -> Sent {
        let published = self.sets.publish(to, batch).await;
        reports.report(to, &published);
        match published {
            Ok(Published { set, older, negative, refused, .. }) => {
                metrics::published(Outcome::Published, set);
                metrics::published(Outcome::Older, older);
                metrics::published(Outcome::Negative, negative);
                metrics::published(Outcome::Refused, refused);
                Sent::Yes
            }
            Err(Unpublished::Unavailable(_)) => Sent::NotAvailable,
            Err(Unpublished::NotNow(_)) => Sent::Later,
            Err(_) => {
                metrics::published(Outcome::Refused, batch.len());
                Sent::Yes
            }
        }
    }

    fn wait_again(&self, to: &PublishedTo, batch: &[PublishedCount]) {
        let mut waiting = self.waiting();
        let dropped = batch.iter().filter(|count| !waiting.add(to, **count)).count();
        drop(waiting);
        metrics::published(Outcome::Dropped, dropped);
    }
}

/// What happened to a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// It was published, or refused.
    Yes,
    /// This batch must be sent again; the others need not.
    Later,
    /// No batch can be sent now.
    NotAvailable,
}

/// Logs what is wrong with a field once, until it is another thing.
#[derive(Default)]
struct Reports {
    /// Why the last batch of a field was not published.
    failing: HashMap<PublishedTo, Unpublished>,
    /// Fields of which a count below 0 was reported.
    negative: HashSet<PublishedTo>,
    /// Fields of which some counts could not be set, and when that was reported.
    some: HashMap<PublishedTo, Instant>,
}

impl Reports {
    fn report(&mut self, to: &PublishedTo, published: &Result<Published, Unpublished>) {
        let PublishedTo { key, field } = to;
        match published {
            Ok(Published { negative, why, .. }) => {
                if self.failing.remove(to).is_some() {
                    tracing::info!(
                        key,
                        field,
                        "counts are published again; `tallystone counter namespace republish` fills what is missing"
                    );
                }
                if *negative > 0 && self.negative.insert(to.clone()) {
                    tracing::warn!(key, field, "counts below 0 are not published: the field is unsigned");
                }
                if let Some(why) = why.as_ref().filter(|_| self.is_due(to)) {
                    tracing::warn!(key, field, %why, "some counts are refused, and not published");
                }
            }
            // Other batches of the field may continue meanwhile, so this would alternate with them.
            Err(Unpublished::NotNow(why)) => {
                if self.is_due(to) {
                    tracing::warn!(key, field, %why, "some counts are not published yet");
                }
            }
            Err(why) if self.failing.get(to) != Some(why) => {
                tracing::warn!(key, field, %why, "cannot publish counts; rollups go on");
                self.failing.insert(to.clone(), why.clone());
            }
            Err(_) => {}
        }
    }

    /// Whether a report of some counts of a field is due; if so, the next one is due after a pause.
    fn is_due(&mut self, to: &PublishedTo) -> bool {
        let is_due = self.some.get(to).is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if is_due {
            self.some.insert(to.clone(), Instant::now());
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(id: u64, exact_to_ms: u64) -> PublishedCount {
        PublishedCount { id, count: 1, exact_to_ms }
    }

    #[test]
    fn w6_the_latest_count_of_a_counter_waits_and_their_number_is_bounded() {
        let to = |field: &str| PublishedTo { key: "k".to_owned(), field: field.to_owned() };
        let mut waiting = Waiting::default();
        for exact_to_ms in [5, 7, 6] {
            assert!(waiting.add(&to("a"), count(1, exact_to_ms)));
        }
        assert_eq!(waiting.counts[&to("a")][&1], count(1, 7));
        assert!((2..=WAITING_MAX as u64).all(|id| waiting.add(&to("b"), count(id, 1))));
        assert!(!waiting.add(&to("b"), count(0, 1)));
        assert!(waiting.add(&to("b"), count(2, 2)), "a later count takes no room");
        assert_eq!(waiting.number, WAITING_MAX);
    }
}
