//! One shard of the log: its events, what is pending of each counter, and which counters are dirty.

use crate::log::{Change, Closed, Event, Labels, Pending, WINDOW_MS, Window};
use crate::names::{CounterName, Token};
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use tallystone_lua::counter::{ACCEPT_MS_MAX, HOLD_GROWTH, HOLD_MAX_MS};

pub(super) struct Shard {
    revision: u64,
    /// The latest time that a tick has shown: no event that happens when it is counted happens before.
    pub(super) shown_ms: u64,
    /// No event before this time is taken: a rollup may have summed what was there.
    pub(super) sealed_to_ms: u64,
    /// No event before this time is taken: a caller has been refused with [`Refusal::TooOld`] for the event before it.
    pub(super) refused_to_ms: u64,
    /// Events before this time are dropped.
    pub(super) pruned_to_ms: u64,
    pub(super) events: BTreeMap<(CounterName, u64, Token), (Change, Labels)>,
    pub(super) pending: BTreeMap<CounterName, PendingCounter>,
    pub(super) dirty: BTreeMap<CounterName, DirtyMark>,
}

/// The mark of a dirty counter. Marks are ordered as their counters fall due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirtyMark {
    /// The counter falls due `due_after_ms` later. At first this is the end of its earliest window; a hold, a touch and
    /// circulation move it.
    pub(super) since_ms: i64,
    /// How often `due` has returned it since its last rollup; at most [`DirtyMark::RETURNED_MAX`].
    pub(super) returned: u32,
}

impl DirtyMark {
    pub(super) const RETURNED_MAX: u32 = 15;

    /// The mark of a counter that `due` has not returned.
    pub(super) fn since(since_ms: i64) -> DirtyMark {
        DirtyMark { since_ms, returned: 0 }
    }

    /// The mark after `due` has returned the counter at this time.
    pub(super) fn held(self, now_ms: u64, hold_ms: u64, due_after_ms: i64) -> DirtyMark {
        let longer_ms = hold_ms.saturating_mul(HOLD_GROWTH.saturating_pow(self.returned));
        let held_to_ms = now_ms + hold_ms.max(longer_ms.min(HOLD_MAX_MS));
        let returned = (self.returned + 1).min(DirtyMark::RETURNED_MAX);
        DirtyMark { since_ms: held_to_ms as i64 - due_after_ms, returned }
    }
}

/// What no rollup has settled of a counter.
#[derive(Default)]
pub(super) struct PendingCounter {
    pub(super) last_write_ms: u64,
    pub(super) closed: Closed,
    /// The time of the rollup that decided over `closed`.
    pub(super) closed_to_ms: u64,
    pub(super) windows: BTreeMap<u64, Sums>,
}

/// The sums of one window.
#[derive(Default)]
pub(super) struct Sums {
    /// Of the adds that no clear of the window has removed when either came.
    sum: i128,
    /// The sum of the absolute values of all adds.
    size: u128,
    /// The first and the last of the adds in `sum`.
    adds_ms: Option<(u64, u64)>,
    cleared_ms: Option<u64>,
}

impl Shard {
    /// A new shard: no event can be older than the longest accept limit, so retention begins there.
    pub(super) fn new(now_ms: u64) -> Shard {
        Shard {
            revision: 0,
            shown_ms: 0,
            sealed_to_ms: 0,
            refused_to_ms: 0,
            pruned_to_ms: now_ms.saturating_sub(ACCEPT_MS_MAX),
            events: BTreeMap::new(),
            pending: BTreeMap::new(),
            dirty: BTreeMap::new(),
        }
    }

    pub(super) fn follow(&mut self, revision: u64) -> Result<(), Refusal> {
        if self.revision > revision {
            return Err(Refusal::Stale);
        }
        self.revision = revision;
        Ok(())
    }

    pub(super) fn check_revision(&self, revision: u64) -> Result<(), Refusal> {
        if self.revision == revision { Ok(()) } else { Err(Refusal::Stale) }
    }

    /// The time of an event that happens now: behind every fence, also after the store's clock was set back.
    pub(super) fn stamp_ms(&self, now_ms: u64) -> u64 {
        now_ms.max(self.shown_ms).max(self.sealed_to_ms).max(self.refused_to_ms)
    }

    pub(super) fn events_of(&self, counter: &CounterName) -> impl Iterator<Item = Event> {
        let of_counter = self.events.iter().filter(move |((name, ..), _)| name == counter);
        of_counter.map(|((_, time_ms, token), (change, labels))| Event {
            time_ms: *time_ms,
            token: token.clone(),
            change: *change,
            labels: labels.clone(),
        })
    }

    pub(super) fn pending_of(&self, counter: &CounterName) -> Pending {
        self.pending.get(counter).map(PendingCounter::shown).unwrap_or_default()
    }

    /// Forgets a counter of which nothing is pending and nothing is closed.
    pub(super) fn forget_if_idle(&mut self, counter: &CounterName) {
        if self.pending.get(counter).is_some_and(|pending| pending.windows.is_empty() && pending.closed == Closed::No) {
            self.pending.remove(counter);
        }
    }
}

impl PendingCounter {
    /// The sum of the sizes of all pending deltas.
    pub(super) fn size(&self) -> u128 {
        self.windows.values().map(|sums| sums.size).sum()
    }

    /// When the earliest pending window is over; `None`: nothing is pending.
    pub(super) fn first_end_ms(&self) -> Option<u64> {
        self.windows.keys().next().map(|number| (number + 1) * WINDOW_MS)
    }

    pub(super) fn count(&mut self, time_ms: u64, change: Change) {
        self.last_write_ms = self.last_write_ms.max(time_ms);
        let sums = self.windows.entry(time_ms / WINDOW_MS).or_default();
        match change {
            Change::Clear => {
                sums.cleared_ms = sums.cleared_ms.max(Some(time_ms));
                if sums.adds_ms.is_some_and(|(_, last_ms)| last_ms <= time_ms) {
                    (sums.sum, sums.adds_ms) = (0, None);
                }
            }
            Change::Add(delta) => {
                sums.size += u128::from(delta.unsigned_abs());
                if sums.cleared_ms.is_none_or(|cleared_ms| cleared_ms < time_ms) {
                    sums.sum += i128::from(delta);
                    let (first_ms, last_ms) = sums.adds_ms.unwrap_or((time_ms, time_ms));
                    sums.adds_ms = Some((first_ms.min(time_ms), last_ms.max(time_ms)));
                }
            }
        }
    }

    fn shown(&self) -> Pending {
        let window = |(number, sums): (&u64, &Sums)| Window {
            number: *number,
            // The bound on sizes keeps every sum within 63 bits.
            sum: sums.sum as i64,
            adds_ms: sums.adds_ms,
            cleared_ms: sums.cleared_ms,
        };
        Pending {
            last_write_ms: self.last_write_ms,
            closed: self.closed,
            windows: self.windows.iter().map(window).collect(),
        }
    }
}
