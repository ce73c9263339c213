//! What a counter is: a list of events, each there once.

use super::{counted, duplicate};
use std::collections::{BTreeMap, BTreeSet};
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::namespace::FUTURE_LIMIT_MS;
use tallystone_counters::rollup::COUNT_SOFT_MAX;
use tallystone_counters::{Appended, Change, CounterName, Event, NamespaceConfig, NewEvent, Refusal, Token};

type Id = (CounterName, u64, Token);

/// All counters of a namespace.
pub(super) struct Model {
    config: NamespaceConfig,
    events: BTreeMap<Id, Change>,
    /// Of which somebody was told that they are too old: that stays so.
    told_too_old: BTreeSet<Id>,
    /// Before this a shard may have closed, whatever the accept limit has become since.
    closed_ms: u64,
    /// The sum of the sizes of all that was ever added.
    sizes: BTreeMap<CounterName, u128>,
}

impl Model {
    pub(super) fn new(config: &NamespaceConfig) -> Model {
        let (events, told_too_old, sizes) = Default::default();
        Model { config: config.clone(), events, told_too_old, closed_ms: 0, sizes }
    }

    /// The namespace is told this from now on.
    pub(super) fn reconfigure(&mut self, config: &NamespaceConfig, now_ms: u64) {
        self.closed_ms = self.closed_ms.max(now_ms - self.config.accept_limit_ms);
        self.config = config.clone();
    }

    /// The largest delta that a shard takes.
    pub(super) fn delta_max(config: &NamespaceConfig) -> i64 {
        (COUNT_SOFT_MAX - 1) / i64::from(config.buckets_per_id)
    }

    /// Whether the log may answer this, at this time of the store's clock; what has counted is there from now on.
    pub(super) fn append(&mut self, events: &[NewEvent], answers: &[Result<Appended, Refusal>], now_ms: u64) {
        assert_eq!(events.len(), answers.len());
        // An event that happens when it is counted may come after the others of its call: all of them take room.
        for (event, answer) in events.iter().zip(answers) {
            if let Ok(Appended { duplicate: false, .. }) = answer {
                *self.sizes.entry(event.counter.clone()).or_default() += u128::from(size(event.change));
            }
        }
        for (event, answer) in events.iter().zip(answers) {
            self.append_one(event, answer, now_ms);
        }
    }

    fn append_one(&mut self, event: &NewEvent, answer: &Result<Appended, Refusal>, now_ms: u64) {
        let time_ms = event.time_ms.unwrap_or(now_ms);
        let id = (event.counter.clone(), time_ms, event.token.clone());
        let expected = self.expected(event, &id, answer, now_ms);
        assert_eq!(*answer, expected, "{event:?} at {now_ms}, accept limit {}", self.config.accept_limit_ms);
        match expected {
            Ok(Appended { duplicate: false, .. }) => {
                self.events.insert(id, event.change);
            }
            Err(Refusal::TooOld) => {
                self.told_too_old.insert(id);
            }
            _ => {}
        }
    }

    fn expected(
        &self,
        event: &NewEvent,
        id: &Id,
        answer: &Result<Appended, Refusal>,
        now_ms: u64,
    ) -> Result<Appended, Refusal> {
        let (is_too_old, time_ms) = (*answer == Err(Refusal::TooOld), id.1);
        let size = size(event.change);
        if size > Model::delta_max(&self.config).unsigned_abs() {
            return Err(Refusal::Overflow);
        }
        if time_ms < now_ms - self.config.close_after_ms {
            return Err(Refusal::TokenExpired);
        }
        match self.events.get(id) {
            Some(change) if *change == event.change => return duplicate(time_ms),
            Some(_) => return Err(Refusal::TokenConflict),
            None => {}
        }
        let may_be_closed = is_too_old && time_ms < self.closed_ms;
        if time_ms < now_ms - self.config.accept_limit_ms || self.told_too_old.contains(id) || may_be_closed {
            return Err(Refusal::TooOld);
        }
        if time_ms > now_ms + FUTURE_LIMIT_MS {
            return Err(Refusal::TooEarly);
        }
        // Which shard has how much of it the model does not know; but what fits one shard all together fits.
        let sizes = self.sizes.get(&event.counter).copied().unwrap_or_default() + u128::from(size);
        if *answer == Err(Refusal::Overflow) && size > 0 && sizes > Model::delta_max(&self.config) as u128 {
            return Err(Refusal::Overflow);
        }
        counted(time_ms)
    }

    /// The count of what happened before a time.
    pub(super) fn count(&self, counter: &CounterName, before_ms: u64) -> i64 {
        let of_counter = self.events.iter().filter(|((name, time_ms, _), _)| name == counter && *time_ms < before_ms);
        let events: Vec<(u64, Change)> = of_counter.map(|((_, time_ms, _), change)| (*time_ms, *change)).collect();
        let clears = events.iter().filter(|(_, change)| *change == Change::Clear);
        let cleared_ms = clears.map(|(time_ms, _)| *time_ms).max();
        let adds = events.iter().filter_map(|(time_ms, change)| match change {
            Change::Add(delta) if cleared_ms.is_none_or(|cleared_ms| *time_ms > cleared_ms) => Some(i128::from(*delta)),
            _ => None,
        });
        i64::try_from(adds.sum::<i128>()).expect("a count in its range")
    }

    /// The time of the latest event; 0: there is none.
    pub(super) fn last_write_ms(&self, counter: &CounterName) -> u64 {
        let of_counter = self.events.keys().filter(|(name, ..)| name == counter);
        of_counter.map(|(_, time_ms, _)| *time_ms).max().unwrap_or_default()
    }

    /// Its events, by window, in the order of their times.
    pub(super) fn events(&self, counter: &CounterName) -> BTreeMap<u64, Vec<Event>> {
        let mut windows: BTreeMap<u64, Vec<Event>> = BTreeMap::new();
        // The ids are in that order.
        for ((_, time_ms, token), change) in self.events.iter().filter(|((name, ..), _)| name == counter) {
            let event = Event { time_ms: *time_ms, token: token.clone(), change: *change };
            windows.entry(time_ms / WINDOW_MS).or_default().push(event);
        }
        windows
    }
}

fn size(change: Change) -> u64 {
    match change {
        Change::Add(delta) => delta.unsigned_abs(),
        Change::Clear => 0,
    }
}
