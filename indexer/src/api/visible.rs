//! What a caller may see of messages and their transitions (S4).

use crate::store::Queues;
use tallystone_model::names::INTERNAL_QUEUES;
use tallystone_proto::history::v1 as pb;
use tallystone_serving::{Access, Right};

/// Those of these queues that an answer may have. The caller may read all but the internal ones; on these, only a rule grants the right
/// whose pattern begins as their names do.
pub(super) fn visible_queues(access: &Access, queues: Queues) -> Queues {
    // No pattern has a `*` before its end: so a rule that grants this covers every internal queue. A denial of one has denied the call.
    let has_internal = || access.allows(Right::Read, &format!("{INTERNAL_QUEUES}*"));
    match queues {
        Queues::WithPrefix(prefix) if INTERNAL_QUEUES.starts_with(&prefix) && !has_internal() => {
            Queues::NotInternal(prefix)
        }
        queues => queues,
    }
}

/// Takes payloads and fencing tokens from messages of queues on which the caller does not have the rights for them.
pub(super) fn restrict_messages<'a>(access: &Access, messages: impl IntoIterator<Item = &'a mut pb::IndexedMessage>) {
    for message in messages {
        if !access.allows(Right::Payload, &message.queue) {
            message.payload = None;
            message.result.clear();
        }
        if !access.allows(Right::Consume, &message.queue) {
            message.fencing_token = 0;
        }
    }
}

/// The same for the transitions of a message of this queue.
pub(super) fn restrict_transitions(access: &Access, queue: &str, transitions: &mut [pb::TracedTransition]) {
    if !access.allows(Right::Consume, queue) {
        transitions.iter_mut().for_each(|transition| transition.fencing_token = 0);
    }
}
