//! Changes of all messages that a selection matches.

use crate::calls::rpc;
use crate::client::Client;
use crate::error::{Refused, Result};
use crate::inspect::MessagePatch;
use crate::lease::Transition;
use crate::message::{Filter, State};
use crate::wire::{from_wire, wire_count, wire_ms};
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;
use tallystone_proto::queue::v1::change_messages_request as wire_change;

/// Which messages a [`Client::change_messages`] is about: those that fulfil every field that is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// It is in one of these states; required.
    pub states: Vec<State>,
    /// Its metadata passes.
    pub filter: Option<Filter>,
    /// Its last reason is exactly this; empty: any.
    pub reason: String,
    /// Its last reason contains this text; upper and lower case of ASCII letters count as the same. Empty: any.
    pub reason_contains: String,
    /// It entered its state at this time or later, in Unix ms; 0: no bound.
    pub entered_from_ms: u64,
    /// It entered its state before this time, in Unix ms; 0: no bound.
    pub entered_to_ms: u64,
}

/// What happens to each selected message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Errored and canceled messages become pending, with all their attempts.
    Redrive,
    /// Messages that have not ended become canceled. Workers of running ones lose their leases.
    Cancel {
        /// Stored with each message.
        reason: String,
    },
    /// Messages that have not ended get another priority or visibility.
    Update(MessagePatch),
}

/// The arguments of [`Client::change_messages`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    /// Which messages.
    pub selection: Selection,
    /// What to do with them.
    pub change: Change,
    /// Changes nothing, and only counts.
    pub dry_run: bool,
    /// The number of messages that the call examines at most, up to 1,000; 0: 1,000.
    pub page_size: u32,
    /// The token of the page before; empty: the first call.
    pub page_token: String,
}

impl ChangeRequest {
    /// The first call of a change.
    pub fn new(selection: Selection, change: Change) -> Self {
        ChangeRequest { selection, change, dry_run: false, page_size: 0, page_token: String::new() }
    }
}

/// The result of one [`Client::change_messages`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedPage {
    /// Messages of the selected states that were compared with the selection.
    pub examined: u64,
    /// How many of these match, and are not yet as an update would make them.
    pub matched: u64,
    /// How many of these were changed.
    pub changed: u64,
    /// The ids of those that were refused, and why.
    pub refused: Vec<(String, Refused)>,
    /// The token of the next call; empty: all messages were examined.
    pub next_page_token: String,
}

impl Client {
    /// Redrives, cancels or updates the messages that a selection matches, one bounded page per call. Call again with the
    /// returned token until it is empty.
    pub async fn change_messages(&self, queue: &str, request: ChangeRequest) -> Result<ChangedPage> {
        let request = request.into_wire(queue);
        let response =
            self.calls.unhedged().send(Duration::ZERO, request, rpc!(self.admin, change_messages)).await?.response;
        let refused = response.refused.into_iter().filter_map(|result| {
            let id = result.id.clone();
            Transition::from_result(result).err().map(|refused| (id, refused))
        });
        Ok(ChangedPage {
            examined: from_wire(response.examined),
            matched: from_wire(response.matched),
            changed: from_wire(response.changed),
            refused: refused.collect(),
            next_page_token: response.next_page_token,
        })
    }
}

impl ChangeRequest {
    fn into_wire(self, queue: &str) -> wire::ChangeMessagesRequest {
        let Selection { states, filter, reason, reason_contains, entered_from_ms, entered_to_ms } = self.selection;
        let selection = wire::Selection {
            states: states.into_iter().map(|state| state.to_wire().into()).collect(),
            filter: filter.map(Filter::into_wire),
            reason,
            reason_contains,
            entered_from_ms: wire_ms(entered_from_ms),
            entered_to_ms: wire_ms(entered_to_ms),
        };
        let change = match self.change {
            Change::Redrive => wire_change::Change::Redrive(wire_change::Redrive {}),
            Change::Cancel { reason } => wire_change::Change::Cancel(wire_change::Cancel { reason }),
            Change::Update(patch) => wire_change::Change::Update(wire_change::Update {
                priority: patch.priority,
                visible_at_ms: patch.visible_at_ms.map(wire_ms),
            }),
        };
        wire::ChangeMessagesRequest {
            queue: queue.to_owned(),
            selection: Some(selection),
            change: Some(change),
            dry_run: self.dry_run,
            page_size: wire_count(self.page_size),
            page_token: self.page_token,
        }
    }
}
