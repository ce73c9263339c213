//! The documents: what is written of an event, and how it is read. Each is a function of one event alone, so writing
//! an event again writes the same bytes.

use super::names::DATED_MS;
use crate::fold;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tallystone_model::{Cause, Recorded, State};
use tallystone_proto::history::v1::{IndexedMessage, TracedTransition};

/// Separates the key and the value of a metadata pair. Neither contains control characters.
const PAIR_SEPARATOR: char = '\u{1f}';

/// A transition, in the index of its day.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct HistoricDocument<'a> {
    queue: Cow<'a, str>,
    shard: u16,
    id: Cow<'a, str>,
    pub(super) sequence: u64,
    pub(super) version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<State>,
    /// The state entered and the state left if they differ. Statistics count these fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    entered: Option<State>,
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<State>,
    by: Cause,
    at_ms: u64,
    spent_ms: u64,
    worker: Cow<'a, str>,
    #[serde(rename = "fence")]
    fencing_token: u64,
    attempts: u32,
    reason: Cow<'a, str>,
    due_ms: u64,
    priority: i64,
}

/// The beginning of a message's payload, which only its first event carries. It is a separate document because each
/// event replaces the document of the message, and the message may outlive the document of its first transition.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct PayloadDocument {
    /// Base64.
    payload: String,
}

/// A message after its newest transition.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct CurrentDocument<'a> {
    queue: Cow<'a, str>,
    shard: u16,
    id: Cow<'a, str>,
    sequence: u64,
    state: State,
    gone: bool,
    pub(super) version: u32,
    priority: i64,
    /// For searches: each pair as one term.
    #[serde(default)]
    metadata_pairs: Vec<String>,
    /// For responses; not indexed.
    metadata: Cow<'a, BTreeMap<String, String>>,
    attempts: u32,
    #[serde(rename = "fence")]
    fencing_token: u64,
    worker: Cow<'a, str>,
    reason: Cow<'a, str>,
    enqueued_at_ms: u64,
    since_ms: u64,
    changed_at_ms: u64,
    due_ms: u64,
    coalesced: bool,
    /// Written by a repair, not by an event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    repaired: bool,
    /// Base64; not indexed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    result: String,
}

/// Why the server can hold no document of this event; `None`: it can.
pub(super) fn flaw(recorded: &Recorded) -> Option<String> {
    let event = &recorded.event;
    for (name, at_ms) in [("at_ms", event.at_ms), ("enqueued_at_ms", event.enqueued_at_ms)] {
        if !DATED_MS.contains(&at_ms) {
            return Some(format!("{name} {at_ms} is not within the years 1970 to 2200"));
        }
    }
    let numbers = [
        ("sequence", event.sequence),
        ("fence", event.fencing_token),
        ("since_ms", event.since_ms),
        ("from_since_ms", event.from_since_ms),
        ("due_ms", event.due_ms),
    ];
    // The server's integers are signed.
    let (name, number) = numbers.into_iter().find(|(_, number)| i64::try_from(*number).is_err())?;
    Some(format!("{name} {number} is above {}", i64::MAX))
}

/// A metadata pair as one term.
pub(super) fn pair(key: &str, value: &str) -> String {
    format!("{key}{PAIR_SEPARATOR}{value}")
}

/// The id of a transition's document. It never changes.
pub(super) fn transition_key(message_key: &str, version: u32) -> String {
    format!("{message_key}/{version}")
}

impl<'a> HistoricDocument<'a> {
    pub(super) fn of(recorded: &'a Recorded) -> HistoricDocument<'a> {
        let event = &recorded.event;
        let moved = event.from != event.to;
        HistoricDocument {
            queue: recorded.shard.queue.as_str().into(),
            shard: recorded.shard.number,
            id: event.id.as_str().into(),
            sequence: event.sequence,
            version: event.version,
            from: event.from,
            to: event.to,
            entered: event.to.filter(|_| moved),
            left: event.from.filter(|_| moved),
            by: event.by,
            at_ms: event.at_ms,
            spent_ms: fold::spent_ms(event),
            worker: event.worker.as_str().into(),
            fencing_token: event.fencing_token,
            attempts: event.attempts,
            reason: event.reason.as_str().into(),
            due_ms: event.due_ms,
            priority: event.priority,
        }
    }
}

impl From<HistoricDocument<'_>> for TracedTransition {
    fn from(document: HistoricDocument<'_>) -> TracedTransition {
        TracedTransition {
            sequence: document.sequence,
            version: document.version,
            from_state: fold::wire_state(document.from).into(),
            to_state: fold::wire_state(document.to).into(),
            cause: fold::wire_cause(document.by).into(),
            at_ms: document.at_ms as i64,
            spent_ms: document.spent_ms as i64,
            worker: document.worker.into_owned(),
            fencing_token: document.fencing_token,
            attempt: document.attempts,
            reason: document.reason.into_owned(),
            due_ms: document.due_ms as i64,
            priority: document.priority,
        }
    }
}

impl PayloadDocument {
    /// `None`: the event carries no payload.
    pub(super) fn of(recorded: &Recorded) -> Option<PayloadDocument> {
        recorded.event.payload.as_ref().map(|payload| PayloadDocument { payload: BASE64.encode(payload) })
    }

    /// The bytes; `None`: another program wrote something that is not Base64.
    pub(super) fn decode(self) -> Option<bytes::Bytes> {
        BASE64.decode(self.payload).ok().map(Into::into)
    }
}

impl<'a> CurrentDocument<'a> {
    pub(super) fn of(recorded: &'a Recorded) -> CurrentDocument<'a> {
        let event = &recorded.event;
        let metadata = event.metadata.pairs();
        CurrentDocument {
            queue: recorded.shard.queue.as_str().into(),
            shard: recorded.shard.number,
            id: event.id.as_str().into(),
            sequence: event.sequence,
            // Every event has at least one of the two; decoding refuses others.
            state: event.to.or(event.from).unwrap_or(State::Pending),
            gone: event.to.is_none(),
            version: event.version,
            priority: event.priority,
            metadata_pairs: metadata.iter().map(|(key, value)| pair(key, value)).collect(),
            metadata: Cow::Borrowed(metadata),
            attempts: event.attempts,
            fencing_token: event.fencing_token,
            worker: event.worker.as_str().into(),
            reason: event.last_reason.as_str().into(),
            enqueued_at_ms: event.enqueued_at_ms,
            since_ms: event.since_ms,
            changed_at_ms: event.at_ms,
            due_ms: event.due_ms,
            coalesced: event.coalesced,
            repaired: false,
            result: BASE64.encode(&event.result),
        }
    }

    /// As a repair writes it. Its numbers and times are those of a message that was read, so they are in range.
    pub(super) fn repaired(message: &'a IndexedMessage) -> CurrentDocument<'a> {
        CurrentDocument {
            queue: message.queue.as_str().into(),
            shard: message.shard as u16,
            id: message.id.as_str().into(),
            sequence: message.sequence,
            state: u8::try_from(message.state).ok().and_then(State::from_code).unwrap_or(State::Pending),
            gone: message.gone,
            version: message.version,
            priority: message.priority,
            metadata_pairs: message.metadata.iter().map(|(key, value)| pair(key, value)).collect(),
            metadata: Cow::Borrowed(&message.metadata),
            attempts: message.attempts,
            fencing_token: message.fencing_token,
            worker: message.worker.as_str().into(),
            reason: message.reason.as_str().into(),
            enqueued_at_ms: message.enqueued_at_ms as u64,
            since_ms: message.state_since_ms as u64,
            changed_at_ms: message.changed_at_ms as u64,
            due_ms: message.due_ms as u64,
            coalesced: message.coalesced,
            repaired: true,
            result: BASE64.encode(&message.result),
        }
    }
}

impl From<CurrentDocument<'_>> for IndexedMessage {
    fn from(document: CurrentDocument<'_>) -> IndexedMessage {
        IndexedMessage {
            queue: document.queue.into_owned(),
            shard: document.shard.into(),
            id: document.id.into_owned(),
            sequence: document.sequence,
            state: fold::wire_state(Some(document.state)).into(),
            gone: document.gone,
            version: document.version,
            priority: document.priority,
            metadata: document.metadata.into_owned(),
            attempts: document.attempts,
            fencing_token: document.fencing_token,
            worker: document.worker.into_owned(),
            reason: document.reason.into_owned(),
            enqueued_at_ms: document.enqueued_at_ms as i64,
            state_since_ms: document.since_ms as i64,
            changed_at_ms: document.changed_at_ms as i64,
            due_ms: document.due_ms as i64,
            coalesced: document.coalesced,
            payload: None,
            repaired: document.repaired,
            uncertain: false,
            // Another program may have written something that is not Base64.
            result: BASE64.decode(document.result).unwrap_or_default().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::state::ARROWS;
    use tallystone_model::{Event, MessageId, Metadata, QueueName, Shard};

    fn recorded(event: Event) -> Recorded {
        let queue = QueueName::parse("queue", "q").unwrap();
        Recorded { shard: Shard { queue, number: 3 }, offset: 7, event }
    }

    /// An event in which no two numbers are the same.
    fn event() -> Event {
        Event {
            id: MessageId::parse("id", "m").unwrap(),
            version: 1,
            from: None,
            to: Some(State::Pending),
            by: Cause::Enqueue,
            at_ms: 2_000,
            from_since_ms: 1_003,
            since_ms: 1_004,
            sequence: 5,
            enqueued_at_ms: 1_006,
            priority: -7,
            metadata: Metadata::parse([("k".to_owned(), "v".to_owned())].into()).unwrap(),
            attempts: 8,
            fencing_token: 9,
            worker: "w".to_owned(),
            due_ms: 3_010,
            reason: "this".to_owned(),
            last_reason: "last".to_owned(),
            coalesced: true,
            payload: Some(bytes::Bytes::from_static(b"\x00\xffp")),
            result: bytes::Bytes::from_static(b"\xfe\x00r"),
        }
    }

    fn reread<T: Serialize + serde::de::DeserializeOwned>(document: &T) -> T {
        serde_json::from_str(&serde_json::to_string(document).unwrap()).unwrap()
    }

    #[test]
    fn q19_documents_equal_the_fold_for_every_arrow() {
        for arrow in ARROWS {
            let recorded = recorded(Event { from: arrow.from, to: arrow.to, by: arrow.by, ..event() });
            let transition: TracedTransition = reread::<HistoricDocument<'_>>(&HistoricDocument::of(&recorded)).into();
            assert_eq!(transition, fold::transition(&recorded.event), "{arrow:?}");
            let message: IndexedMessage = reread(&CurrentDocument::of(&recorded)).into();
            assert_eq!(message, fold::message(&recorded), "{arrow:?}");
        }
    }

    #[test]
    fn q20_only_a_change_of_state_is_entered_and_left() {
        let moved = |from, to| {
            let recorded = recorded(Event { from, to, ..event() });
            let document = HistoricDocument::of(&recorded);
            (document.left, document.entered)
        };
        let (pending, running) = (Some(State::Pending), Some(State::Running));
        assert_eq!(moved(None, pending), (None, pending));
        assert_eq!(moved(pending, running), (pending, running));
        assert_eq!(moved(running, running), (None, None));
        assert_eq!(moved(running, None), (running, None));
    }

    #[test]
    fn a_payload_is_read_as_it_was_written() {
        for payload in [Some(bytes::Bytes::new()), event().payload] {
            let document = PayloadDocument::of(&recorded(Event { payload: payload.clone(), ..event() })).unwrap();
            assert_eq!(reread(&document).decode(), payload);
        }
        assert_eq!(PayloadDocument::of(&recorded(Event { payload: None, ..event() })), None);
    }

    #[test]
    fn numbers_beyond_the_servers_range_are_named() {
        assert_eq!(flaw(&recorded(event())), None);
        let absurd = [
            ("at_ms", Event { at_ms: u64::MAX, ..event() }),
            ("enqueued_at_ms", Event { enqueued_at_ms: 9_000_000_000_000, ..event() }),
            ("fence", Event { fencing_token: 1 << 63, ..event() }),
            ("sequence", Event { sequence: u64::MAX, ..event() }),
        ];
        for (field, event) in absurd {
            let why = flaw(&recorded(event)).expect(field);
            assert!(why.starts_with(&format!("{field} ")), "{why}");
        }
    }
}
