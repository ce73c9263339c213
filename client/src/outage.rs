//! Log lines about a server that is unavailable: one when it goes, few while it is unavailable, one when it is back.
//!
//! Clones of a client share its connection and this: a process with a thousand workers logs one line, not a thousand.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time between two lines about the same outage.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// What was logged, and when.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    away: Mutex<Option<Away>>,
    lost: Mutex<Option<Losses>>,
}

#[derive(Clone, Copy, Debug)]
struct Away {
    since: Instant,
    logged: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Losses {
    logged: Instant,
    /// Losses since then.
    unlogged: u64,
}

impl Outage {
    /// A stream broke. Returns whether to log it.
    pub(crate) fn begins(&self, now: Instant) -> bool {
        let mut away = locked(&self.away);
        let since = away.map_or(now, |away| away.since);
        let is_logged = away.is_none_or(|away| now.duration_since(away.logged) >= REPEAT_AFTER);
        if is_logged {
            *away = Some(Away { since, logged: now });
        }
        is_logged
    }

    /// Whether an outage has begun and not ended.
    pub(crate) fn is_on(&self) -> bool {
        locked(&self.away).is_some()
    }

    /// A stream that opened at this time stays open. Returns how long the server was unavailable, once. An outage that began
    /// later goes on.
    pub(crate) fn ends(&self, opened: Instant) -> Option<Duration> {
        let ended = locked(&self.away).take_if(|away| away.since <= opened);
        ended.map(|away| opened.duration_since(away.since))
    }

    /// A lease was lost. Returns the number of losses to log, this one and those that were not logged.
    pub(crate) fn lost(&self, now: Instant) -> Option<u64> {
        let mut lost = locked(&self.lost);
        if let Some(losses) = lost.as_mut().filter(|losses| now.duration_since(losses.logged) < REPEAT_AFTER) {
            losses.unlogged += 1;
            return None;
        }
        let count = lost.map_or(0, |losses| losses.unlogged) + 1;
        *lost = Some(Losses { logged: now, unlogged: 0 });
        Some(count)
    }
}

fn locked<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_a_line_then_one_a_minute() {
        let (outage, start) = (Outage::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        assert_eq!(outage.ends(start), None);
        assert!(!outage.is_on());
        assert_eq!([0, 1, 59, 60, 61, 120].map(|s| outage.begins(at(s))), [true, false, false, true, false, true]);
        assert!(outage.is_on());
        assert_eq!(outage.ends(start - Duration::from_secs(1)), None, "a stream from before the outage");
        assert_eq!(outage.ends(at(130)), Some(Duration::from_secs(130)));
        assert_eq!(outage.ends(at(130)), None);
        assert!(outage.begins(at(131)), "the next outage");
    }

    #[test]
    fn lost_leases_are_counted_between_lines() {
        let (outage, start) = (Outage::default(), Instant::now());
        let at = |s| start + Duration::from_secs(s);
        assert_eq!([0, 1, 2, 60, 61].map(|s| outage.lost(at(s))), [Some(1), None, None, Some(3), None]);
    }
}
