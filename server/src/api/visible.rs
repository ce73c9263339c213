//! What a caller may see of a message (S4).

use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{Access, Right};
use tonic::Request;

/// What the caller of a request may see of the messages of a queue.
pub(super) struct Visible {
    payload: bool,
    /// A caller that has the fencing token can end the lease.
    fencing_token: bool,
}

impl Visible {
    pub(super) fn to<R>(request: &Request<R>, queue: &str) -> Visible {
        let access = Access::of(request.extensions());
        let allows = |right| access.allows(right, queue);
        Visible { payload: allows(Right::Payload), fencing_token: allows(Right::Consume) }
    }

    /// The message without what the caller may not see.
    pub(super) fn part_of(&self, mut message: pb::Message) -> pb::Message {
        if !self.payload {
            message.payload.clear();
            message.result.clear();
        }
        if !self.fencing_token {
            message.fencing_token = 0;
            message.last_attempts.iter_mut().for_each(|attempt| attempt.fencing_token = 0);
        }
        message
    }
}
