//! All queues that this server knows, and which of them have separate series.
//!
//! A queue gets series as soon as it is used while there is room, and keeps them while it exists. Once a minute the queues
//! are compared by their *weight*: what this server counted for them in that minute, plus their messages. A queue without
//! series takes the place of another one only if its weight is more than twice as high, so that series do not come and go.
//! What is counted for the others goes into a sum. Nothing is counted twice, and no sum ever falls.

use super::tally::{Tally, Totals};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_lua::keys::Keyspace;
use tallystone_model::QueueName;
use tallystone_model::store::{Ages, Depth};
use tokio::time::Instant;

/// What was read longer ago is not shown.
const FRESH: Duration = Duration::from_secs(150);

/// What is known of the messages of one queue.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) depth: Depth,
    pub(super) ages: Ages,
    /// When the ages were read.
    pub(super) at: Instant,
    /// As long as the store returns the same mark, nothing but the time has changed.
    pub(super) mark: Vec<u8>,
}

impl Reading {
    /// A reading of nothing but the depth: the ages are the last ones, as far as there are such messages.
    pub(super) fn without_ages(depth: Depth, last: Option<Reading>) -> Self {
        let (ages, at) = last.map_or((Ages::default(), Instant::now()), |last| (last.ages, last.at));
        let pending_ms = ages.pending_ms.filter(|_| depth.pending > 0);
        let lease_ms = ages.lease_ms.filter(|_| depth.running > 0);
        Reading { depth, ages: Ages { pending_ms, lease_ms }, at, mark: Vec::new() }
    }
}

struct Entry {
    tally: Arc<Tally>,
    /// What has gone into a sum, or was shown in series that have ended.
    settled: Totals,
    has_series: bool,
    calls_when_ranked: u64,
    calls_when_read: u64,
    reading: Option<Reading>,
}

/// The sum of queues without separate series.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    pub(super) totals: Totals,
    pub(super) depth: Depth,
}

#[derive(Default)]
struct Queues {
    entries: BTreeMap<QueueName, Entry>,
    shown: usize,
    others: Sum,
    internal: Sum,
    /// When each partition of the store was last read without an error.
    read_at: Vec<Option<Instant>>,
}

/// What a page shows.
pub(super) struct Shown {
    /// The readings are those of partitions that were read within [`FRESH`].
    pub(super) queues: Vec<(QueueName, Totals, Option<Reading>)>,
    pub(super) others: Sum,
    pub(super) internal: Sum,
    /// Whether a partition was read within [`FRESH`].
    pub(super) is_read: bool,
}

/// The queues of one server.
pub(crate) struct Board {
    queues: Mutex<Queues>,
    /// The most queues with separate series; `None`: without a metrics port no queue is known.
    series_max: Option<usize>,
    /// The number of partitions of the store.
    partitions: u16,
}

impl Entry {
    fn new(tally: Arc<Tally>, has_series: bool) -> Self {
        let (settled, reading) = (Totals::default(), None);
        Entry { tally, settled, has_series, calls_when_ranked: 0, calls_when_read: 0, reading }
    }

    /// Whether a lane counts for it, or will: tallies are given under the lock.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.tally) > 1
    }

    /// What was counted since the last call, for a sum.
    fn settle(&mut self) -> Totals {
        let totals = self.tally.totals();
        totals.since(&std::mem::replace(&mut self.settled, totals))
    }
}

impl Queues {
    fn sum_of(&mut self, queue: &QueueName) -> &mut Sum {
        if queue.is_internal() { &mut self.internal } else { &mut self.others }
    }

    /// Adds to the sums what was counted for queues without series.
    fn settle(&mut self) {
        for (queue, entry) in self.entries.iter_mut().filter(|(_, entry)| !entry.has_series) {
            let sum = if queue.is_internal() { &mut self.internal } else { &mut self.others };
            sum.totals.add(&entry.settle());
        }
    }

    /// The queue does not exist. A lane that still counts for it continues when it is created again.
    fn gone(&mut self, queue: &QueueName) {
        match self.entries.get_mut(queue) {
            Some(entry) if entry.is_in_use() => {
                entry.reading = None;
                if entry.has_series {
                    self.show(queue, false);
                }
            }
            _ => self.remove(queue),
        }
    }

    fn remove(&mut self, queue: &QueueName) {
        let Some(mut entry) = self.entries.remove(queue) else { return };
        match entry.has_series {
            true => self.shown -= 1,
            false => self.sum_of(queue).totals.add(&entry.settle()),
        }
    }

    fn show(&mut self, queue: &QueueName, has_series: bool) {
        let Some(entry) = self.entries.get_mut(queue) else { return };
        let counted = entry.settle();
        entry.has_series = has_series;
        // What a series has shown stays out of the sums: it would look as if it had happened now.
        match has_series {
            true => {
                self.shown += 1;
                self.sum_of(queue).totals.add(&counted);
            }
            false => self.shown -= 1,
        }
    }
}

impl Board {
    /// `partitions`: how many the store has.
    pub(crate) fn new(series_max: Option<usize>, partitions: u16) -> Arc<Self> {
        let queues = Queues { read_at: vec![None; usize::from(partitions)], ..Queues::default() };
        Arc::new(Board { queues: Mutex::new(queues), series_max, partitions })
    }

    /// The numbers of the partitions.
    pub(super) fn partitions(&self) -> std::ops::Range<u16> {
        0..self.partitions
    }

    fn partition_of(&self, queue: &QueueName) -> usize {
        usize::from(Keyspace::number_of_queue(queue, self.partitions))
    }

    /// The tally of a queue, which its lane keeps.
    pub(crate) fn tally(&self, queue: &QueueName) -> Arc<Tally> {
        let Some(series_max) = self.series_max else { return Arc::default() };
        let mut queues = self.lock();
        if let Some(entry) = queues.entries.get(queue) {
            return entry.tally.clone();
        }
        let tally = Arc::new(Tally::default());
        let has_series = !queue.is_internal() && queues.shown < series_max;
        queues.shown += usize::from(has_series);
        queues.entries.insert(queue.clone(), Entry::new(tally.clone(), has_series));
        tally
    }

    /// The store has said that there is no such queue: unless another lane counts for it, it has no series any more.
    pub(crate) fn forget(&self, queue: &QueueName, tally: Arc<Tally>) {
        let mut queues = self.lock();
        // The two: this caller, and the entry. New ones are made under this lock.
        if Arc::strong_count(&tally) <= 2 {
            queues.remove(queue);
        }
    }

    /// The queues with series that are not at rest: they have messages that may move, or calls since they were last read.
    /// Those of each partition, with their last readings.
    pub(super) fn to_read(&self) -> Vec<Vec<(QueueName, Option<Reading>)>> {
        let mut queues = self.lock();
        let mut found = vec![Vec::new(); usize::from(self.partitions)];
        for (queue, entry) in queues.entries.iter_mut().filter(|(_, entry)| entry.has_series) {
            let calls = entry.tally.totals().calls();
            let is_called = std::mem::replace(&mut entry.calls_when_read, calls) != calls;
            if is_called || entry.reading.as_ref().is_none_or(|reading| reading.depth.live() > 0) {
                found[self.partition_of(queue)].push((queue.clone(), entry.reading.clone()));
            }
        }
        found
    }

    /// What the store has said of a queue; `None`: it does not exist.
    pub(super) fn has_reading(&self, queue: &QueueName, reading: Option<Reading>) {
        let mut queues = self.lock();
        match reading {
            Some(reading) => {
                if let Some(entry) = queues.entries.get_mut(queue) {
                    entry.reading = Some(reading);
                }
            }
            None => queues.gone(queue),
        }
    }

    pub(super) fn has_read(&self, partition: u16, now: Instant) {
        self.lock().read_at[usize::from(partition)] = Some(now);
    }

    /// Compares all queues of the store, gives series to those of the highest weight, and forgets those that are gone.
    /// `walked`: the queues of each partition; `None`: it was not read, so its queues keep their series, and the sums lack
    /// its messages.
    pub(super) fn rank(&self, walked: &[Option<BTreeMap<QueueName, Depth>>]) {
        let queues = &mut *self.lock();
        queues.settle();
        let is_gone = |queue: &&QueueName| {
            let stored = walked.get(self.partition_of(queue)).and_then(Option::as_ref);
            stored.is_some_and(|stored| !stored.contains_key(*queue))
        };
        let gone: Vec<QueueName> = queues.entries.keys().filter(is_gone).cloned().collect();
        let stored = || walked.iter().flatten().flatten();
        gone.iter().for_each(|queue| queues.gone(queue));

        let (mut shown, mut others) = (Vec::new(), Vec::new());
        for (queue, depth) in stored().filter(|(queue, _)| !queue.is_internal()) {
            let weight = depth.live() + depth.errored;
            match queues.entries.get_mut(queue) {
                Some(entry) => {
                    let calls = entry.tally.totals().calls();
                    let weight = weight + (calls - std::mem::replace(&mut entry.calls_when_ranked, calls));
                    if entry.has_series { shown.push((weight, queue)) } else { others.push((weight, queue)) }
                }
                None => others.push((weight, queue)),
            }
        }
        // The lightest of the shown ones against the heaviest of the others.
        shown.sort();
        others.sort_by(|a, b| b.cmp(a));
        let free = self.series_max.unwrap_or(0).saturating_sub(queues.shown);
        let mut shown = shown.into_iter();
        for (at, (weight, queue)) in others.into_iter().enumerate() {
            if at >= free {
                let Some((lightest, out)) = shown.next() else { break };
                if weight <= lightest * 2 {
                    break;
                }
                queues.show(out, false);
            }
            if !queues.entries.contains_key(queue) {
                queues.entries.insert(queue.clone(), Entry::new(Arc::new(Tally::default()), false));
            }
            queues.show(queue, true);
        }

        (queues.others.depth, queues.internal.depth) = (Depth::default(), Depth::default());
        for (queue, depth) in stored() {
            match queues.entries.get_mut(queue) {
                Some(entry) if entry.has_series => {
                    let last = entry.reading.take();
                    entry.reading = Some(match last {
                        Some(last) if last.depth == *depth => last,
                        last => Reading::without_ages(*depth, last),
                    });
                }
                _ => {
                    let sum = &mut queues.sum_of(queue).depth;
                    for state in tallystone_model::State::ALL {
                        *sum.of_mut(state) += depth.of(state);
                    }
                }
            }
        }
    }

    /// What a page shows now.
    pub(super) fn shown(&self) -> Shown {
        let mut queues = self.lock();
        queues.settle();
        let is_fresh =
            |queue: &QueueName| queues.read_at[self.partition_of(queue)].is_some_and(|at| at.elapsed() <= FRESH);
        let of = |(queue, entry): (&QueueName, &Entry)| {
            let totals = entry.tally.totals().since(&entry.settled);
            entry.has_series.then(|| (queue.clone(), totals, entry.reading.clone().filter(|_| is_fresh(queue))))
        };
        let shown = queues.entries.iter().filter_map(of).collect();
        let is_read = queues.read_at.iter().flatten().any(|at| at.elapsed() <= FRESH);
        Shown { queues: shown, others: queues.others, internal: queues.internal, is_read }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // No holder of the lock panics with an entry half changed.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
