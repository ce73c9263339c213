//! Decodes the packed results of items, in one place; `tallystone_link` decodes the reply around them.

use bytes::Bytes;
use tallystone_lua::constants::Answer;
use tallystone_lua::record::Unreadable;
use tallystone_model::store::Transition;
use tallystone_model::{MessageId, Refusal, State};

/// The reply of one of the queue's scripts.
pub(super) type QueueReply = tallystone_link::ScriptReply<Answer>;

pub(super) fn defect(what: &str) -> Refusal {
    QueueReply::defect(what)
}

pub(super) fn unreadable(error: Unreadable) -> Refusal {
    Refusal::Internal(error.to_string())
}

/// What a refusal of one item needs in addition to its code.
pub(super) struct ItemContext<'a> {
    pub(super) queue: &'a str,
    pub(super) max_depth: u64,
    pub(super) outbox_events_max: u64,
}

impl ItemContext<'_> {
    /// The refusal of an item's code.
    fn refusal(&self, answer: Answer, id: &MessageId, state: Option<State>) -> Refusal {
        let (id, queue) = (id.to_string(), self.queue.to_owned());
        match (answer, state) {
            (Answer::NotFound, _) => Refusal::MessageNotFound { id },
            (Answer::IdConflict, _) => Refusal::IdConflict { id },
            (Answer::QueueFull, _) => Refusal::QueueFull { queue, max_depth: self.max_depth },
            (Answer::OutboxFull, _) => Refusal::OutboxFull { queue, events_max: self.outbox_events_max },
            (Answer::Moved, _) => Refusal::moved(),
            (Answer::LeaseLost, Some(state)) => Refusal::LeaseLost { id, state },
            (Answer::WrongState, Some(state)) => Refusal::WrongState { id, state },
            other => defect(&format!("{other:?} for an item")),
        }
    }

    /// Decodes code(1) time(6) of one item.
    pub(super) fn enqueued(&self, id: &MessageId, packed: &[u8]) -> Result<u64, Refusal> {
        match Answer::from_code(i64::from(packed[0])) {
            Some(Answer::Ok) => Ok(be(&packed[1..7])),
            Some(answer) => Err(self.refusal(answer, id, None)),
            None => Err(defect("an unknown item code")),
        }
    }

    /// Decodes code(1) state(1) and a number of one item.
    pub(super) fn numbered(&self, id: &MessageId, packed: &[u8]) -> Result<(State, u64), Refusal> {
        let state = State::from_code(packed[1]);
        match (Answer::from_code(i64::from(packed[0])), state) {
            (Some(Answer::Ok), Some(state)) => Ok((state, be(&packed[2..]))),
            (Some(answer), state) => Err(self.refusal(answer, id, state)),
            (None, _) => Err(defect("an unknown item code")),
        }
    }

    pub(super) fn transition(&self, id: &MessageId, packed: &[u8]) -> Result<Transition, Refusal> {
        let (state, version) = self.numbered(id, packed)?;
        Ok(Transition { state, version: version as u32 })
    }
}

/// Splits packed results into one piece for each item.
pub(super) fn pieces(packed: &Bytes, size: usize, items: usize) -> Result<std::slice::ChunksExact<'_, u8>, Refusal> {
    if packed.len() != size * items {
        return Err(defect("a wrong number of results"));
    }
    Ok(packed.chunks_exact(size))
}

fn be(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
