//! How a message in the queue and its index differ, and what the index should have.

use super::message_view::MessageView;
use tallystone_client::{IndexedMessage, Message, State};

/// A difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) kind: Kind,
    pub(crate) text: String,
    /// The messages as the index should have them; empty: nothing that is known can mend it.
    pub(crate) mended: Vec<IndexedMessage>,
}

/// What kind of difference it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of the index is gone from the queue, without a record of it.
    Gone,
    /// The index has an earlier version, or none, or another content of the same version.
    Other,
}

/// The difference; `None`: there is none. `index` has the messages of one id that are not gone, and `now_ms` is the time of
/// the comparison.
pub(super) fn difference(queue: Option<&Message>, index: &[IndexedMessage], now_ms: u64) -> Option<Difference> {
    // A message with the id of an earlier one has a higher sequence, which the queue does not return.
    let newest = index.iter().max_by_key(|message| message.sequence);
    let same = newest.filter(|newest| queue.is_some_and(|queue| queue.enqueued_at_ms == newest.enqueued_at_ms));
    let gone: Vec<IndexedMessage> = index
        .iter()
        .filter(|message| same.is_none_or(|same| same.sequence != message.sequence))
        .map(|message| without_a_record(message, now_ms))
        .collect();
    let of = |kind, text: &str, mended| Some(Difference { kind, text: text.to_owned(), mended });
    match (queue, same) {
        (None, _) if gone.is_empty() => None,
        (None, _) => of(Kind::Gone, "is in the index, not in the queue", gone),
        (Some(_), None) if gone.is_empty() => of(Kind::Other, "is in the queue, not in the index", gone),
        (Some(_), None) => of(Kind::Gone, "is in the index only as an earlier message with this id", gone),
        (Some(_), Some(_)) if !gone.is_empty() => {
            let text = "is in the index more than once: an earlier message with this id was not removed there";
            of(Kind::Gone, text, gone)
        }
        (Some(queue), Some(same)) => {
            let text = MessageView::by_queue(queue).difference(&MessageView::by_index(same))?;
            // An index that is ahead of the queue is right: then the queue has lost writes.
            let mended = if same.version < queue.version { vec![as_in_queue(queue, same)] } else { Vec::new() };
            of(Kind::Other, &text, mended)
        }
    }
}

/// The message after a removal of which there is no record. If the record arrives after all, it has this version or a later
/// one, and replaces this.
fn without_a_record(message: &IndexedMessage, now_ms: u64) -> IndexedMessage {
    IndexedMessage {
        gone: true,
        version: message.version.saturating_add(1),
        changed_at_ms: message.changed_at_ms.max(now_ms),
        due_ms: 0,
        ..message.clone()
    }
}

fn as_in_queue(queue: &Message, index: &IndexedMessage) -> IndexedMessage {
    IndexedMessage {
        state: Some(queue.state),
        version: queue.version,
        priority: queue.priority,
        attempts: queue.attempts,
        fencing_token: queue.fencing_token,
        worker: queue.worker.clone(),
        reason: queue.reason.clone(),
        state_since_ms: queue.state_since_ms,
        changed_at_ms: index.changed_at_ms.max(queue.state_since_ms),
        due_ms: if matches!(queue.state, State::Invisible | State::Running) { queue.due_ms } else { 0 },
        coalesced: queue.coalesced,
        result: queue.result.clone(),
        ..index.clone()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use bytes::Bytes;
    use std::collections::BTreeMap;

    fn in_queue(version: u32, enqueued_at_ms: u64) -> Message {
        Message {
            id: "m".to_owned(),
            state: State::Pending,
            version,
            payload: Bytes::new(),
            priority: 1,
            priority_class: None,
            metadata: BTreeMap::new(),
            lease_ms: None,
            invisibility_ms: None,
            max_attempts: 5,
            attempts: 0,
            enqueued_at_ms,
            state_since_ms: enqueued_at_ms,
            due_ms: 0,
            fencing_token: 0,
            worker: String::new(),
            reason: String::new(),
            coalesced: false,
            result: Bytes::new(),
            last_attempts: Vec::new(),
        }
    }

    /// Message 'm' of queue 'q', pending, as history has it.
    pub(in crate::history) fn in_index(sequence: u64, version: u32, enqueued_at_ms: u64) -> IndexedMessage {
        IndexedMessage {
            queue: "q".to_owned(),
            id: "m".to_owned(),
            sequence,
            state: Some(State::Pending),
            gone: false,
            version,
            priority: 1,
            metadata: BTreeMap::new(),
            attempts: 0,
            fencing_token: 0,
            worker: String::new(),
            reason: String::new(),
            enqueued_at_ms,
            state_since_ms: enqueued_at_ms,
            changed_at_ms: enqueued_at_ms,
            due_ms: 0,
            coalesced: false,
            uncertain: false,
            repaired: false,
            shard: 0,
            payload: None,
            result: Bytes::new(),
        }
    }

    /// Sequence, version and `gone` of a message that mends a difference.
    type Mended = (u64, u32, bool);

    fn mended(queue: Option<&Message>, index: &[IndexedMessage]) -> Option<(Kind, Vec<Mended>)> {
        let found = difference(queue, index, 900)?;
        Some((found.kind, found.mended.iter().map(|mended| (mended.sequence, mended.version, mended.gone)).collect()))
    }

    #[test]
    fn q19_what_the_queue_no_longer_has_is_gone() {
        let queue = in_queue(3, 100);
        assert_eq!(mended(None, &[]), None);
        assert_eq!(mended(Some(&queue), &[in_index(7, 3, 100)]), None);
        assert_eq!(mended(None, &[in_index(7, 3, 100)]), Some((Kind::Gone, vec![(7, 4, true)])));
        assert_eq!(mended(Some(&queue), &[]), Some((Kind::Other, vec![])), "only its next transition can add it");
        // The id was used again, and the end of the earlier message is lost.
        let both = [in_index(9, 3, 100), in_index(7, 2, 50)];
        assert_eq!(mended(Some(&queue), &both), Some((Kind::Gone, vec![(7, 3, true)])));
        // The same, and the later message is not indexed.
        assert_eq!(mended(Some(&queue), &[in_index(7, 2, 50)]), Some((Kind::Gone, vec![(7, 3, true)])));
        let gone = difference(None, &[in_index(7, 3, 100)], 900).expect("a difference");
        assert_eq!(gone.mended[0].changed_at_ms, 900, "its retention begins with the repair");
    }

    #[test]
    fn q19_an_earlier_version_becomes_that_of_the_queue_and_a_later_one_stays() {
        let queue = Message { state: State::Running, due_ms: 500, worker: "w".to_owned(), ..in_queue(5, 100) };
        let found = difference(Some(&queue), &[in_index(7, 3, 100)], 900).expect("a difference");
        let [mended] = found.mended.as_slice() else { panic!("{found:?}") };
        assert_eq!((mended.version, mended.state, mended.due_ms), (5, Some(State::Running), 500));
        assert_eq!((mended.worker.as_str(), mended.sequence, mended.gone), ("w", 7, false));
        let found = difference(Some(&queue), &[in_index(7, 6, 100)], 900).expect("a difference");
        assert_eq!(found.mended, [], "the queue has lost writes");
    }
}
