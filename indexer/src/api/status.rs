//! The one place where what a call cannot do becomes a gRPC status.
//!
//! Every status carries `google.rpc.ErrorInfo` (domain "tallystone" and a reason for programs to compare); a malformed
//! request also `google.rpc.BadRequest` with the field.

use crate::store::HistoryError;
use std::collections::HashMap;
use tallystone_model::Refusal;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// The ErrorInfo domain of every status: that of the whole program.
const DOMAIN: &str = "tallystone";
const INVALID_ARGUMENT: &str = "INVALID_ARGUMENT";
/// The page token is older than an hour: begin again.
const PAGE_TOKEN_EXPIRED: &str = "PAGE_TOKEN_EXPIRED";
/// The page token is none of ours, or of another query.
const PAGE_TOKEN_INVALID: &str = "PAGE_TOKEN_INVALID";

/// A field that cannot be answered.
pub(super) fn invalid(field: &str, why: impl Into<String>) -> Status {
    bad_field(INVALID_ARGUMENT, field, why.into())
}

/// The page token was given too long ago.
pub(super) fn token_expired() -> Status {
    bad_field(PAGE_TOKEN_EXPIRED, "page_token", "is older than an hour; begin with the first page".to_owned())
}

/// The page token was not given for this query.
pub(super) fn token_invalid() -> Status {
    bad_field(PAGE_TOKEN_INVALID, "page_token", "is not of this query".to_owned())
}

/// A field that the queue's own rules refuse.
pub(super) fn of_refusal(refusal: Refusal) -> Status {
    match refusal {
        Refusal::Invalid { field, why } => invalid(field, why),
        other => status(Code::Internal, other.to_string(), ErrorDetails::new(), other.reason()),
    }
}

/// The store does not answer, or not as it should.
pub(super) fn of_store(error: HistoryError) -> Status {
    let (code, reason) = match error {
        HistoryError::Unavailable(_) => (Code::Unavailable, "HISTORY_UNAVAILABLE"),
        HistoryError::Failed(_) => (Code::Internal, "HISTORY_FAILED"),
    };
    // The store's own words are for the operator.
    tracing::warn!(%error, "history was asked in vain");
    status(code, error.to_string(), ErrorDetails::new(), reason)
}

/// The caller's deadline, or ours, came first.
pub(super) fn too_late() -> Status {
    let message = "the history store did not answer in time".to_owned();
    status(Code::DeadlineExceeded, message, ErrorDetails::new(), "HISTORY_TOO_SLOW")
}

fn bad_field(reason: &str, field: &str, why: String) -> Status {
    let message = format!("{field}: {why}");
    status(Code::InvalidArgument, message, ErrorDetails::with_bad_request_violation(field, why), reason)
}

fn status(code: Code, message: String, mut details: ErrorDetails, reason: &str) -> Status {
    // Nothing here writes: whoever repeats the call need not think of that.
    details.set_error_info(reason, DOMAIN, HashMap::from([("applied".to_owned(), "no".to_owned())]));
    Status::with_error_details(code, message, details)
}
