//! What a counter is: a list of events, each there once.

use std::collections::BTreeMap;
use tallystone_counters::namespace::FUTURE_LIMIT_MS;
use tallystone_counters::{Appended, Change, CounterName, NamespaceConfig, NewEvent, Refusal, Token};

/// All counters of a namespace.
pub(super) struct Model {
    config: NamespaceConfig,
    events: BTreeMap<(CounterName, u64, Token), Change>,
}

impl Model {
    pub(super) fn new(config: &NamespaceConfig) -> Model {
        Model { config: config.clone(), events: BTreeMap::new() }
    }

    /// What the log must answer, at this time.
    pub(super) fn append(&mut self, event: &NewEvent, now_ms: u64) -> Result<Appended, Refusal> {
        let id = (event.counter.clone(), event.time_ms, event.token.clone());
        if event.time_ms < now_ms - self.config.close_after_ms {
            return Err(Refusal::TokenExpired);
        }
        match self.events.get(&id) {
            Some(change) if *change == event.change => return Ok(Appended::Duplicate),
            Some(_) => return Err(Refusal::TokenConflict),
            None => {}
        }
        if event.time_ms < now_ms - self.config.accept_limit_ms {
            return Err(Refusal::TooOld);
        }
        if event.time_ms > now_ms + FUTURE_LIMIT_MS {
            return Err(Refusal::TooEarly);
        }
        self.events.insert(id, event.change);
        Ok(Appended::Counted)
    }

    /// An event that the log had no room for.
    pub(super) fn forget(&mut self, event: &NewEvent) {
        self.events.remove(&(event.counter.clone(), event.time_ms, event.token.clone()));
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
}
