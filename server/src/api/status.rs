//! The one place where a [`Refusal`] becomes a gRPC status: of a call, or of one item of a batch.
//!
//! Every status carries `google.rpc.ErrorInfo`: domain "tallystone", the reason of [`Refusal::reason`], and metadata for
//! programs. The status of a malformed request also carries `google.rpc.BadRequest` with the field.

use std::collections::HashMap;
use std::time::Duration;
use tallystone_model::{Applied, Refusal};
use tallystone_proto::RpcStatus;
use tallystone_proto::status::{rpc_status, to_call, with_retry_delay};
use tonic::{Code, Status};

/// When a caller that was not allowed to wait should call again.
const WAIT_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The status of a refused call.
pub(crate) fn of_call(refusal: Refusal) -> Status {
    to_call(of_refusal(&refusal, None))
}

/// The status of a call that was refused for a field within `path`, such as `config`.
pub(crate) fn within(path: &str, refusal: Refusal) -> Status {
    let field = join(path, &refusal);
    to_call(of_refusal(&refusal, field))
}

/// The status of a call that was refused for a field which `field` names better, such as `filters[2]`.
pub(crate) fn at_field(field: String, refusal: Refusal) -> Status {
    to_call(of_refusal(&refusal, Some(field)))
}

/// The status of one item of a batch, such as item 3 of `messages`.
pub(crate) fn of_item(list: &str, index: usize, refusal: &Refusal) -> RpcStatus {
    of_refusal(refusal, join(&format!("{list}[{index}]"), refusal))
}

/// The status of one message of a selection.
pub(crate) fn of_message(refusal: &Refusal) -> RpcStatus {
    of_refusal(refusal, None)
}

/// The status of a call that ends because the server stops: call again, another server will answer.
pub(crate) fn stopping() -> Status {
    let message = "the server is stopping".to_owned();
    to_call(rpc_status(Code::Unavailable, message, "SERVER_STOPPING", HashMap::new(), None))
}

fn join(path: &str, refusal: &Refusal) -> Option<String> {
    match refusal {
        Refusal::Invalid { field, .. } => Some(format!("{path}.{field}")),
        _ => None,
    }
}

/// `field` replaces the field of a [`Refusal::Invalid`].
fn of_refusal(refusal: &Refusal, field: Option<String>) -> RpcStatus {
    let mut metadata = HashMap::new();
    let mut put = |key: &str, value: &str| metadata.insert(key.to_owned(), value.to_owned());
    let code = match refusal {
        Refusal::Invalid { .. } => Code::InvalidArgument,
        Refusal::QueueNotFound { queue } => {
            put("queue", queue);
            Code::NotFound
        }
        Refusal::MessageNotFound { id } => {
            put("id", id);
            Code::NotFound
        }
        Refusal::IdConflict { id } => {
            put("id", id);
            Code::AlreadyExists
        }
        Refusal::QueueExists { queue } => {
            put("queue", queue);
            Code::AlreadyExists
        }
        Refusal::LeaseLost { id, state } | Refusal::WrongState { id, state } => {
            put("id", id);
            put("state", state.name());
            Code::FailedPrecondition
        }
        Refusal::EnqueueBlocked { queue } | Refusal::DequeueBlocked { queue } | Refusal::QueueNotEmpty { queue } => {
            put("queue", queue);
            Code::FailedPrecondition
        }
        Refusal::IndexBuilding { keys } => {
            put("keys", keys);
            Code::FailedPrecondition
        }
        Refusal::QueueFull { queue, max_depth } => {
            put("queue", queue);
            put("max_depth", &max_depth.to_string());
            Code::ResourceExhausted
        }
        Refusal::OutboxFull { queue, events_max } => {
            put("queue", queue);
            put("events_max", &events_max.to_string());
            Code::ResourceExhausted
        }
        Refusal::TooManyIndexes { queue } => {
            put("queue", queue);
            Code::ResourceExhausted
        }
        Refusal::TooManyWaiters { queue, max, .. } => {
            put("queue", queue);
            put("max", &max.to_string());
            Code::ResourceExhausted
        }
        Refusal::TenantQuota { tenant, quota, max, .. } => {
            put("tenant", tenant);
            put("quota", quota);
            put("max", &max.to_string());
            Code::ResourceExhausted
        }
        Refusal::Overloaded { retry_after } => {
            put("applied", "no");
            put("retry_after_ms", &retry_after.as_millis().to_string());
            Code::ResourceExhausted
        }
        Refusal::StoreFull { of } => {
            put("resource", of.name());
            Code::ResourceExhausted
        }
        Refusal::Unavailable { applied, .. } => {
            put(
                "applied",
                match applied {
                    Applied::No => "no",
                    Applied::Unknown => "unknown",
                },
            );
            Code::Unavailable
        }
        Refusal::DataLoss { .. } => Code::DataLoss,
        Refusal::ClockSkew { offset_ms, skew_max_ms } => {
            put("applied", "no");
            put("offset_ms", &offset_ms.to_string());
            put("clock_skew_max_ms", &skew_max_ms.to_string());
            Code::Unavailable
        }
        Refusal::Internal(_) => Code::Internal,
    };
    let status = match refusal {
        Refusal::Invalid { field: own, why } => {
            let field = field.unwrap_or_else(|| (*own).to_owned());
            let message = format!("{field}: {why}");
            rpc_status(code, message, refusal.reason(), metadata, Some((field, why.clone())))
        }
        _ => rpc_status(code, refusal.to_string(), refusal.reason(), metadata, None),
    };
    let retry_after = match refusal {
        Refusal::TooManyWaiters { .. } => Some(WAIT_AGAIN_AFTER),
        Refusal::TenantQuota { retry_after, .. } => *retry_after,
        Refusal::Overloaded { retry_after } => Some(*retry_after),
        _ => None,
    };
    match retry_after {
        Some(delay) => with_retry_delay(status, delay),
        None => status,
    }
}
