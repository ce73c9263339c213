//! The six states and the one table of transitions (Q5). Lua's constants and the picture in the docs are generated from
//! [`ARROWS`]; no other place says which transitions exist.

/// The state of a message. The numbers are those of the wire and of the packed records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u8)]
pub enum State {
    /// Accepted, not yet visible to Dequeue.
    Invisible = 1,
    /// Waiting to be leased.
    Pending = 2,
    /// Leased to one worker.
    Running = 3,
    /// Ended with success.
    Completed = 4,
    /// Canceled by its worker, by an operator or by a purge.
    Canceled = 5,
    /// Ended because all attempts failed.
    Errored = 6,
}

impl State {
    /// All six, in the order of their numbers.
    pub const ALL: [State; 6] =
        [State::Invisible, State::Pending, State::Running, State::Completed, State::Canceled, State::Errored];

    /// Completed, canceled or errored: kept for the retention, then collected.
    pub fn is_terminal(self) -> bool {
        matches!(self, State::Completed | State::Canceled | State::Errored)
    }

    /// Invisible, pending or running: counts towards max_depth.
    pub fn is_live(self) -> bool {
        !self.is_terminal()
    }

    /// The state of a number in a packed record.
    pub fn from_code(code: u8) -> Option<State> {
        State::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// The name in lower case, as people and JSON write it.
    pub fn name(self) -> &'static str {
        match self {
            State::Invisible => "invisible",
            State::Pending => "pending",
            State::Running => "running",
            State::Completed => "completed",
            State::Canceled => "canceled",
            State::Errored => "errored",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// What made a transition happen; the numbers are those of the packed events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Cause {
    /// Enqueue of a new message.
    Enqueue = 1,
    /// Enqueue of an id for which a live message stands (Q12).
    Coalesce = 2,
    /// The invisibility window elapsed.
    WindowElapsed = 3,
    /// Dequeue.
    Dequeue = 4,
    /// ExtendLease.
    ExtendLease = 5,
    /// Complete.
    Complete = 6,
    /// Release.
    Release = 7,
    /// The lease expired.
    LeaseExpired = 8,
    /// Cancel.
    Cancel = 9,
    /// Redrive.
    Redrive = 10,
    /// UpdateMessage.
    UpdateMessage = 11,
    /// PurgeQueue.
    Purge = 12,
    /// Collection of a terminal message.
    Collect = 13,
}

impl Cause {
    /// All causes, in the order of their numbers.
    pub const ALL: [Cause; 13] = [
        Cause::Enqueue,
        Cause::Coalesce,
        Cause::WindowElapsed,
        Cause::Dequeue,
        Cause::ExtendLease,
        Cause::Complete,
        Cause::Release,
        Cause::LeaseExpired,
        Cause::Cancel,
        Cause::Redrive,
        Cause::UpdateMessage,
        Cause::Purge,
        Cause::Collect,
    ];

    /// The cause of a number in a packed event.
    pub fn from_code(code: u8) -> Option<Cause> {
        Cause::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }
}

/// One transition. `None`: the message does not exist (before Enqueue, after collection).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow {
    /// The previous state.
    pub from: Option<State>,
    /// The new state.
    pub to: Option<State>,
    /// The cause.
    pub by: Cause,
    /// When, in a few words.
    pub when: &'static str,
}

const fn arrow(from: Option<State>, to: Option<State>, by: Cause, when: &'static str) -> Arrow {
    Arrow { from, to, by, when }
}

pub(crate) const INVISIBLE: Option<State> = Some(State::Invisible);
pub(crate) const PENDING: Option<State> = Some(State::Pending);
pub(crate) const RUNNING: Option<State> = Some(State::Running);
pub(crate) const COMPLETED: Option<State> = Some(State::Completed);
pub(crate) const CANCELED: Option<State> = Some(State::Canceled);
pub(crate) const ERRORED: Option<State> = Some(State::Errored);

/// All transitions (Q5), with those that stay in a state. Each raises the version by one (Q6).
pub const ARROWS: &[Arrow] = &[
    arrow(None, PENDING, Cause::Enqueue, "no invisibility"),
    arrow(None, INVISIBLE, Cause::Enqueue, "with invisibility"),
    arrow(INVISIBLE, PENDING, Cause::WindowElapsed, "now >= due"),
    arrow(PENDING, RUNNING, Cause::Dequeue, "spends one attempt"),
    arrow(RUNNING, RUNNING, Cause::ExtendLease, "by the holder within the lease"),
    arrow(RUNNING, COMPLETED, Cause::Complete, "by the holder within the lease"),
    arrow(RUNNING, PENDING, Cause::Complete, "a coalesced message runs again"),
    arrow(RUNNING, PENDING, Cause::Release, "attempts left and no delay; or no worker got the lease"),
    arrow(RUNNING, INVISIBLE, Cause::Release, "attempts left, delay or backoff"),
    arrow(RUNNING, ERRORED, Cause::Release, "no attempts left, or the verdict is error"),
    arrow(RUNNING, CANCELED, Cause::Release, "the verdict is cancel"),
    arrow(RUNNING, PENDING, Cause::LeaseExpired, "attempts left, no backoff"),
    arrow(RUNNING, INVISIBLE, Cause::LeaseExpired, "attempts left, backoff"),
    arrow(RUNNING, ERRORED, Cause::LeaseExpired, "no attempts left"),
    arrow(INVISIBLE, CANCELED, Cause::Cancel, "by anyone"),
    arrow(PENDING, CANCELED, Cause::Cancel, "by anyone"),
    arrow(RUNNING, CANCELED, Cause::Cancel, "by the holder, or forced"),
    arrow(ERRORED, PENDING, Cause::Redrive, "attempts restart at zero"),
    arrow(CANCELED, PENDING, Cause::Redrive, "attempts restart at zero"),
    arrow(INVISIBLE, INVISIBLE, Cause::Coalesce, "takes the more urgent priority"),
    arrow(PENDING, PENDING, Cause::Coalesce, "takes the more urgent priority"),
    arrow(RUNNING, RUNNING, Cause::Coalesce, "marked to run again"),
    arrow(INVISIBLE, INVISIBLE, Cause::UpdateMessage, "other priority or due time"),
    arrow(INVISIBLE, PENDING, Cause::UpdateMessage, "made visible"),
    arrow(PENDING, INVISIBLE, Cause::UpdateMessage, "made invisible"),
    arrow(PENDING, PENDING, Cause::UpdateMessage, "other priority"),
    arrow(RUNNING, RUNNING, Cause::UpdateMessage, "other priority for its next run"),
    arrow(INVISIBLE, CANCELED, Cause::Purge, "by an operator"),
    arrow(PENDING, CANCELED, Cause::Purge, "by an operator"),
    arrow(RUNNING, CANCELED, Cause::Purge, "by an operator who includes running messages"),
    arrow(COMPLETED, None, Cause::Collect, "retention over, purged, queue deleted, or id used again"),
    arrow(CANCELED, None, Cause::Collect, "retention over, purged, queue deleted, or id used again"),
    arrow(ERRORED, None, Cause::Collect, "retention over, too many, purged, queue deleted, or id used again"),
];

/// Whether the table has this transition.
pub fn is_arrow(from: Option<State>, to: Option<State>, by: Cause) -> bool {
    ARROWS.iter().any(|arrow| arrow.from == from && arrow.to == to && arrow.by == by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q5_codes_round_trip_and_arrows_are_distinct() {
        for state in State::ALL {
            assert_eq!(State::from_code(state as u8), Some(state));
        }
        for cause in Cause::ALL {
            assert_eq!(Cause::from_code(cause as u8), Some(cause));
        }
        assert_eq!((State::from_code(0), Cause::from_code(0), Cause::from_code(14)), (None, None, None));
        for (i, a) in ARROWS.iter().enumerate() {
            assert!(!ARROWS[..i].iter().any(|b| (b.from, b.to, b.by) == (a.from, a.to, a.by)), "{a:?} twice");
        }
    }

    #[test]
    fn q5_terminal_states_are_left_only_by_redrive_and_collection() {
        for a in ARROWS {
            if a.from.is_some_and(State::is_terminal) {
                assert!(matches!(a.by, Cause::Redrive | Cause::Collect), "{a:?}");
            }
        }
    }
}
