//! All queues that this server knows, and which of them have separate series.
//!
//! A queue gets series as soon as it is used while there is room, and keeps them while it exists. Once a minute the queues
//! are compared by their *weight*: what this server counted for them in that minute, plus their messages. A queue without
//! series takes the place of another one only if its weight is more than twice as high, so that series do not come and go.
//! What is counted for the others goes into a sum. Nothing is counted twice, and no sum ever falls.

use super::tally::{Tally, Totals};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tallystone_model::QueueName;
use tallystone_model::store::{Ages, Depth};
use tokio::time::Instant;

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
    /// When the store was last read without an error.
    read_at: Option<Instant>,
}

/// What a page shows.
pub(super) struct Shown {
    pub(super) queues: Vec<(QueueName, Totals, Option<Reading>)>,
    pub(super) others: Sum,
    pub(super) internal: Sum,
    pub(super) read_at: Option<Instant>,
}

/// The queues of one server.
pub(crate) struct Board {
    queues: Mutex<Queues>,
    /// The most queues with separate series; `None`: without a metrics port no queue is known.
    series_max: Option<usize>,
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

    /// The queue does not exist. A lane that still counts for it goes on when it is created again.
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
    pub(crate) fn new(series_max: Option<usize>) -> Arc<Self> {
        Arc::new(Board { queues: Mutex::default(), series_max })
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
    /// Each with the mark of its last reading.
    pub(super) fn to_read(&self) -> Vec<(QueueName, Option<Reading>)> {
        let mut queues = self.lock();
        let mut found = Vec::new();
        for (queue, entry) in queues.entries.iter_mut().filter(|(_, entry)| entry.has_series) {
            let calls = entry.tally.totals().calls();
            let is_called = std::mem::replace(&mut entry.calls_when_read, calls) != calls;
            if is_called || entry.reading.as_ref().is_none_or(|reading| reading.depth.live() > 0) {
                found.push((queue.clone(), entry.reading.clone()));
            }
        }
        found
    }

    /// What the store has said of a queue; `None`: it does not exist.
    pub(super) fn has_read(&self, queue: &QueueName, reading: Option<Reading>) {
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

    pub(super) fn has_read_all(&self, now: Instant) {
        self.lock().read_at = Some(now);
    }

    /// Compares all queues of the store, gives series to those of the highest weight, and forgets those that are gone.
    pub(super) fn rank(&self, stored: &BTreeMap<QueueName, Depth>) {
        let queues = &mut *self.lock();
        queues.settle();
        let gone: Vec<QueueName> = queues.entries.keys().filter(|queue| !stored.contains_key(queue)).cloned().collect();
        gone.iter().for_each(|queue| queues.gone(queue));

        let (mut shown, mut others) = (Vec::new(), Vec::new());
        for (queue, depth) in stored.iter().filter(|(queue, _)| !queue.is_internal()) {
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
        for (queue, depth) in stored {
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
        let of = |(queue, entry): (&QueueName, &Entry)| {
            let totals = entry.tally.totals().since(&entry.settled);
            entry.has_series.then(|| (queue.clone(), totals, entry.reading.clone()))
        };
        let shown = queues.entries.iter().filter_map(of).collect();
        Shown { queues: shown, others: queues.others, internal: queues.internal, read_at: queues.read_at }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        // No holder of the lock panics with an entry half changed.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
