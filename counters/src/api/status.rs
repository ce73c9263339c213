//! The one place where a [`Refusal`] becomes a gRPC status, of a call or of one item of a batch; so it is where each counts
//! for the metrics, once.

use crate::refusal::Refusal;
use std::collections::HashMap;
use std::time::Duration;
use tallystone_model::Applied;
use tallystone_proto::RpcStatus;
use tallystone_proto::status::{rpc_status, to_call, with_retry_delay};
use tonic::{Code, Status};

/// The status of a refused call.
pub(super) fn of_call(refusal: Refusal) -> Status {
    to_call(of_refusal(&refusal, None))
}

/// The status of one item of a batch, such as item 3 of `adds`.
pub(super) fn of_item(list: &str, index: usize, refusal: &Refusal) -> RpcStatus {
    of_refusal(refusal, Some(format!("{list}[{index}]")))
}

/// `path`: within what a bad field lies.
fn of_refusal(refusal: &Refusal, path: Option<String>) -> RpcStatus {
    crate::metrics::refused(refusal);
    let mut metadata = HashMap::new();
    let code = match refusal {
        Refusal::Invalid { .. } => Code::InvalidArgument,
        Refusal::NamespaceNotFound { namespace } => {
            metadata.insert("namespace".to_owned(), namespace.clone());
            Code::NotFound
        }
        Refusal::CounterNotFound { counter } => {
            metadata.insert("counter".to_owned(), counter.clone());
            Code::NotFound
        }
        Refusal::CounterChanged { .. } => Code::Aborted,
        Refusal::EventsDropped { kept_from_ms } => {
            metadata.insert("kept_from_ms".to_owned(), kept_from_ms.to_string());
            Code::FailedPrecondition
        }
        Refusal::TooOld | Refusal::TooEarly | Refusal::Overflow => Code::OutOfRange,
        Refusal::BoundReached { count } => {
            metadata.insert("count".to_owned(), count.to_string());
            Code::FailedPrecondition
        }
        Refusal::TokenConflict => Code::AlreadyExists,
        Refusal::TokenExpired | Refusal::PositionExpired => Code::FailedPrecondition,
        Refusal::Stale => Code::Aborted,
        Refusal::NotExactYet { exact_to_ms } => {
            metadata.insert("exact_to_ms".to_owned(), exact_to_ms.to_string());
            Code::DeadlineExceeded
        }
        Refusal::Overloaded { retry_after_ms } => {
            metadata.insert("applied".to_owned(), "no".to_owned());
            metadata.insert("retry_after_ms".to_owned(), retry_after_ms.to_string());
            Code::ResourceExhausted
        }
        Refusal::Unavailable { applied, .. } => {
            let applied = match applied {
                Applied::No => "no",
                Applied::Unknown => "unknown",
            };
            metadata.insert("applied".to_owned(), applied.to_owned());
            Code::Unavailable
        }
        Refusal::DataLoss { .. } => Code::DataLoss,
        Refusal::ClockSkew { offset_ms, skew_max_ms } => {
            metadata.insert("applied".to_owned(), "no".to_owned());
            metadata.insert("offset_ms".to_owned(), offset_ms.to_string());
            metadata.insert("clock_skew_max_ms".to_owned(), skew_max_ms.to_string());
            Code::Unavailable
        }
        Refusal::Internal(_) => Code::Internal,
    };
    match refusal {
        Refusal::Invalid { field, why } => {
            let field = match path {
                None => (*field).to_owned(),
                // The item as a whole.
                Some(path) if field.is_empty() => path,
                Some(path) => format!("{path}.{field}"),
            };
            let message = format!("{field}: {why}");
            rpc_status(code, message, refusal.reason(), metadata, Some((field, why.clone())))
        }
        Refusal::Overloaded { retry_after_ms } => {
            let status = rpc_status(code, refusal.to_string(), refusal.reason(), metadata, None);
            with_retry_delay(status, Duration::from_millis(*retry_after_ms))
        }
        _ => rpc_status(code, refusal.to_string(), refusal.reason(), metadata, None),
    }
}
