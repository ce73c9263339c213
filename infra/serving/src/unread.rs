//! Calls that no service has read: their caller is unknown, their method does not exist, or their request cannot be decoded. They have no
//! metric of an RPC, so they are counted here. The transport refuses the latter two; here their status gets the reason that every
//! other refusal has.

use ::metrics::{counter, describe_counter};
use axum::http::Response;
use std::collections::HashMap;
use tallystone_proto::status::{rpc_status, to_call};
use tonic::{Code, Status};

const REFUSED: &str = "tallystone_unread_calls_refused_total";

/// Why no service has read a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnreadCall {
    /// It has no credential, or one that is unknown or expired.
    Credential,
    /// No service has its method.
    Method,
    /// Its request cannot be decoded.
    Unreadable,
    /// Its request is longer than its service reads.
    TooLarge,
}

impl UnreadCall {
    const ALL: [UnreadCall; 4] =
        [UnreadCall::Credential, UnreadCall::Method, UnreadCall::Unreadable, UnreadCall::TooLarge];

    fn name(self) -> &'static str {
        match self {
            UnreadCall::Credential => "credential",
            UnreadCall::Method => "method",
            UnreadCall::Unreadable => "unreadable",
            UnreadCall::TooLarge => "too_large",
        }
    }
}

/// Counts a call that no service has read.
pub(crate) fn note_unread(why: UnreadCall) {
    counter!(REFUSED, "reason" => why.name()).increment(1);
}

/// Begins the metric at 0, so that the first refusal is a rise.
pub(crate) fn begin_metrics() {
    describe_counter!(REFUSED, "calls that were refused before their service had read them");
    for why in UnreadCall::ALL {
        counter!(REFUSED, "reason" => why.name()).absolute(0);
    }
}

/// The answer of a service, or of the transport in its place.
pub(crate) fn refuse_in_full<B: Default>(response: Response<B>) -> Response<B> {
    match Status::from_header_map(response.headers()) {
        // Only a refusal without a message has its status in the headers.
        Some(status) if status.details().is_empty() => refused_in_full(status).into_http(),
        _ => response,
    }
}

/// The status of a call to a method that no service has.
pub(crate) fn method_not_found() -> Status {
    note_unread(UnreadCall::Method);
    let message = "this server does not have that method".to_owned();
    to_call(rpc_status(Code::Unimplemented, message, "METHOD_NOT_FOUND", HashMap::new(), None))
}

/// The status of a call whose request the transport has refused, with its reason; any other status as it is. A call that
/// reads a stream of requests has to pass the error of the stream through here.
pub fn refused_in_full(status: Status) -> Status {
    let message = status.message();
    let (why, code, reason, message) = match status.code() {
        _ if !status.details().is_empty() => return status,
        // With a message it is about an encoding of the request.
        Code::Unimplemented if message.is_empty() => return method_not_found(),
        // Of a request that cannot be read, gRPC makes a defect of the server.
        Code::Internal => {
            let message = format!("the request cannot be read: {message}");
            (UnreadCall::Unreadable, Code::InvalidArgument, "INVALID_ARGUMENT", message)
        }
        Code::OutOfRange | Code::ResourceExhausted => {
            let message = format!("the request is too large: {message}");
            (UnreadCall::TooLarge, Code::ResourceExhausted, "TOO_LARGE", message)
        }
        _ => return status,
    };
    note_unread(why);
    to_call(rpc_status(code, message, reason, HashMap::new(), None))
}
