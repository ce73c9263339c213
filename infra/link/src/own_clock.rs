//! The clocks of this process: the machine's wall clock, which may be set, and a steady one.

use std::cell::Cell;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// For this time a step of the wall clock beyond the bound may be an error.
const ACCEPTED_AFTER_MS: u64 = 10_000;

/// The clocks of a simulated machine.
#[derive(Clone, Copy, Debug)]
pub struct VirtualClocks {
    /// What [`wall_ms`] returns: Unix ms.
    pub wall_ms: u64,
    /// The time since some moment, in ms. It is never set.
    pub steady_ms: u64,
}

thread_local! {
    static VIRTUAL: Cell<Option<VirtualClocks>> = const { Cell::new(None) };
}

/// Sets the clocks of this thread; `None`: the machine's. A simulator runs all of its servers on one thread, each with a wall clock
/// that may be wrong.
pub fn set_virtual_clocks(clocks: Option<VirtualClocks>) {
    VIRTUAL.set(clocks);
}

/// This machine's time in Unix ms.
pub fn wall_ms() -> u64 {
    let now_ms = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    VIRTUAL.get().map_or_else(now_ms, |clocks| clocks.wall_ms)
}

/// A time that no correction of this machine's clock changes: ms since some moment in this process's life.
pub(crate) fn steady_ms() -> u64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    VIRTUAL.get().map_or_else(|| BEGAN.elapsed().as_millis() as u64, |clocks| clocks.steady_ms)
}

/// This machine's wall clock, as far as its steps are accepted. Redis may be on the same machine: then a comparison of the two finds
/// no step.
#[derive(Debug)]
pub(crate) struct OwnClock {
    /// By how much the wall clock is ahead of the steady one, as accepted, in ms.
    ahead_ms: i64,
    /// The same before the last step that was accepted.
    former_ms: Option<i64>,
    step: Option<ClockStep>,
}

/// A step that is not accepted yet.
#[derive(Clone, Copy, Debug)]
struct ClockStep {
    found_at_ms: u64,
    /// Before it the time differed from that of Redis: it corrects the clock.
    corrects: bool,
}

impl OwnClock {
    /// The wall clock is right so far.
    pub(crate) fn new() -> OwnClock {
        OwnClock { ahead_ms: ahead_of(steady_ms()), former_ms: None, step: None }
    }

    /// The time in Unix ms. `bound_ms`: what the clock may be set by at once; 0: anything. `differs`: Redis's time differs from what this
    /// has returned last.
    pub(crate) fn now_ms(&mut self, bound_ms: u32, differs: bool) -> u64 {
        let steady_ms = steady_ms();
        let ahead_ms = ahead_of(steady_ms);
        let is_near = |other_ms: i64| (ahead_ms - other_ms).unsigned_abs() <= u64::from(bound_ms);
        if bound_ms == 0 || is_near(self.ahead_ms) {
            (self.ahead_ms, self.step) = (ahead_ms, None);
        } else {
            let step = *self.step.get_or_insert(ClockStep { found_at_ms: steady_ms, corrects: differs });
            let lasts = steady_ms.saturating_sub(step.found_at_ms) >= ACCEPTED_AFTER_MS;
            if lasts || step.corrects || self.former_ms.is_some_and(is_near) {
                *self = OwnClock { ahead_ms, former_ms: Some(self.ahead_ms), step: None };
            }
        }
        steady_ms.saturating_add_signed(self.ahead_ms)
    }
}

/// By how much the wall clock is ahead of a time of the steady one, in ms.
fn ahead_of(steady_ms: u64) -> i64 {
    wall_ms() as i64 - steady_ms as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL_MS: u64 = 1_780_000_000_000;
    const BOUND_MS: u32 = 10_000;

    /// Sets the clocks, and returns by how much the accepted time is ahead of the right one.
    fn at(own: &mut Option<OwnClock>, steady_ms: u64, ahead_ms: i64, differs: bool) -> i64 {
        let right_ms = WALL_MS + steady_ms;
        set_virtual_clocks(Some(VirtualClocks { wall_ms: right_ms.saturating_add_signed(ahead_ms), steady_ms }));
        let now_ms = own.get_or_insert_with(OwnClock::new).now_ms(BOUND_MS, differs);
        set_virtual_clocks(None);
        now_ms as i64 - right_ms as i64
    }

    #[test]
    fn x6_a_step_is_accepted_after_some_seconds() {
        let mut own = None;
        for (steady_ms, ahead_ms, accepted_ms) in [
            (1_000, 0, 0),
            // It is set by no more than the bound.
            (2_000, 9_000, 9_000),
            (2_500, -1_000, -1_000),
            // For half a second it is wrong.
            (3_000, 600_000, -1_000),
            (3_499, 600_000, -1_000),
            (3_500, -1_000, -1_000),
            // It stays so.
            (4_000, -600_000, -1_000),
            (13_999, -600_000, -1_000),
            (14_000, -600_000, -600_000),
            (14_001, -600_001, -600_001),
            // It is what it was before.
            (20_000, -1_500, -1_500),
        ] {
            assert_eq!(at(&mut own, steady_ms, ahead_ms, false), accepted_ms, "{steady_ms} {ahead_ms}");
        }
    }

    #[test]
    fn x6_a_clock_that_differs_from_that_of_redis_is_corrected_at_once() {
        let mut own = None;
        assert_eq!(at(&mut own, 1_000, 600_000, false), 600_000, "it was wrong at the start");
        assert_eq!(at(&mut own, 2_000, 0, true), 0);
        assert_eq!(at(&mut own, 3_000, 50_000, false), 0);
        assert_eq!(at(&mut own, 3_500, 50_000, true), 0, "it began to differ with the step");
    }
}
