//! A message as the queue and as its history describe it, in a form that can be compared.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use tallystone_client::{IndexedMessage, Message, State};

/// The fields of a message that the queue and its history have in common, as text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MessageView {
    fields: Vec<(&'static str, String)>,
}

impl MessageView {
    /// As the queue returns it.
    pub(crate) fn by_queue(message: &Message) -> MessageView {
        let due_ms = if matches!(message.state, State::Invisible | State::Running) { message.due_ms } else { 0 };
        MessageView::new(
            (message.version, message.state.name(), message.priority, message.attempts, message.fencing_token),
            (&message.worker, &message.reason, message.coalesced),
            (message.enqueued_at_ms, message.state_since_ms, due_ms),
            pairs(&message.metadata),
        )
    }

    /// As history returns it.
    pub(crate) fn by_index(message: &IndexedMessage) -> MessageView {
        let state = message.state.map_or("?", State::name);
        MessageView::new(
            (message.version, state, message.priority, message.attempts, message.fencing_token),
            (&message.worker, &message.reason, message.coalesced),
            (message.enqueued_at_ms, message.state_since_ms, message.due_ms),
            pairs(&message.metadata),
        )
    }

    fn new(
        (version, state, priority, attempts, token): (u32, &str, i64, u32, u64),
        (worker, reason, coalesced): (&str, &str, bool),
        (enqueued_at_ms, since_ms, due_ms): (u64, u64, u64),
        metadata: String,
    ) -> MessageView {
        let fields = vec![
            ("version", version.to_string()),
            ("state", state.to_owned()),
            ("priority", priority.to_string()),
            ("attempts", attempts.to_string()),
            ("fencing_token", token.to_string()),
            ("worker", worker.to_owned()),
            ("reason", reason.to_owned()),
            ("coalesced", coalesced.to_string()),
            ("enqueued_at_ms", enqueued_at_ms.to_string()),
            ("state_since_ms", since_ms.to_string()),
            ("due_ms", due_ms.to_string()),
            ("metadata", metadata),
        ];
        MessageView { fields }
    }

    /// The fields that differ, if any do. `self` is the queue's view.
    pub(crate) fn difference(&self, index: &MessageView) -> Option<String> {
        let differing = self.fields.iter().zip(&index.fields).filter(|(mine, theirs)| mine != theirs);
        let texts: Vec<String> = differing
            .map(|((name, mine), (_, theirs))| format!("{name} is '{mine}' in the queue, '{theirs}' in the index"))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// Compared, not shown: without escapes, which could make two values one.
fn pairs(pairs: &BTreeMap<String, String>) -> String {
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// A digest of all fields: ten million messages fit into a gigabyte.
pub(crate) fn digest(view: &MessageView) -> u64 {
    let mut hasher = DefaultHasher::new();
    view.hash(&mut hasher);
    hasher.finish()
}
