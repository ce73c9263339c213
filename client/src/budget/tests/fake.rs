//! A counter of the service, within the test: it keeps tokens, holds adds against bounds, and answers, or does not, as the test says.

use crate::budget::service::Service;
use crate::counter::{Counted, CounterType, IdempotencyToken};
use crate::error::{Applied, Error, Refused, Result};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tonic::Code;

/// What happens to a call that the test has planned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It counts, and its answer is lost.
    AnswerLost,
    /// It is lost itself.
    CallLost,
    /// It is lost, and counts when the test [lets it arrive](Fake::arrive).
    Delayed,
    /// It is refused, and does not count.
    Refused(&'static str),
}

#[derive(Default)]
struct State {
    count: i64,
    count_max: i64,
    tokens: HashSet<String>,
    fates: VecDeque<Fate>,
    delayed: Vec<(String, i64)>,
    /// Adds with an older time are refused.
    accepts_from_ms: u64,
    grants: Vec<i64>,
    reads: usize,
    calls: usize,
}

#[derive(Clone, Default)]
pub(super) struct Fake(Arc<Mutex<State>>);

impl Fake {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    pub(super) fn with_count(count: i64) -> Fake {
        let fake = Fake::default();
        fake.set_count(count);
        fake
    }

    /// As others do: by grants, returns and clears.
    pub(super) fn set_count(&self, count: i64) {
        self.state().count = count;
    }

    pub(super) fn count(&self) -> i64 {
        self.state().count
    }

    /// The highest that an add has made it.
    pub(super) fn count_max(&self) -> i64 {
        self.state().count_max
    }

    /// The next adds have these fates.
    pub(super) fn plan(&self, fates: &[Fate]) {
        self.state().fates.extend(fates);
    }

    pub(super) fn arrive(&self) {
        let mut state = self.state();
        for (token, delta) in std::mem::take(&mut state.delayed) {
            if state.tokens.insert(token) {
                state.count += delta;
            }
        }
    }

    /// Adds of before are too old from now on.
    pub(super) fn refuse_until_now(&self) {
        self.state().accepts_from_ms = IdempotencyToken::now().generation_time_ms + 1;
    }

    /// The units of the grants that have counted.
    pub(super) fn grants(&self) -> Vec<i64> {
        self.state().grants.clone()
    }

    pub(super) fn reads(&self) -> usize {
        self.state().reads
    }

    pub(super) fn calls(&self) -> usize {
        self.state().calls
    }

    fn add(&self, delta: i64, is_allowed: impl Fn(i64) -> bool, token: &IdempotencyToken) -> Result<i64> {
        let mut state = self.state();
        state.calls += 1;
        let fate = state.fates.pop_front();
        match fate {
            Some(Fate::CallLost) => return Err(lost()),
            Some(Fate::Delayed) => {
                state.delayed.push((token.token.clone(), delta));
                return Err(lost());
            }
            Some(Fate::Refused(reason)) => return Err(refused(reason, None)),
            Some(Fate::AnswerLost) | None => {}
        }
        if !state.tokens.contains(&token.token) {
            if token.generation_time_ms < state.accepts_from_ms {
                return Err(refused("TOO_OLD", None));
            }
            if !is_allowed(state.count + delta) {
                return Err(refused("BOUND_REACHED", Some(state.count)));
            }
            state.tokens.insert(token.token.clone());
            state.count += delta;
            state.count_max = state.count_max.max(state.count);
            state.grants.extend((delta > 0).then_some(delta));
        }
        if matches!(fate, Some(Fate::AnswerLost)) { Err(lost()) } else { Ok(state.count) }
    }
}

fn lost() -> Error {
    Error::Unavailable { applied: Applied::Unknown, message: "no answer".to_owned() }
}

fn refused(reason: &str, count: Option<i64>) -> Error {
    let metadata: BTreeMap<_, _> = count.map(|count| ("count".to_owned(), count.to_string())).into_iter().collect();
    let (message, reason) = (reason, reason.to_owned());
    Error::Refused(Refused { code: Code::FailedPrecondition, reason, metadata, ..Refused::protocol(message) })
}

impl Service for Fake {
    async fn grant(&self, units: i64, limit: i64, token: &IdempotencyToken) -> Result<i64> {
        self.add(units, |count| count <= limit, token)
    }

    async fn give_back(&self, units: i64, least: i64, token: &IdempotencyToken) -> Result<()> {
        self.add(-units, |count| count >= least, token).map(drop)
    }

    async fn count(&self) -> Result<Counted> {
        let mut state = self.state();
        state.reads += 1;
        state.calls += 1;
        Ok(Counted { count: state.count, exact_to_ms: 0, counter_type: CounterType::Accurate })
    }
}
