//! The one place where a [`Refusal`] becomes a status; so it is where each counts for the metrics, once.

use crate::Refusal;
use crate::metrics;
use std::collections::HashMap;
use std::time::Duration;
use tallystone_model::Applied;
use tallystone_proto::RpcStatus;
use tallystone_proto::status::{rpc_status, to_call, with_retry_delay};
use tallystone_serving::http::FaultBody;
use tonic::{Code, Status};

/// After which time an overloaded server may have room, in ms.
const RETRY_AFTER_MS: u64 = 100;
/// After which time a log that did not answer may do so, in ms.
const UNAVAILABLE_RETRY_AFTER_MS: u64 = 1_000;

/// The status of a refused call.
pub(super) fn of_call(refusal: &Refusal) -> Status {
    to_call(of_refusal(refusal, None))
}

/// The status of a call that is refused because of one of its items.
pub(super) fn of_call_by_item(number: usize, refusal: &Refusal) -> Status {
    to_call(of_refusal(refusal, Some(number)))
}

/// The body of one item of a batch.
pub(super) fn of_item(number: usize, refusal: &Refusal) -> FaultBody {
    FaultBody::of_item(&of_refusal(refusal, Some(number)))
}

fn of_refusal(refusal: &Refusal, item: Option<usize>) -> RpcStatus {
    metrics::refused(refusal);
    let mut metadata = HashMap::new();
    let mut applied = |applied: &str| drop(metadata.insert("applied".to_owned(), applied.to_owned()));
    let code = match refusal {
        Refusal::Invalid { .. } => Code::InvalidArgument,
        Refusal::NamespaceNotFound(_) => Code::NotFound,
        Refusal::Overloaded => {
            applied("no");
            Code::ResourceExhausted
        }
        Refusal::Unavailable { applied: known, .. } => {
            applied(match known {
                Applied::No => "no",
                Applied::Unknown => "unknown",
            });
            Code::Unavailable
        }
        Refusal::DataLoss(_) => Code::DataLoss,
        Refusal::NoCount => Code::Unavailable,
        Refusal::Internal(_) => Code::Internal,
    };
    let retry_after_ms = match refusal {
        Refusal::Overloaded => Some(RETRY_AFTER_MS),
        Refusal::Unavailable { .. } => Some(UNAVAILABLE_RETRY_AFTER_MS),
        _ => None,
    };
    metadata.extend(retry_after_ms.map(|ms| ("retry_after_ms".to_owned(), ms.to_string())));
    let status = match refusal {
        Refusal::Invalid { field, why } => {
            let field = item.map_or_else(|| (*field).to_owned(), |number| format!("views[{number}].{field}"));
            rpc_status(code, format!("{field}: {why}"), refusal.reason(), metadata, Some((field, why.clone())))
        }
        _ => rpc_status(code, refusal.to_string(), refusal.reason(), metadata, None),
    };
    match retry_after_ms {
        Some(ms) => with_retry_delay(status, Duration::from_millis(ms)),
        None => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::response::IntoResponse as _;

    #[test]
    fn v1_a_call_that_may_be_repeated_says_when() {
        let unavailable = Refusal::Unavailable { applied: Applied::No, why: String::new() };
        for (refusal, status, retry_after_s) in
            [(unavailable, 503, Some("1")), (Refusal::Overloaded, 429, Some("1")), (Refusal::NoCount, 503, None)]
        {
            let response = FaultBody::from(of_call(&refusal)).into_response();
            let header = response.headers().get("retry-after").map(|seconds| seconds.to_str().unwrap());
            assert_eq!((response.status().as_u16(), header), (status, retry_after_s), "{refusal}");
        }
    }
}
