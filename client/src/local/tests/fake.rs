//! A service within the test. It identifies events as the real one does, and fails as a test requests.

use super::fake_log::LogState;
use crate::counter::{Added, Counted, CounterType, NewAdd};
use crate::error::{Applied, Error, Items, Refused};
use crate::local::service::Service;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard};

/// What the service does with the next call of an add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// Counts.
    Count,
    /// No call arrives.
    Away,
    /// Counts, and its answer is lost.
    Lost,
    /// Counts the first half of the adds; the others fail with this reason.
    Half(&'static str),
    /// Refuses each add with this reason.
    Refuse(&'static str),
    /// Refuses the adds to the counters `a` and `b` with these reasons.
    Both(&'static str, &'static str),
}

/// The log of a service that has one.
pub(super) struct MappedLog<'a>(MutexGuard<'a, State>);

impl Deref for MappedLog<'_> {
    type Target = LogState;

    fn deref(&self) -> &LogState {
        self.0.log.as_ref().expect("it has a log")
    }
}

impl DerefMut for MappedLog<'_> {
    fn deref_mut(&mut self) -> &mut LogState {
        self.0.log.as_mut().expect("it has a log")
    }
}

type Event = (String, String, String, u64);

#[derive(Default)]
pub(super) struct State {
    pub(super) answers: VecDeque<Answer>,
    /// Where pushes go instead.
    pub(super) log: Option<LogState>,
    /// Every read fails.
    pub(super) is_deaf: bool,
    pub(super) types: HashMap<String, CounterType>,
    pub(super) exact_to_ms: u64,
    /// By namespace and counter.
    pub(super) counts: BTreeMap<(String, String), i64>,
    events: HashMap<Event, i64>,
    too_old: HashSet<Event>,
    calls: Vec<Vec<NewAdd>>,
    /// Calls that are under way, and the most that were.
    under_way: [usize; 2],
    /// The counters of each read.
    pub(super) reads: Vec<Vec<String>>,
}

#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<State>>);

impl Fake {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    pub(super) fn answering(answers: &[Answer]) -> Fake {
        let fake = Fake::default();
        fake.state().answers.extend(answers.iter().cloned());
        fake
    }

    /// The log that it has.
    pub(super) fn log(&self) -> MappedLog<'_> {
        MappedLog(self.state())
    }

    /// What was sent: the adds of each call.
    pub(super) fn calls(&self) -> Vec<Vec<NewAdd>> {
        self.state().calls.clone()
    }

    /// The most calls of adds that were under way at once.
    pub(super) fn most_under_way(&self) -> usize {
        self.state().under_way[1]
    }

    /// By namespace and counter.
    pub(super) fn counts(&self) -> BTreeMap<(String, String), i64> {
        self.state().counts.clone()
    }

    /// Of a counter in the namespace of most tests.
    pub(super) fn count(&self, counter: &str) -> i64 {
        self.state().counts.get(&("ads".to_owned(), counter.to_owned())).copied().unwrap_or(0)
    }
}

fn refused(reason: &str) -> Refused {
    Refused { reason: reason.to_owned(), ..Refused::protocol(reason) }
}

fn away(applied: Applied) -> Error {
    Error::Unavailable { applied, message: "away".to_owned() }
}

impl State {
    fn count(&mut self, namespace: &str, add: &NewAdd) -> Result<Added, Refused> {
        let token = add.token.clone().expect("each add of a push has a token");
        let event = (namespace.to_owned(), add.counter.clone(), token.token, token.generation_time_ms);
        if self.too_old.contains(&event) {
            return Err(refused("TOO_OLD"));
        }
        let (event_time_ms, counter) = (event.3, (event.0.clone(), event.1.clone()));
        match self.events.insert(event, add.delta) {
            None => {
                *self.counts.entry(counter).or_default() += add.delta;
                Ok(Added { event_time_ms, duplicate: false })
            }
            Some(delta) => {
                assert_eq!(delta, add.delta, "the same token with another delta");
                Ok(Added { event_time_ms, duplicate: true })
            }
        }
    }

    fn refuse(&mut self, namespace: &str, add: &NewAdd, reason: &'static str) -> Result<Added, Refused> {
        let token = add.token.clone().expect("each add of a push has a token");
        let event = (namespace.to_owned(), add.counter.clone(), token.token, token.generation_time_ms);
        if reason == "TOO_OLD" && !self.events.contains_key(&event) {
            self.too_old.insert(event);
        } else if self.events.contains_key(&event) {
            return self.count(namespace, add);
        }
        Err(refused(reason))
    }
}

impl Service for Fake {
    async fn add(&self, namespace: &str, adds: Vec<NewAdd>) -> Items<Added> {
        {
            let under_way = &mut self.state().under_way;
            *under_way = [under_way[0] + 1, under_way[1].max(under_way[0] + 1)];
        }
        // Other calls arrive before this one is answered.
        tokio::task::yield_now().await;
        let mut state = self.state();
        state.under_way[0] -= 1;
        state.calls.push(adds.clone());
        let answer = state.answers.pop_front().unwrap_or(Answer::Count);
        if answer == Answer::Away {
            return Err(away(Applied::No));
        }
        let half = adds.len() / 2;
        let outcome = |(number, add): (usize, &NewAdd)| match answer {
            Answer::Refuse(reason) => state.refuse(namespace, add, reason),
            Answer::Both(a, b) => state.refuse(namespace, add, if add.counter == "a" { a } else { b }),
            Answer::Half(reason) if number >= half => state.refuse(namespace, add, reason),
            _ => state.count(namespace, add),
        };
        let results = adds.iter().enumerate().map(outcome).collect();
        if answer == Answer::Lost { Err(away(Applied::Unknown)) } else { Ok(results) }
    }

    async fn get(&self, namespace: &str, counters: Vec<String>) -> Items<Counted> {
        let mut state = self.state();
        state.reads.push(counters.clone());
        if state.is_deaf {
            return Err(away(Applied::Unknown));
        }
        let counter_type = state.types.get(namespace).copied().unwrap_or(CounterType::Accurate);
        let exact_to_ms = state.exact_to_ms;
        let count = |counter: String| state.counts.get(&(namespace.to_owned(), counter)).copied().unwrap_or(0);
        Ok(counters.into_iter().map(count).map(|count| Ok(Counted { count, exact_to_ms, counter_type })).collect())
    }
}
