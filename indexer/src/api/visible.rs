//! What a caller may see of messages and their transitions (S4).

use tallystone_model::names::INTERNAL_QUEUES;
use tallystone_proto::history::v1 as pb;
use tallystone_serving::{Access, Right};

/// Whether an answer about all queues of this prefix leaves out internal queues. The caller may read all others of the prefix; on internal
/// ones only a rule grants the right whose pattern begins as their names do.
pub(super) fn leaves_out_internal(access: &Access, prefix: &str) -> bool {
    // No pattern has a `*` before its end: so a rule that grants this covers every internal queue. A denial of one has denied the call.
    INTERNAL_QUEUES.starts_with(prefix) && !access.allows(Right::Read, &format!("{INTERNAL_QUEUES}*"))
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
