//! What is known of one counter, and what a read makes of it.

use super::options::LocalOptions;
use crate::counter::{Counted, CounterType};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Pushes of one counter that are remembered until a pull has them; of a counter that is not read, fewer.
const PUSHED_MAX: usize = 64;
const PUSHED_UNREAD_MAX: usize = 8;

/// A value of a counter (L1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// The last pulled count, plus what this folder has added since. Only this folder's adds if the counter was never pulled.
    pub value: i64,
    /// By how much the value may differ from the count of all adds that have happened; `None`: unknown, because the counter was never
    /// pulled, no rollup of it has run, the rollups of an EVENTUAL counter are not beyond what this folder pushed before it was
    /// opened, or what this folder pushed before it was opened may still be in a topic. Clears and deletions are not part of it.
    pub error_bound: Option<u64>,
    /// Adds of others that are older than this are in the value, in ms; `None`: never pulled, or not rolled up. The error bound is this time multiplied by
    /// [`others_per_s_max`](LocalOptions::others_per_s_max), plus what is uncertain of this folder's adds.
    pub age_ms: Option<u64>,
    /// When the last pull began; `None`: never.
    pub pulled_at: Option<SystemTime>,
}

/// A counter of the folder.
pub(super) struct Slot {
    pub(super) index: u32,
    pub(super) namespace: String,
    pub(super) counter: String,
    /// A read happened since the last pull.
    pub(super) is_read: AtomicBool,
    state: Mutex<State>,
}

pub(super) struct State {
    pulled: Option<Pulled>,
    /// Pushes that the pulled count lacks, in the order of their times.
    pushed: Vec<Pushed>,
    /// How much of the first of them has another time than it had: it was joined with the next one.
    blurred: u64,
    /// How much of them the pulled count may already include: the program does not know when a push through a topic has counted.
    uncertain: u64,
    /// The latest time that an add may have that an earlier process pushed. A rollup up to this time may lack pushes of that process,
    /// which are not in `pushed`. A count that was pulled before this time may lack those of them that went through a topic.
    pushed_before_ms: u64,
    /// The service has expired or deleted the counter.
    pub(super) is_gone: bool,
    /// When it was last read before a pull, and when a handle or an add was last seen.
    pub(super) read_at: Instant,
    pub(super) used_at: Instant,
    /// The total when `used_at` was set.
    pub(super) seen_total: i64,
}

struct Pushed {
    /// No event of it is earlier.
    time_ms: u64,
    /// `None`: the service has counted it, at `time_ms`.
    due: Option<Due>,
    delta: i64,
    /// The sum of the absolute values of its deltas.
    size: u64,
}

/// When a push through a topic has certainly counted, and the latest time that its event can have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    at: Instant,
    pub(super) time_ms: u64,
}

impl Due {
    /// Of a push that is in the topic now. Its event may get the time of another machine, whose clock may be ahead.
    pub(super) fn after(delay: Duration, options: &LocalOptions) -> Due {
        let time_ms = unix_ms(SystemTime::now()).saturating_add(ms(delay)).saturating_add(options.clock_error_ms);
        Due { at: Instant::now() + delay, time_ms }
    }

    fn later(self, other: Due) -> Due {
        Due { at: self.at.max(other.at), time_ms: self.time_ms.max(other.time_ms) }
    }
}

/// A count, and how it was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pulled {
    pub(super) counted: Counted,
    /// When the call began.
    pub(super) at: Instant,
    pub(super) at_time: SystemTime,
    /// A push of which it is unknown whether the count has it.
    pub(super) in_flight: u64,
}

impl Slot {
    /// `pushed_ms`: the latest time of an add that an earlier process has pushed, Unix ms.
    pub(super) fn new(index: u32, namespace: String, counter: String, total: i64, pushed_ms: u64) -> Slot {
        let now = Instant::now();
        let state = State {
            pulled: None,
            pushed: Vec::new(),
            blurred: 0,
            uncertain: 0,
            pushed_before_ms: pushed_ms,
            is_gone: false,
            read_at: now,
            used_at: now,
            seen_total: total,
        };
        Slot { index, namespace, counter, is_read: AtomicBool::new(true), state: Mutex::new(state) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next pull includes the counter.
    pub(super) fn mark_read(&self) {
        // The line of a counter that is often read stays in the caches of all its readers.
        if !self.is_read.load(Ordering::Relaxed) {
            self.is_read.store(true, Ordering::Relaxed);
        }
    }
}

impl State {
    /// An add is counted, or is in the topic: then `due` says when it counts. The caller has moved the base under the same lock.
    pub(super) fn count(&mut self, time_ms: u64, delta: i64, counter_type: Option<CounterType>, due: Option<Due>) {
        let is_accurate = counter_type == Some(CounterType::Accurate) && due.is_none();
        match self.pushed.last_mut() {
            // The next pull has everything that was acknowledged before it, whatever its time.
            Some(last) if is_accurate && last.due.is_none() => {
                last.delta = last.delta.wrapping_add(delta);
                last.size = last.size.saturating_add(delta.unsigned_abs());
            }
            _ => self.pushed.push(Pushed { time_ms, due, delta, size: delta.unsigned_abs() }),
        }
        if is_accurate && self.pulled.is_none() {
            self.pushed.retain(|push| push.due.is_some());
        }
        let max = if self.pulled.is_some() { PUSHED_MAX } else { PUSHED_UNREAD_MAX };
        while self.pushed.len() > max {
            let first = self.pushed.remove(0);
            let second = &mut self.pushed[0];
            // If the clock was set back, the second one is the earlier one.
            self.blurred = if first.time_ms <= second.time_ms { first.size } else { first.size.max(second.size) };
            second.time_ms = second.time_ms.max(first.time_ms);
            second.due = match (first.due, second.due) {
                (Some(first), Some(second)) => Some(second.later(first)),
                (first, second) => second.or(first),
            };
            second.delta = second.delta.wrapping_add(first.delta);
            second.size = second.size.saturating_add(first.size);
        }
    }

    /// Takes over a pulled count. The caller's pushes that were acknowledged before the call are recorded.
    pub(super) fn pull(&mut self, pulled: Pulled) {
        let Counted { count, exact_to_ms, counter_type } = pulled.counted;
        let before = self.pushed.len();
        // An earlier pull returned a rollup, and this one returns what a pull returns for a counter that was never written: the service has
        // expired or deleted the counter. An ACCURATE counter may have had adds since whose sum is 0. It then counts as gone too early,
        // which changes no count.
        let is_empty = (count, exact_to_ms) == (0, 0);
        let had_rollup = self.pulled.filter(|last| last.counted.exact_to_ms > 0);
        self.is_gone = is_empty && (self.is_gone || had_rollup.is_some());
        match counter_type {
            CounterType::Accurate | CounterType::BestEffort => {
                self.pushed.retain(|push| push.due.is_some_and(|due| due.at > pulled.at));
                self.uncertain = sizes(self.pushed.iter());
            }
            CounterType::Eventual => {
                // What was pushed since the last pull may have come after the deletion.
                let from_ms = had_rollup.filter(|_| is_empty).map_or(exact_to_ms, |last| unix_ms(last.at_time));
                self.pushed.retain(|push| push.due.map_or(push.time_ms, |due| due.time_ms) >= from_ms);
                let may_have = |push: &&Pushed| push.due.is_some() && push.time_ms < from_ms;
                self.uncertain = sizes(self.pushed.iter().filter(may_have));
            }
        }
        if self.pushed.len() < before {
            self.blurred = 0;
        }
        self.pulled = Some(pulled);
    }

    /// The service was unavailable until now, so pushes in a topic may count later than they were due. Returns whether there are any.
    pub(super) fn postpone(&mut self, to: Due) -> bool {
        let mut is_waiting = false;
        for due in self.pushed.iter_mut().filter_map(|push| push.due.as_mut()) {
            *due = due.later(to);
            is_waiting = true;
        }
        // Of the pushes of an earlier process only the time is known.
        if self.lacks_own() {
            self.pushed_before_ms = self.pushed_before_ms.max(to.time_ms);
            is_waiting = true;
        }
        is_waiting
    }

    /// Whether the pulled count may lack a push of before the folder was opened.
    fn lacks_own(&self) -> bool {
        let exact_to_ms = self.pulled.map_or(0, |pulled| match pulled.counted.counter_type {
            CounterType::Eventual => pulled.counted.exact_to_ms,
            // A count that is read then has the events of that moment, too.
            CounterType::Accurate | CounterType::BestEffort => unix_ms(pulled.at_time).saturating_add(1),
        });
        self.pushed_before_ms > 0 && exact_to_ms <= self.pushed_before_ms
    }

    /// The value, with what is not pushed yet.
    pub(super) fn reading(&self, unpushed: i64, options: &LocalOptions) -> Reading {
        let pushed = self.pushed.iter().fold(unpushed, |sum, push| sum.saturating_add(push.delta));
        let Some(Pulled { counted, at, at_time, in_flight }) = self.pulled else {
            return Reading { value: pushed, error_bound: None, age_ms: None, pulled_at: None };
        };
        // The one clock does not advance while the machine sleeps, the other one can be set back.
        let since_pull = at.elapsed().max(at_time.elapsed().unwrap_or_default());
        let age_ms = lag_ms(&counted, at_time, options).map(|lag_ms| lag_ms.saturating_add(ms(since_pull)));
        let others = age_ms.filter(|_| !self.lacks_own());
        let others = others.map(|age_ms| u128::from(age_ms) * u128::from(options.others_per_s_max));
        let others = others.map(|others| u64::try_from(others.div_ceil(1_000)).unwrap_or(u64::MAX));
        let bound = others.map(|others| others.saturating_add(in_flight).saturating_add(self.blurred));
        let bound = bound.map(|bound| bound.saturating_add(self.uncertain));
        let value = counted.count.saturating_add(pushed);
        Reading { value, error_bound: bound, age_ms, pulled_at: Some(at_time) }
    }
}

/// How old an add of another program may have been when the pull began, if the count lacks it; `None`: any age.
fn lag_ms(counted: &Counted, pulled_at: SystemTime, options: &LocalOptions) -> Option<u64> {
    let rollup_lag_ms = match counted.counter_type {
        CounterType::Accurate | CounterType::BestEffort => 0,
        CounterType::Eventual if counted.exact_to_ms == 0 => return None,
        CounterType::Eventual => {
            unix_ms(pulled_at).saturating_add(options.clock_error_ms).saturating_sub(counted.exact_to_ms)
        }
    };
    Some(options.others_delay_ms.saturating_add(rollup_lag_ms))
}

fn sizes<'a>(pushes: impl Iterator<Item = &'a Pushed>) -> u64 {
    pushes.fold(0, |sum, push| sum.saturating_add(push.size))
}

fn ms(duration: Duration) -> u64 {
    // Rounded up: a bound may be too large, and not too small.
    u64::try_from(duration.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Unix ms by this machine's clock.
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    u64::try_from(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pull of a count that began at this time, and its age.
    fn pulled(count: i64, exact_to_ms: u64, counter_type: CounterType, ago_ms: u64, at_ms: u64) -> Pulled {
        let at = Instant::now().checked_sub(Duration::from_millis(ago_ms)).expect("the machine runs for longer");
        let at_time = UNIX_EPOCH + Duration::from_millis(at_ms);
        Pulled { counted: Counted { count, exact_to_ms, counter_type }, at, at_time, in_flight: 0 }
    }

    fn state() -> State {
        Slot::new(0, "n".to_owned(), "c".to_owned(), 0, 0).state.into_inner().expect("no panic")
    }

    #[test]
    fn l1_the_bound_is_rate_times_age_with_the_rollup_lag_for_eventual() {
        let options = LocalOptions { others_per_s_max: 100, others_delay_ms: 500, ..LocalOptions::default() };
        let mut accurate = state();
        assert_eq!(
            accurate.reading(7, &options),
            Reading { value: 7, error_bound: None, age_ms: None, pulled_at: None }
        );
        let now_ms = unix_ms(SystemTime::now());
        accurate.pull(pulled(40, 0, CounterType::Accurate, 2_000, now_ms - 2_000));
        let reading = accurate.reading(7, &options);
        assert_eq!((reading.value, reading.pulled_at), (47, Some(UNIX_EPOCH + Duration::from_millis(now_ms - 2_000))));
        let (age_ms, bound) = (reading.age_ms.expect("pulled"), reading.error_bound.expect("pulled"));
        assert!((2_500..3_500).contains(&age_ms) && bound == age_ms.div_ceil(10), "{reading:?}");

        let mut eventual = state();
        eventual.pull(pulled(40, 0, CounterType::Eventual, 0, now_ms));
        assert_eq!(eventual.reading(0, &options).error_bound, None, "no rollup has run");
        eventual.pull(pulled(40, now_ms - 7_000, CounterType::Eventual, 0, now_ms));
        let age_ms = eventual.reading(0, &options).age_ms.expect("rolled up");
        assert!((7_600..8_500).contains(&age_ms), "{age_ms}: 7 s of lag, 0.5 s of delay, 0.1 s of clock error");
    }

    #[test]
    fn l1_a_machine_that_has_slept_is_not_taken_for_a_moment() {
        let options = LocalOptions { others_per_s_max: 100, ..LocalOptions::default() };
        let now_ms = unix_ms(SystemTime::now());
        // The monotonic clock did not advance for an hour, or the clock was set back by an hour.
        for (ago_ms, at_ms) in [(0, now_ms - 3_600_000), (5_000, now_ms + 3_600_000)] {
            let mut state = state();
            state.pull(pulled(40, 0, CounterType::Accurate, ago_ms, at_ms));
            let age_ms = state.reading(0, &options).age_ms.expect("pulled");
            assert!(age_ms >= 2_000 + ago_ms.max(now_ms.saturating_sub(at_ms)), "{age_ms}");
        }
    }

    #[test]
    fn l1_pushes_of_a_clock_that_was_set_back_stay_within_the_bound() {
        let options = LocalOptions::default();
        let mut eventual = state();
        eventual.pull(pulled(0, 1, CounterType::Eventual, 0, 1));
        for number in 0..PUSHED_MAX as u64 + 2 {
            eventual.count(9_000 - number, 10, Some(CounterType::Eventual), None);
        }
        let all = 10 * (PUSHED_MAX as i64 + 2);
        // A rollup that has all of them except the first three.
        eventual.pull(pulled(all - 30, 8_998, CounterType::Eventual, 0, 1_500));
        let reading = eventual.reading(0, &options);
        let error = reading.value.abs_diff(all);
        assert!(error <= reading.error_bound.expect("rolled up"), "{error} of {reading:?}");
    }

    #[test]
    fn l1_own_pushes_are_in_the_value_until_a_pull_has_them() {
        let options = LocalOptions::default();
        let value = |state: &State| state.reading(0, &options).value;
        let mut eventual = state();
        for time_ms in [1_000, 2_000, 3_000] {
            eventual.count(time_ms, 10, Some(CounterType::Eventual), None);
        }
        eventual.pull(pulled(100, 2_000, CounterType::Eventual, 0, 3_500));
        assert_eq!(value(&eventual), 120, "the event of 2,000 is not before 2,000");
        eventual.pull(pulled(110, 3_000, CounterType::Eventual, 0, 4_000));
        assert_eq!(value(&eventual), 120);
        eventual.pull(pulled(120, 3_001, CounterType::Eventual, 0, 4_500));
        assert_eq!(value(&eventual), 120);

        let mut accurate = state();
        accurate.count(1_000, 10, Some(CounterType::Accurate), None);
        assert_eq!(value(&accurate), 0, "the first pull will have it");
        accurate.pull(pulled(10, 0, CounterType::Accurate, 0, 1_500));
        accurate.count(2_000, 5, Some(CounterType::Accurate), None);
        accurate.count(2_500, 5, Some(CounterType::Accurate), None);
        assert_eq!(value(&accurate), 20);
        accurate.pull(pulled(20, 0, CounterType::Accurate, 0, 3_000));
        assert_eq!(value(&accurate), 20);
    }

    #[test]
    fn l1_a_push_in_a_topic_is_uncertain_until_it_is_due_and_a_failed_pull_postpones_it() {
        let options = LocalOptions::default();
        let hour = Duration::from_secs(3_600);
        let (now, now_ms) = (Instant::now(), unix_ms(SystemTime::now()));
        let due = |after: Duration| Due { at: now + after, time_ms: now_ms + ms(after) };
        let read = |state: &State| {
            let reading = state.reading(0, &options);
            (reading.value, reading.error_bound)
        };
        let mut accurate = state();
        accurate.count(now_ms, 10, Some(CounterType::Accurate), Some(due(Duration::ZERO)));
        accurate.count(now_ms, 5, Some(CounterType::Accurate), Some(due(hour)));
        accurate.pull(pulled(10, 0, CounterType::Accurate, 0, now_ms));
        assert_eq!(read(&accurate), (15, Some(5)), "the first one has counted");
        assert!(accurate.postpone(due(2 * hour)) && accurate.pushed[0].due.expect("it has one").at == now + 2 * hour);
        let mut eventual = state();
        for (time_ms, after) in [(now_ms - 500, Duration::ZERO), (now_ms, hour), (now_ms + 9_000_000, 3 * hour)] {
            eventual.count(time_ms, 10, Some(CounterType::Eventual), Some(due(after)));
        }
        eventual.pull(pulled(10, now_ms + 1_000, CounterType::Eventual, 0, now_ms + 1_000));
        assert_eq!(read(&eventual), (30, Some(10)), "counted, uncertain, and certainly later");
        eventual.pull(pulled(0, now_ms - 600, CounterType::Eventual, 0, now_ms));
        assert_eq!(read(&eventual), (20, Some(0)), "no event is so early");
        // Of an earlier process only the time is known.
        let mut later =
            Slot::new(0, "n".to_owned(), "c".to_owned(), 0, now_ms - 1).state.into_inner().expect("no panic");
        later.pull(pulled(10, 0, CounterType::Accurate, 0, now_ms));
        assert_eq!(read(&later), (10, Some(0)));
        assert!(!later.postpone(due(hour)), "it has counted");
        let mut later =
            Slot::new(0, "n".to_owned(), "c".to_owned(), 0, now_ms - 1).state.into_inner().expect("no panic");
        assert!(later.postpone(due(hour)));
        later.pull(pulled(0, 0, CounterType::Accurate, 0, now_ms));
        assert_eq!(read(&later), (0, None));
    }

    #[test]
    fn l1_more_pushes_than_are_remembered_widen_the_bound() {
        let options = LocalOptions::default();
        let mut eventual = state();
        eventual.pull(pulled(0, 1, CounterType::Eventual, 0, 1));
        let count = PUSHED_MAX as u64 + 3;
        for number in 0..count {
            eventual.count(1_000 + number, 10, Some(CounterType::Eventual), None);
        }
        let reading = eventual.reading(0, &options);
        assert_eq!((reading.value, reading.error_bound), ((count * 10) as i64, Some(30)));
        // Two of the events are in the count, and still in the value: within the bound.
        eventual.pull(pulled(20, 1_002, CounterType::Eventual, 0, 1_500));
        let reading = eventual.reading(0, &options);
        let error = reading.value.abs_diff((count * 10) as i64);
        assert!(error <= reading.error_bound.expect("rolled up"), "{error} of {reading:?}");
        eventual.pull(pulled((count * 10) as i64, 2_000, CounterType::Eventual, 0, 2_500));
        assert_eq!(eventual.reading(0, &options).error_bound, Some(0));
    }

    #[test]
    fn l3_an_accurate_counter_is_gone_if_its_rollup_is_and_nothing_was_added_since() {
        let mut accurate = state();
        accurate.pull(pulled(0, 0, CounterType::Accurate, 0, 500));
        assert!(!accurate.is_gone, "no rollup has run");
        accurate.pull(pulled(100, 1_000, CounterType::Accurate, 0, 2_000));
        accurate.pull(pulled(0, 1_500, CounterType::Accurate, 0, 2_500));
        assert!(!accurate.is_gone, "it was cleared");
        accurate.pull(pulled(7, 0, CounterType::Accurate, 0, 3_000));
        assert!(!accurate.is_gone, "it was deleted, and has adds that no rollup has seen");
        accurate.pull(pulled(7, 2_500, CounterType::Accurate, 0, 3_500));
        for _ in 0..2 {
            accurate.pull(pulled(0, 0, CounterType::Accurate, 0, 4_000));
            assert!(accurate.is_gone);
        }
        accurate.pull(pulled(8, 0, CounterType::Accurate, 0, 5_000));
        assert!(!accurate.is_gone, "it is there again");
        accurate.pull(pulled(0, 0, CounterType::BestEffort, 0, 6_000));
        accurate.pull(pulled(0, 0, CounterType::BestEffort, 0, 6_500));
        assert!(!accurate.is_gone, "a counter of this type has no rollups");
    }

    #[test]
    fn l3_a_counter_that_is_gone_at_the_service_is_gone_here() {
        let options = LocalOptions::default();
        let mut eventual = state();
        eventual.pull(pulled(0, 0, CounterType::Eventual, 0, 500));
        assert!(!eventual.is_gone, "no rollup has run");
        eventual.pull(pulled(100, 1_000, CounterType::Eventual, 0, 2_000));
        eventual.count(1_500, 7, Some(CounterType::Eventual), None);
        eventual.count(2_500, 8, Some(CounterType::Eventual), None);
        eventual.pull(pulled(0, 0, CounterType::Eventual, 0, 3_000));
        assert!(eventual.is_gone);
        assert_eq!(eventual.reading(0, &options).value, 8, "it may have come after the deletion");
        eventual.pull(pulled(8, 4_000, CounterType::Eventual, 0, 5_000));
        assert!(!eventual.is_gone);
        assert_eq!(eventual.reading(0, &options).value, 8);
    }
}
