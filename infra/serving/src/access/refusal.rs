//! The statuses of callers that are unknown or may not do what they want.

use super::book::Unknown;
use super::right::Right;
use std::collections::HashMap;
use std::time::Duration;
use tallystone_proto::RpcStatus;
use tallystone_proto::status::{rpc_status, to_call, with_retry_delay};
use tonic::{Code, Status};

pub(super) fn unknown_caller(why: Unknown) -> Status {
    let (reason, message) = match why {
        Unknown::Missing => ("NO_CREDENTIAL", "this server needs a token, or a client certificate"),
        Unknown::Bad => ("BAD_CREDENTIAL", "this server does not know the token or the client certificate"),
        Unknown::Expired => ("EXPIRED", "the token has expired"),
    };
    to_call(unauthenticated(reason, message))
}

/// Ends a stream or a wait. To call again makes sense at once: the caller may have other rights now, or a new token.
pub(super) fn withdrawn() -> Status {
    let message = "the token or the client certificate has expired, or its rights have changed: call again";
    to_call(with_retry_delay(unauthenticated("WITHDRAWN", message), Duration::ZERO))
}

fn unauthenticated(reason: &str, message: &str) -> RpcStatus {
    rpc_status(Code::Unauthenticated, message.to_owned(), reason, HashMap::new(), None)
}

/// The answer is the same whether or not something of that name exists.
pub(super) fn no_right(principal: &str, right: Right, resource: &str) -> Status {
    let message = format!("{principal:?} has no right {right} on {resource:?}");
    let metadata = [("right", right.name()), ("resource", resource)];
    let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned()));
    to_call(rpc_status(Code::PermissionDenied, message, "NO_RIGHT", metadata.into(), None))
}
