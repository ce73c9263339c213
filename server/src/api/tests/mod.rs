//! Tests over real gRPC on loopback and the oracle.

mod bad_input;
mod calls;
mod enqueue_stream;
mod raw;
mod selection;
mod service;
mod subscriptions;
mod waiting;
mod work;

use tallystone_proto::RpcStatus;
use tonic::{Code, Status};
use tonic_types::{RpcStatusExt, StatusExt};

/// Code, reason and field of a refused call.
fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String, String) {
    let status = answer.unwrap_err();
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no ErrorInfo: {status:?}"));
    assert_eq!(info.domain, "tallystone");
    let field = details.bad_request().map(|bad| bad.field_violations[0].field.clone());
    (status.code(), info.reason.clone(), field.unwrap_or_default())
}

/// Code, reason and field of a refused item.
fn refused_item(status: &RpcStatus) -> (Code, String, String) {
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    assert_eq!(info.domain, "tallystone");
    let field = details.bad_request().map(|bad| bad.field_violations[0].field.clone());
    (Code::from(status.code), info.reason.clone(), field.unwrap_or_default())
}

fn invalid(field: &str) -> (Code, String, String) {
    (Code::InvalidArgument, "INVALID_ARGUMENT".to_owned(), field.to_owned())
}

fn because(code: Code, reason: &str) -> (Code, String, String) {
    (code, reason.to_owned(), String::new())
}
