//! The statuses of requests that exceed a limit before they have arrived in full.

use std::collections::HashMap;
use std::time::Duration;
use tallystone_proto::status::{rpc_status, to_call};
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

/// Too many requests of the port have not arrived in full.
pub(super) fn too_many_unfinished_requests() -> Status {
    let message =
        "too many requests have not arrived in full: send fewer at a time, and the first message of a stream at once";
    refusal("TOO_MANY_UNFINISHED_REQUESTS", message.to_owned())
}

/// Too many clients watch the health of the port, or use its reflection.
pub(super) fn too_many_streams() -> Status {
    let message = "too many clients watch the health of this port, or use its reflection";
    refusal("TOO_MANY_STREAMS", message.to_owned())
}

fn refusal(reason: &'static str, message: String) -> Status {
    to_call(rpc_status(Code::ResourceExhausted, message, reason, HashMap::new(), None))
}
