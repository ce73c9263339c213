//! The statuses of callers that are unknown or may not do what they want.

use super::book::Unknown;
use super::right::Right;
use std::collections::HashMap;
use std::time::Duration;
use tallystone_proto::RpcStatus;
use tallystone_proto::status::{rpc_status, to_call, with_retry_delay};
use tonic::{Code, Status};

/// The metadata of an UNAVAILABLE whose call has changed nothing.
pub(super) fn not_applied() -> HashMap<String, String> {
    HashMap::from([("applied".to_owned(), "no".to_owned())])
}

/// How long an identity provider may take.
const KEY_RETRY: Duration = Duration::from_secs(1);

pub(super) fn unknown_caller(why: Unknown) -> Status {
    let (reason, message) = match why {
        Unknown::KeyPending => {
            let message = "the key that has signed the token is not known yet: call again".to_owned();
            let status = rpc_status(Code::Unavailable, message, "KEY_PENDING", not_applied(), None);
            return to_call(with_retry_delay(status, KEY_RETRY));
        }
        Unknown::Missing => ("NO_CREDENTIAL", "this server needs a token, or a client certificate"),
        Unknown::Bad => ("BAD_CREDENTIAL", "this server does not know the token or the client certificate"),
        Unknown::Expired => ("EXPIRED", "the token or the client certificate has expired"),
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
