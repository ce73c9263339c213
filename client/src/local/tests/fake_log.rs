//! A log within the test. The service of the test counts what is in it, at once or when the test delivers it.

use super::fake::Fake;
use crate::local::push_file::{Item, Push};
use crate::local::push_log::{PushLog, Put};
use crate::local::steps::Steps;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;

/// What the log does with the next call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It answers.
    Answer,
    /// No call arrives.
    Away,
    /// It does what is requested, and its answer is lost.
    Lost,
}

/// What is in the log.
#[derive(Default)]
pub(super) struct LogState {
    pub(super) outcomes: VecDeque<Outcome>,
    pub(super) marks: HashMap<String, String>,
    /// What is in the log has not counted yet.
    pub(super) is_slow: bool,
    pub(super) waiting: Vec<(String, String, i64)>,
    pub(super) puts: usize,
    pub(super) delay: Duration,
}

pub(super) struct FakeLog {
    pub(super) fake: Fake,
    pub(super) steps: Steps,
}

impl FakeLog {
    fn call<T>(&self, what: impl FnOnce(&Fake) -> T) -> Result<T, String> {
        self.steps.reach("before the log has it");
        let outcome = self.fake.log().outcomes.pop_front().unwrap_or(Outcome::Answer);
        if outcome == Outcome::Away {
            return Err("away".to_owned());
        }
        let done = what(&self.fake);
        self.steps.reach("the log has it");
        if outcome == Outcome::Lost { Err("lost".to_owned()) } else { Ok(done) }
    }
}

impl PushLog for FakeLog {
    fn name(&self) -> &str {
        "adds"
    }

    fn delay(&self) -> Duration {
        self.fake.log().delay
    }

    fn mark(&mut self, namespace: &str) -> Result<String, String> {
        self.call(|fake| {
            let mark = uuid::Uuid::new_v4().to_string();
            fake.log().marks.insert(namespace.to_owned(), mark.clone());
            mark
        })
    }

    fn put(&mut self, push: &Push) -> Result<Put, String> {
        self.call(|fake| {
            let logged = push.logged.as_ref().expect("a push to the log");
            match fake.log().marks.get(&push.namespace) {
                Some(mark) if *mark == push.token => return Put::Found,
                Some(mark) if *mark == logged.mark_before => {}
                _ => return Put::Forgotten,
            }
            fake.log().marks.insert(push.namespace.clone(), push.token.clone());
            fake.log().puts += 1;
            for Item { counter, delta, .. } in &push.items {
                fake.log().waiting.push((push.namespace.clone(), counter.clone(), *delta));
            }
            if !fake.log().is_slow {
                fake.deliver();
            }
            Put::Written
        })
    }
}

impl Fake {
    /// A service that has a log: pushes go there.
    pub(super) fn with_log(outcomes: &[Outcome]) -> Fake {
        let fake = Fake::default();
        fake.state().log = Some(LogState { outcomes: outcomes.iter().copied().collect(), ..LogState::default() });
        fake
    }

    /// Counts what is in the log.
    pub(super) fn deliver(&self) {
        let waiting = std::mem::take(&mut self.log().waiting);
        let mut state = self.state();
        for (namespace, counter, delta) in waiting {
            *state.counts.entry((namespace, counter)).or_default() += delta;
        }
    }
}
