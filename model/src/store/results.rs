//! What the other verbs return: counts, ages, pages, and the results of steps.

use crate::state::State;

/// Messages by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Depth {
    /// Not yet visible.
    pub invisible: u64,
    /// Waiting.
    pub pending: u64,
    /// Leased.
    pub running: u64,
    /// Ended with success, not yet collected.
    pub completed: u64,
    /// Canceled, not yet collected.
    pub canceled: u64,
    /// Ended because all attempts failed, not yet collected.
    pub errored: u64,
}

impl Depth {
    /// Invisible, pending and running: what max_depth bounds.
    pub fn live(&self) -> u64 {
        self.invisible + self.pending + self.running
    }

    /// All that the store keeps.
    pub fn kept(&self) -> u64 {
        self.live() + self.completed + self.canceled + self.errored
    }

    /// Adds what another shard has.
    pub fn add(&mut self, other: &Depth) {
        State::ALL.into_iter().for_each(|state| *self.of_mut(state) += other.of(state));
    }

    /// The count of one state.
    pub fn of(&self, state: State) -> u64 {
        match state {
            State::Invisible => self.invisible,
            State::Pending => self.pending,
            State::Running => self.running,
            State::Completed => self.completed,
            State::Canceled => self.canceled,
            State::Errored => self.errored,
        }
    }

    /// The count of one state, to be changed.
    pub fn of_mut(&mut self, state: State) -> &mut u64 {
        match state {
            State::Invisible => &mut self.invisible,
            State::Pending => &mut self.pending,
            State::Running => &mut self.running,
            State::Completed => &mut self.completed,
            State::Canceled => &mut self.canceled,
            State::Errored => &mut self.errored,
        }
    }
}

/// The ages of the oldest runnable message and of the oldest lease (O1), at the time of the call. Each is exact up to a
/// bound; beyond the bound, older messages or leases may exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// The time since the Enqueue of the oldest runnable message; it includes the invisibility and earlier attempts.
    /// `None`: no message is runnable. The store searches the most urgent
    /// [`AGE_PRIORITIES_MAX`](crate::limits::AGE_PRIORITIES_MAX) priorities. In an exclusive queue, the first message
    /// of each free key is runnable.
    pub pending_ms: Option<u64>,
    /// The time since the oldest lease began; an extension does not reset it. `None`: no message is running. The store
    /// searches the [`AGE_LEASES_MAX`](crate::limits::AGE_LEASES_MAX) leases that expire first.
    pub lease_ms: Option<u64>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// The items of this page.
    pub items: Vec<T>,
    /// Where the next page begins; opaque. Empty: this is the last page.
    pub next_cursor: String,
}

/// The reason in the event of an errored message that was removed before its retention ended (Q22).
pub const TOO_MANY_ERRORED: &str = "too many errored messages";

/// The result of a sweep (each count is at most [`SWEEP_ITEMS_MAX`](crate::limits::SWEEP_ITEMS_MAX) messages).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Invisible messages made pending.
    pub promoted: u64,
    /// Leases that had expired.
    pub expired: u64,
    /// How many of these left an errored message.
    pub errored: u64,
    /// Terminal messages removed.
    pub collected: u64,
    /// How many of these were errored, and were removed before their retention ended: the queue had too many (Q22).
    pub dropped: u64,
    /// When the next sweep is due, retention included: Unix ms; may be past. `None`: never.
    pub next_ms: Option<u64>,
    /// The time of the call by the store's clock: Unix ms.
    pub now_ms: u64,
}

/// The result of one step of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Messages removed in this step.
    pub purged: u64,
    /// The cursor for the next step. Empty: all messages from before the first step are removed.
    pub next_cursor: String,
}
