//! What a caller may see of messages and their transitions (S4).

use tallystone_proto::history::v1 as pb;
use tallystone_serving::{Access, Right};

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
