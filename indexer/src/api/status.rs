//! The only place that maps errors to a gRPC status.
//!
//! Every status carries `google.rpc.ErrorInfo` (the domain "tallystone" and a reason that programs can compare). The
//! status of a malformed request also carries `google.rpc.BadRequest` with the field.

use crate::store::HistoryError;
use std::collections::HashMap;
use tallystone_model::Refusal;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The ErrorInfo domain of every status of the program.
const DOMAIN: &str = "tallystone";
const INVALID_ARGUMENT: &str = "INVALID_ARGUMENT";
/// The page token is older than an hour: the caller begins with the first page.
const PAGE_TOKEN_EXPIRED: &str = "PAGE_TOKEN_EXPIRED";
/// The page token is forged, or of another query.
const PAGE_TOKEN_INVALID: &str = "PAGE_TOKEN_INVALID";

/// A field with an invalid value.
pub(super) fn invalid(field: &str, why: impl Into<String>) -> Status {
    bad_field(INVALID_ARGUMENT, field, why.into())
}

/// The page token is too old.
pub(super) fn token_expired() -> Status {
    bad_field(PAGE_TOKEN_EXPIRED, "page_token", "is older than an hour; begin with the first page".to_owned())
}

/// The page token was not issued for this query.
pub(super) fn token_invalid() -> Status {
    bad_field(PAGE_TOKEN_INVALID, "page_token", "is not a page token of this query".to_owned())
}

/// A field that the rules of the queue refuse.
pub(super) fn of_refusal(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Invalid { field, why } => invalid(field, why),
        other => status(Code::Internal, other.to_string(), ErrorDetails::new(), other.reason()),
    }
}

/// The store failed.
pub(super) fn of_store(error: HistoryError) -> Status {
    let (code, reason) = match error {
        HistoryError::Unavailable(_) => (Code::Unavailable, "HISTORY_UNAVAILABLE"),
        HistoryError::Failed(_) => (Code::Internal, "HISTORY_FAILED"),
    };
    // The operator sees the reason too.
    tracing::warn!(%error, "a history query failed");
    status(code, error.to_string(), ErrorDetails::new(), reason)
}

/// The deadline, the caller's or the server's, has passed.
pub(super) fn deadline_passed() -> Status {
    let message = "the history store did not respond in time".to_owned();
    status(Code::DeadlineExceeded, message, ErrorDetails::new(), "HISTORY_TOO_SLOW")
}

fn bad_field(reason: &str, field: &str, why: String) -> Status {
    let message = format!("{field}: {why}");
    status(Code::InvalidArgument, message, ErrorDetails::with_bad_request_violation(field, why), reason)
}

fn status(code: Code, message: String, mut details: ErrorDetails, reason: &str) -> Status {
    // History calls write nothing, so a caller may always repeat them.
    details.set_error_info(reason, DOMAIN, HashMap::from([("applied".to_owned(), "no".to_owned())]));
    Status::with_error_details(code, message, details)
}
