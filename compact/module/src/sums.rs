//! Totals over all sets, for `INFO`. There may be a hundred thousand sets, so one call sums so many tables at most, and the background
//! goes on.

use crate::value;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tallystone_compact::Totals;

/// Tables that one call visits before it leaves the rest to the background, and that a piece of background work visits. A set is visited
/// as a whole.
const TABLES: usize = 4_096;
/// The cost of a set in addition to its tables, in tables.
const SET_COST: usize = 2;

/// Totals of the sets with the numbers before `next`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sums {
    next: u64,
    /// Sets in the totals.
    pub(crate) sets: u64,
    pub(crate) all: Totals,
}

/// What was summed. Only the main thread takes the lock.
struct Rounds {
    /// A round that the background goes on with.
    running: Option<Sums>,
    /// The last one over all sets.
    complete: Option<Sums>,
}

static ROUNDS: Mutex<Rounds> = Mutex::new(Rounds { running: None, complete: None });
/// Whether a round runs. Each piece of background work reads it.
static IS_RUNNING: AtomicBool = AtomicBool::new(false);

/// The totals to show: those of now if one call can visit all tables, else those of the last complete round; without one, what the first
/// round has summed so far. Second: whether a round has begun, which the background must go on with.
pub(crate) fn totals(is_crash: bool) -> (Sums, bool) {
    let mut now = Sums::default();
    let is_complete = now.go_on();
    // A thread that reports its crash may have been in the midst of a round.
    let Some(mut rounds) = ROUNDS.try_lock().ok().filter(|_| !is_crash) else { return (now, false) };
    let begins = !is_complete && rounds.running.is_none();
    if is_complete {
        (rounds.running, rounds.complete) = (None, Some(now));
    } else if begins {
        rounds.running = Some(now);
    }
    IS_RUNNING.store(rounds.running.is_some(), Relaxed);
    (rounds.complete.or(rounds.running).unwrap_or(now), begins)
}

/// A piece of the round that runs. Returns whether there is more of it.
pub(crate) fn go_on() -> bool {
    if !IS_RUNNING.load(Relaxed) {
        return false;
    }
    let Ok(mut rounds) = ROUNDS.try_lock() else { return false };
    if rounds.running.as_mut().is_some_and(|running| running.go_on()) {
        rounds.complete = rounds.running.take();
    }
    IS_RUNNING.store(rounds.running.is_some(), Relaxed);
    rounds.running.is_some()
}

impl Sums {
    /// Adds some of the sets that follow. Returns whether there are no more.
    fn go_on(&mut self) -> bool {
        let mut visited = 0;
        while visited < TABLES {
            let Some((number, set)) = value::from(self.next) else { return true };
            self.next = number + 1;
            visited += SET_COST;
            // In the midst of a command this is a report of a crash, which does without the set.
            let Some(shared) = set else { continue };
            let Some(mut held) = shared.try_lock() else { continue };
            visited += held.set().table_count();
            self.sets += 1;
            self.all += held.set().totals();
        }
        false
    }
}
