//! The statuses of requests that exceed a limit before they have arrived in full.

use std::collections::HashMap;
use std::time::Duration;
use tallystone_proto::status::{rpc_status, to_call, with_retry_delay};
use tonic::{Code, Status};

/// The request has not arrived in full in time.
pub(super) fn body_too_slow(time: Duration) -> Status {
    refusal("BODY_TOO_SLOW", format!("the request did not arrive in full within {} ms", time.as_millis()))
}

/// The requests that have not arrived in full have too many bytes together.
pub(super) fn too_many_unfinished_bytes() -> Status {
    let message = "too many bytes of requests that have not arrived in full: send fewer large requests at a time";
    refusal("TOO_MANY_UNFINISHED_BYTES", message.to_owned())
}

/// The lists of a message have too many elements together.
pub(super) fn too_many_elements(max: usize) -> Status {
    refusal("TOO_MANY_ELEMENTS", format!("the lists of a request may have {max} elements together"))
}

/// The request is no message of its method.
pub(super) fn unreadable() -> Status {
    let message = "the request cannot be read: a length in it is beyond the end of its message".to_owned();
    to_call(rpc_status(Code::InvalidArgument, message, "INVALID_ARGUMENT", HashMap::new(), None))
}

/// Too many requests of the port have not arrived in full.
pub(super) fn too_many_unfinished_requests() -> Status {
    let message =
        "too many requests have not arrived in full: send fewer at a time, and the first message of a stream at once";
    refusal("TOO_MANY_UNFINISHED_REQUESTS", message.to_owned())
}

/// Until then, a caller that reads has room again.
const UNREAD_RETRY: Duration = Duration::from_secs(1);

/// The connection has too many bytes of answers that it has not read. The call has been executed, as far as it can be known here.
pub(super) fn too_many_unread_bytes() -> Status {
    let message = "this connection has too many unread bytes of answers: read them, and make fewer calls at a time";
    let applied = HashMap::from([("applied".to_owned(), "unknown".to_owned())]);
    let status = rpc_status(Code::Unavailable, message.to_owned(), "TOO_MANY_UNREAD_BYTES", applied, None);
    to_call(with_retry_delay(status, UNREAD_RETRY))
}

/// Too many clients watch the health of the port, or use its reflection.
pub(super) fn too_many_streams() -> Status {
    let message = "too many clients watch the health of this port, or use its reflection";
    refusal("TOO_MANY_STREAMS", message.to_owned())
}

/// Too many streams of requests are open.
pub(super) fn too_many_streams_of_requests() -> Status {
    let message = "too many streams of requests are open on this port, or too many of this address: use fewer streams";
    refusal("TOO_MANY_STREAMS", message.to_owned())
}

fn refusal(reason: &'static str, message: String) -> Status {
    to_call(rpc_status(Code::ResourceExhausted, message, reason, HashMap::new(), None))
}
