//! Calls that no service has read: their method does not exist, or their request cannot be decoded. The transport refuses
//! them; here their status gets the reason that every other refusal has.

use axum::http::Response;
use std::collections::HashMap;
use tallystone_proto::status::{rpc_status, to_call};
use tonic::{Code, Status};

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
    let message = "this server does not have that method".to_owned();
    to_call(rpc_status(Code::Unimplemented, message, "METHOD_NOT_FOUND", HashMap::new(), None))
}

/// The status of a call whose request the transport has refused, with its reason; any other status as it is. A call that
/// reads a stream of requests has to pass the error of the stream through here.
pub fn refused_in_full(status: Status) -> Status {
    let message = status.message();
    let (code, reason, message) = match status.code() {
        _ if !status.details().is_empty() => return status,
        // With a message it is about an encoding of the request.
        Code::Unimplemented if message.is_empty() => return method_not_found(),
        // Of a request that cannot be read, gRPC makes a defect of the server.
        Code::Internal => (Code::InvalidArgument, "INVALID_ARGUMENT", format!("the request cannot be read: {message}")),
        Code::OutOfRange | Code::ResourceExhausted => {
            (Code::ResourceExhausted, "TOO_LARGE", format!("the request is too large: {message}"))
        }
        _ => return status,
    };
    to_call(rpc_status(code, message, reason, HashMap::new(), None))
}
