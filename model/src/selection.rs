//! Selections: which messages an operator changes without naming their ids, and how (Q25).

use crate::filter::Filter;
use crate::limits::REASON_BYTES_MAX;
use crate::names::{MessageId, Metadata, check_text};
use crate::refusal::Refusal;
use crate::state::{ARROWS, Cause, State};
use std::collections::BTreeSet;

/// What a message must have to be selected. All of it must be the case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// It is in one of these states. They are walked in this order. Never empty.
    pub states: BTreeSet<State>,
    /// Its metadata passes.
    pub filter: Option<Filter>,
    /// Its last reason is exactly this. Empty: any.
    pub reason: String,
    /// Its last reason contains this; upper and lower case of ASCII letters count as the same. Empty: any.
    pub reason_contains: String,
    /// It entered its state at this time or later: Unix ms.
    pub entered_from_ms: u64,
    /// It entered its state before this time: Unix ms.
    pub entered_to_ms: Option<u64>,
}

/// What UpdateMessage changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MessagePatch {
    /// The new priority.
    pub priority: Option<i64>,
    /// The message is invisible until this time (Unix ms); now or earlier: visible. Not for running messages.
    pub visible_at_ms: Option<u64>,
}

/// What happens to each selected message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// As Redrive.
    Redrive,
    /// As Cancel by an operator: running messages, too, if their state is selected.
    Cancel {
        /// The reason, for people.
        reason: String,
    },
    /// As UpdateMessage.
    Update(MessagePatch),
}

impl Change {
    /// The verb that makes the same change to one message.
    pub fn cause(&self) -> Cause {
        match self {
            Change::Redrive => Cause::Redrive,
            Change::Cancel { .. } => Cause::Cancel,
            Change::Update(_) => Cause::UpdateMessage,
        }
    }

    /// Whether messages in this state can be changed so.
    pub fn applies_to(&self, state: State) -> bool {
        let hides_running =
            state == State::Running && matches!(self, Change::Update(patch) if patch.visible_at_ms.is_some());
        !hides_running && ARROWS.iter().any(|arrow| arrow.from == Some(state) && arrow.by == self.cause())
    }
}

/// The parameters of a ChangeMessages that are the same on every page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    /// Which messages.
    pub selection: Selection,
    /// What happens to them.
    pub change: Change,
    /// Only counts.
    pub dry_run: bool,
}

impl ChangeRequest {
    /// Checks what the types of the fields do not express.
    pub fn check(&self) -> Result<(), Refusal> {
        let Selection { states, reason, reason_contains, .. } = &self.selection;
        if states.is_empty() {
            return Err(Refusal::invalid("states", "is empty; must name one state or more"));
        }
        if let Some(state) = states.iter().find(|state| !self.change.applies_to(**state)) {
            return Err(Refusal::invalid(
                "states",
                format!("has {state}; this change does not apply to such messages"),
            ));
        }
        check_text("reason", reason, 0, REASON_BYTES_MAX)?;
        check_text("reason_contains", reason_contains, 0, REASON_BYTES_MAX)
    }
}

impl Selection {
    /// Whether a message in one of the states matches.
    pub fn matches(&self, metadata: &Metadata, reason: &str, entered_ms: u64) -> bool {
        let contains = || reason.to_ascii_lowercase().contains(&self.reason_contains.to_ascii_lowercase());
        self.filter.as_ref().is_none_or(|filter| filter.matches(metadata))
            && (self.reason.is_empty() || self.reason == reason)
            && contains()
            && self.entered_from_ms <= entered_ms
            && self.entered_to_ms.is_none_or(|to_ms| entered_ms < to_ms)
    }

    /// The state after this one; `None`: it is the last.
    pub fn state_after(&self, state: State) -> Option<State> {
        self.states.iter().copied().find(|other| *other > state)
    }
}

/// The result of one page of a ChangeMessages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedPage {
    /// Messages of the selected states that were compared with the selection.
    pub examined: u64,
    /// How many of them the selection matches, and are not yet as the change would make them.
    pub matched: u64,
    /// How many of these were changed; in a dry run 0.
    pub changed: u64,
    /// The others, and why; in a dry run none.
    pub refused: Vec<(MessageId, Refusal)>,
    /// Where the next page begins; opaque. Empty: this is the last page.
    pub next_cursor: String,
}

/// Where a ChangeMessages continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeCursor {
    /// When the first call was made, by the store's clock: Unix ms; 0: this is the first call.
    pub began_ms: u64,
    /// The state that is walked.
    pub state: State,
    /// Where in the state; empty: at its start.
    pub at: String,
}

impl ChangeCursor {
    /// Decodes what [`ChangeCursor::next`] made for the same selection; empty: the first call.
    pub fn parse(text: &str, selection: &Selection) -> Result<Self, Refusal> {
        let invalid = || Refusal::invalid("page_token", "is not a page token of this selection");
        if text.is_empty() {
            let first = selection.states.first().copied().ok_or_else(invalid)?;
            return Ok(ChangeCursor { began_ms: 0, state: first, at: String::new() });
        }
        let mut parts = text.splitn(3, '.');
        let mut part = || parts.next().ok_or_else(invalid);
        let began_ms = part()?.parse().ok().filter(|ms| (1..1 << 47).contains(ms)).ok_or_else(invalid)?;
        let state = part()?.parse().ok().and_then(State::from_code).ok_or_else(invalid)?;
        let at = part()?.to_owned();
        if !selection.states.contains(&state) {
            return Err(invalid());
        }
        Ok(ChangeCursor { began_ms, state, at })
    }

    /// The cursor after a page of this one's state that ended at `at`; empty: the state has no further page.
    pub fn next(&self, began_ms: u64, at: &str, selection: &Selection) -> String {
        let encode = |state: State, at: &str| format!("{began_ms}.{}.{at}", state as u8);
        match at {
            "" => selection.state_after(self.state).map_or_else(String::new, |state| encode(state, "")),
            at => encode(self.state, at),
        }
    }
}
