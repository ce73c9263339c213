//! Whether counters are exact to a time, and what makes them so (N19). All waiting reads of a namespace share these checks.
//!
//! A counter of which nothing is pending before the time needs no rollup: its shards are sealed, so nothing can come any
//! more. Thus a read of a counter that was never written leaves nothing in the store. Of any other counter the rollup is
//! brought forward.

use super::touches::{TOUCHED_MAX, Touches};
use crate::checkpoints::{Checkpoint, Checkpoints};
use crate::log::{RollupLog, RollupSchedule, Sealed};
use crate::names::CounterName;
use crate::namespace::CounterType;
use crate::read::accurate;
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A rollup that was brought forward and has not come is brought forward again after this time: the process that was to
/// request it may have died, and one that was under way may have sealed too early.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A counter, and the time to which it must be exact (Unix ms).
pub(super) type Required = (CounterName, u64);

/// A count, and the time to which it is exact (Unix ms).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exact {
    pub(super) count: i64,
    pub(super) to_ms: u64,
}

impl From<Refusal> for Result<Exact, Refusal> {
    fn from(refusal: Refusal) -> Result<Exact, Refusal> {
        Err(refusal)
    }
}

/// A rollup that was brought forward.
struct Hurried {
    at: Instant,
    min_ms: u64,
}

/// The checks of one namespace's counters.
pub(super) struct ExactChecks<S> {
    store: S,
    counter_type: CounterType,
    touches: Arc<Touches>,
    hurried: Mutex<HashMap<CounterName, Hurried>>,
}

impl<S: Checkpoints + RollupLog + RollupSchedule> ExactChecks<S> {
    pub(super) fn new(store: S, counter_type: CounterType, touches: Arc<Touches>) -> ExactChecks<S> {
        ExactChecks { store, counter_type, touches, hurried: Mutex::default() }
    }

    /// What each count is, and to what time it is exact. The log must accept no event before the required times. The
    /// counters may repeat.
    pub(super) async fn check(&self, required: &[Required]) -> Vec<Result<Exact, Refusal>> {
        let mut latest: HashMap<&CounterName, u64> = HashMap::new();
        for (counter, min_ms) in required {
            let latest_ms = latest.entry(counter).or_default();
            *latest_ms = (*latest_ms).max(*min_ms);
        }
        let all: Vec<Required> = latest.into_iter().map(|(counter, min_ms)| (counter.clone(), min_ms)).collect();
        match self.check_all(&all).await {
            Ok(found) => required.iter().map(|(counter, _)| Ok(found[counter])).collect(),
            Err(refusal) => required.iter().map(|_| Err(refusal.clone())).collect(),
        }
    }

    /// As [`check`](ExactChecks::check), for counters that differ.
    async fn check_all(&self, required: &[Required]) -> Result<HashMap<CounterName, Exact>, Refusal> {
        let mut found = HashMap::with_capacity(required.len());
        let behind = match self.counter_type {
            CounterType::Accurate => required.to_vec(),
            _ => self.read(required, &mut found).await?,
        };
        for some in behind.chunks(TOUCHED_MAX) {
            match self.counter_type {
                CounterType::Accurate => self.seal_and_count(some, &mut found).await?,
                _ => self.seal_and_hurry(some, &mut found).await?,
            }
        }
        Ok(found)
    }

    /// Reads the checkpoints, and returns the counters whose rollups are to be brought forward.
    async fn read(
        &self,
        required: &[Required],
        found: &mut HashMap<CounterName, Exact>,
    ) -> Result<Vec<Required>, Refusal> {
        let checkpoints = self.store.read(&names(required)).await?;
        let mut behind = Vec::new();
        let mut hurried = self.hurried();
        hurried.retain(|_, hurried| hurried.at.elapsed() < AGAIN_AFTER);
        for ((counter, min_ms), Checkpoint { count, exact_to_ms: to_ms, .. }) in required.iter().zip(checkpoints) {
            found.insert(counter.clone(), Exact { count, to_ms });
            if to_ms < *min_ms && hurried.get(counter).is_none_or(|hurried| hurried.min_ms < *min_ms) {
                behind.push((counter.clone(), *min_ms));
            }
        }
        Ok(behind)
    }

    /// Seals the log. A counter with something pending before its time falls due; the others are exact.
    async fn seal_and_hurry(
        &self,
        required: &[Required],
        found: &mut HashMap<CounterName, Exact>,
    ) -> Result<(), Refusal> {
        let names = names(required);
        let sealed = self.store.seal(&names).await?;
        // After the seal: what was settled meanwhile is in these.
        let checkpoints = self.store.read(&names).await?;
        let mut pending = Vec::new();
        for (((counter, min_ms), sealed), checkpoint) in required.iter().zip(&sealed).zip(&checkpoints) {
            let first_ms = first_pending(checkpoint, sealed);
            let to_ms = first_ms.unwrap_or(u64::MAX).min(sealed.sealed_to_ms).max(checkpoint.exact_to_ms);
            found.insert(counter.clone(), Exact { count: checkpoint.count, to_ms });
            if to_ms < *min_ms && first_ms.is_some_and(|first_ms| first_ms < *min_ms) {
                pending.push((counter.clone(), true));
                self.hurried().insert(counter.clone(), Hurried { at: Instant::now(), min_ms: *min_ms });
            }
        }
        if !pending.is_empty() && self.store.touch(&pending).await? {
            self.touches.hurried.notify_one();
        }
        Ok(())
    }

    /// Seals the log, and adds what is pending to the checkpoints: no rollup is needed.
    async fn seal_and_count(
        &self,
        required: &[Required],
        found: &mut HashMap<CounterName, Exact>,
    ) -> Result<(), Refusal> {
        let names = names(required);
        let sealed = self.store.seal(&names).await?;
        let counts = accurate(&self.store, &self.store, &names).await?;
        for ((counter, sealed), (count, checkpoint)) in names.into_iter().zip(sealed).zip(counts) {
            found.insert(counter, Exact { count, to_ms: sealed.sealed_to_ms.max(checkpoint.exact_to_ms) });
        }
        Ok(())
    }

    fn hurried(&self) -> MutexGuard<'_, HashMap<CounterName, Hurried>> {
        self.hurried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn names(required: &[Required]) -> Vec<CounterName> {
    required.iter().map(|(counter, _)| counter.clone()).collect()
}

/// When the first window begins (Unix ms) that is pending and not in the checkpoint.
fn first_pending(checkpoint: &Checkpoint, sealed: &Sealed) -> Option<u64> {
    let windows = sealed.pending.iter().flat_map(|(_, pending)| &pending.windows);
    windows.map(|window| window.begin_ms()).filter(|begin_ms| *begin_ms >= checkpoint.exact_to_ms).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::LeaseOrder;
    use crate::log::{Bounds, Change, Events, Labels, NewEvent, WINDOW_MS};
    use crate::names::Token;
    use crate::namespace::{NamespaceConfig, SHARDS};
    use crate::oracle::{Oracle, OracleNamespace};
    use crate::rollup::{Job, roll_up};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// 2026-11-20, 12:00 UTC.
    const NOON_MS: u64 = 1_795_176_000_000;

    /// A namespace in memory, on a clock that the test moves.
    struct World {
        oracle: Oracle,
        store: OracleNamespace,
        checks: ExactChecks<OracleNamespace>,
        clock_ms: Arc<AtomicU64>,
        config: NamespaceConfig,
    }

    impl World {
        fn new(counter_type: CounterType) -> World {
            let config = NamespaceConfig { counter_type, coalesce_ms: 3_600_000, ..NamespaceConfig::default() };
            let (oracle, clock_ms) = (Oracle::default(), Arc::new(AtomicU64::new(NOON_MS)));
            let store = oracle.open(config.clone(), 1, clock_ms.clone()).expect("a good configuration");
            let checks = ExactChecks::new(store.clone(), counter_type, Arc::default());
            World { oracle, store, checks, clock_ms, config }
        }

        fn now_ms(&self) -> u64 {
            self.clock_ms.load(Ordering::SeqCst)
        }

        fn pass(&self, ms: u64) {
            self.clock_ms.fetch_add(ms, Ordering::SeqCst);
        }

        /// The latest time to which a count can be exact now.
        fn sealable_ms(&self) -> u64 {
            (self.now_ms() - self.config.lag_ms()) / WINDOW_MS * WINDOW_MS
        }

        async fn append(&self, name: &str, change: Change, time_ms: u64) {
            let (token, bounds) = (Token::drawn(), Bounds::default());
            let labels = Labels::default();
            let event = NewEvent { counter: counter(name), token, time_ms: Some(time_ms), change, bounds, labels };
            // One that is too old does not count.
            let _ = self.store.append(&[event]).await;
        }

        async fn roll_up(&self, name: &str) {
            let lease = LeaseOrder { leased_at_ms: self.now_ms(), fencing_token: 0 };
            let job = Job { counter: counter(name), lease };
            roll_up(&self.store, &self.store, &[job]).await.remove(0).expect("a rollup");
        }

        async fn check(&self, name: &str, min_ms: u64) -> Exact {
            let checked = self.checks.check(&[(counter(name), min_ms)]).await.remove(0);
            checked.expect("an answer")
        }

        /// The counters that are due in any shard; they stay due.
        async fn due(&self) -> BTreeSet<CounterName> {
            let mut due = BTreeSet::new();
            for shard in 0..SHARDS {
                let found = self.store.due(shard, 100, 0).await.expect("an answer");
                due.extend(found.counters.into_iter().map(|(counter, _)| counter));
            }
            due
        }
    }

    fn counter(name: &str) -> CounterName {
        CounterName::parse(name).expect("a name")
    }

    #[tokio::test(start_paused = true)]
    async fn n19_only_a_counter_with_something_pending_before_the_time_is_rolled_up() {
        let world = World::new(CounterType::Eventual);
        world.append("before", Change::Add(3), NOON_MS).await;
        world.pass(4_000);
        world.append("after", Change::Add(5), NOON_MS + 4_000).await;
        world.pass(2_000);
        let min_ms = NOON_MS + 1;
        let sealable_ms = world.sealable_ms();
        assert!(sealable_ms >= min_ms);
        assert_eq!(world.check("never", min_ms).await, Exact { count: 0, to_ms: sealable_ms });
        assert_eq!(world.check("after", min_ms).await, Exact { count: 0, to_ms: sealable_ms });
        assert_eq!(world.due().await, BTreeSet::new());
        assert_eq!(world.check("before", min_ms).await.to_ms, NOON_MS, "its first window");
        assert_eq!(world.due().await, [counter("before")].into());
        world.roll_up("before").await;
        assert_eq!(world.check("before", min_ms).await, Exact { count: 3, to_ms: sealable_ms });
    }

    #[tokio::test(start_paused = true)]
    async fn n19_a_rollup_that_did_not_come_is_brought_forward_again_but_not_with_every_check() {
        let world = World::new(CounterType::Eventual);
        world.append("c", Change::Add(3), NOON_MS).await;
        world.pass(6_000);
        let hurried = || {
            let hurried = world.checks.hurried();
            let Hurried { at, min_ms } = &hurried[&counter("c")];
            (*at, *min_ms)
        };
        let (begin, min_ms) = (Instant::now(), NOON_MS + 1);
        world.check("c", min_ms).await;
        assert_eq!(hurried(), (begin, min_ms));
        tokio::time::advance(AGAIN_AFTER / 2).await;
        world.check("c", min_ms).await;
        assert_eq!(hurried(), (begin, min_ms), "not yet");
        tokio::time::advance(AGAIN_AFTER / 2).await;
        world.check("c", min_ms).await;
        assert_eq!(hurried(), (begin + AGAIN_AFTER, min_ms));
        // What the first rollup leaves out needs another one.
        world.check("c", min_ms + 1).await;
        assert_eq!(hurried(), (begin + AGAIN_AFTER, min_ms + 1));
        world.roll_up("c").await;
        world.check("c", min_ms).await;
        tokio::time::advance(AGAIN_AFTER).await;
        world.check("c", min_ms).await;
        assert!(world.checks.hurried().is_empty(), "nothing is kept of a counter that is exact");
    }

    /// Whatever a check has answered, the events say so, too, also after all that came later.
    #[tokio::test(start_paused = true)]
    async fn n19_every_exact_count_is_that_of_the_events_before_its_time() {
        for (seed, counter_type) in
            (0..40).flat_map(|seed| [(seed, CounterType::Eventual), (seed, CounterType::Accurate)])
        {
            let mut random = StdRng::seed_from_u64(seed);
            let (world, mut answers) = (World::new(counter_type), Vec::new());
            for _ in 0..150 {
                let name = ["a", "b", "c"][random.random_range(0..3)];
                let now_ms = world.now_ms();
                let time_ms = random.random_range(now_ms - 6_000..now_ms + 900);
                match random.random_range(0..10) {
                    0..4 => world.append(name, Change::Add(random.random_range(-9..10)), time_ms).await,
                    4 => world.append(name, Change::Clear, time_ms).await,
                    5 => world.roll_up(name).await,
                    6 => world.pass(random.random_range(0..3_000)),
                    _ => {
                        let min_ms = world.sealable_ms() - random.random_range(0..2_000);
                        let exact = world.check(name, min_ms).await;
                        answers.push((name, min_ms, exact));
                        if counter_type == CounterType::Accurate {
                            assert!(exact.to_ms >= min_ms);
                            assert_eq!(i128::from(exact.count), world.oracle.count(&counter(name), u64::MAX));
                        }
                    }
                }
            }
            if counter_type == CounterType::Eventual {
                let is_exact = |(_, min_ms, exact): &&(&str, u64, Exact)| exact.to_ms >= *min_ms;
                assert!(answers.iter().filter(is_exact).count() > 5, "seed {seed}: {answers:?}");
                for (name, _, Exact { count, to_ms }) in answers {
                    let expected = world.oracle.count(&counter(name), to_ms);
                    assert_eq!(i128::from(count), expected, "seed {seed}: {name} to {to_ms}");
                }
            }
        }
    }
}
