//! Refusals as `google.rpc.Status` with details.

use prost::Message as _;
use std::collections::HashMap;
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::pb::{BadRequest, ErrorInfo, RetryInfo, Status as RpcStatus, bad_request::FieldViolation};

/// The ErrorInfo domain of every status.
pub const DOMAIN: &str = "tallystone";

/// The status of a call or of one item of a batch. Its details are a `google.rpc.ErrorInfo` with [`DOMAIN`], the reason
/// and the metadata and, if `bad_field` names a field and its fault, a `google.rpc.BadRequest`.
pub fn rpc_status(
    code: Code,
    message: String,
    reason: &str,
    metadata: HashMap<String, String>,
    bad_field: Option<(String, String)>,
) -> RpcStatus {
    let info = ErrorInfo { reason: reason.to_owned(), domain: DOMAIN.to_owned(), metadata };
    let mut details = vec![any("google.rpc.ErrorInfo", &info)];
    if let Some((field, description)) = bad_field {
        let violation = FieldViolation { field, description, ..FieldViolation::default() };
        details.push(any("google.rpc.BadRequest", &BadRequest { field_violations: vec![violation] }));
    }
    RpcStatus { code: code as i32, message, details }
}

/// The same with a `google.rpc.RetryInfo`: after this time the call may succeed.
pub fn with_retry_delay(mut status: RpcStatus, delay: Duration) -> RpcStatus {
    let delay = prost_types::Duration::try_from(delay).ok();
    status.details.push(any("google.rpc.RetryInfo", &RetryInfo { retry_delay: delay }));
    status
}

fn any(name: &str, message: &impl prost::Message) -> prost_types::Any {
    prost_types::Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

/// The status of a whole call. The header `grpc-status-details-bin` has the encoded google.rpc.Status.
pub fn to_call(status: RpcStatus) -> Status {
    let details = status.encode_to_vec();
    Status::with_details(Code::from(status.code), status.message, details.into())
}

/// The opposite of [`to_call`]: the status of a call, for a response that contains it.
pub fn from_call(status: &Status) -> RpcStatus {
    let bare = || RpcStatus { code: status.code() as i32, message: status.message().to_owned(), details: Vec::new() };
    match status.details() {
        [] => bare(),
        details => RpcStatus::decode(details).unwrap_or_else(|_| bare()),
    }
}
