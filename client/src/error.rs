//! Errors, and how they are read from a gRPC status, of a call or of one item: its google.rpc details carry the
//! reason.

use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_proto::RpcStatus;
use tonic_types::{ErrorDetails, RpcStatusExt as _, StatusExt as _};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The results of a batch: of the whole call, then of each item in the order of the request. One refused item never
/// spoils the others.
pub type Items<T> = Result<Vec<Result<T, Refused>>>;

/// Why a call failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused the call. [`Refused::applied`] says whether an earlier attempt may still change something.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No answer, although the call was repeated for [`retry_for`](crate::ClientBuilder::retry_for). Calling again is
    /// safe, whatever `applied` says. The one exception: adds to counters without
    /// [the caller's token](crate::CounterClient#every-add-has-a-token).
    #[error("unavailable ({applied}): {message}")]
    Unavailable {
        /// Whether the write may have taken effect.
        applied: Applied,
        /// What failed last.
        message: String,
    },
    /// The URL is invalid or, from [`Client::connect`](crate::Client::connect) and
    /// [`ClientBuilder::connect`](crate::ClientBuilder::connect), no server accepts the connection.
    #[error("cannot connect to {url}: {message}")]
    Connect {
        /// The URL.
        url: String,
        /// What failed.
        message: String,
    },
    /// The server sent a response that this client does not understand.
    #[error("protocol error: {0}")]
    Protocol(String),
}

/// Whether a write without an answer may have taken effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Applied {
    /// It certainly did not.
    No,
    /// It may have.
    Unknown,
}

impl std::fmt::Display for Applied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Applied::No => "nothing was written",
            Applied::Unknown => "it may have been written",
        })
    }
}

/// A call, or one item of a batch, that the server refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", if *applied == Applied::Unknown { "; an earlier attempt without an answer may still take effect" } else { "" })]
pub struct Refused {
    /// The gRPC status code.
    pub code: tonic::Code,
    /// The reason, for programs to compare: `LEASE_LOST`, `QUEUE_NOT_FOUND`, `ID_CONFLICT` … The protocol files list all
    /// of them. Empty if a proxy answered instead of a Tallystone server.
    pub reason: String,
    /// A sentence for a person.
    pub message: String,
    /// The field at fault, for `INVALID_ARGUMENT`.
    pub field: Option<String>,
    /// Details of the reason, such as the state of the message.
    pub metadata: BTreeMap<String, String>,
    /// [`Applied::No`]: nothing was written. [`Applied::Unknown`]: this attempt wrote nothing, but an earlier or a hedged one of the same
    /// call has no answer. It may still take effect when what refused this one has changed: the queue has room, or the counter is within
    /// its bounds.
    pub applied: Applied,
    /// With `OVERLOADED`, `TOO_MANY_WAITERS` and `WITHDRAWN`: the same call may succeed after this time. The client has repeated it already.
    pub retry_after: Option<Duration>,
}

impl Refused {
    /// Whether the lease of this item has ended. The worker must stop: another one runs the message, or will.
    pub fn is_lease_lost(&self) -> bool {
        self.reason == "LEASE_LOST"
    }

    /// Whether the same call may succeed later.
    pub fn is_unavailable(&self) -> bool {
        self.code == tonic::Code::Unavailable
    }

    /// An item whose result this client does not understand.
    pub(crate) fn protocol(message: &str) -> Self {
        let (reason, message) = (String::new(), message.to_owned());
        let code = tonic::Code::Internal;
        let (field, metadata, applied, retry_after) = (None, BTreeMap::new(), Applied::No, None);
        Refused { code, reason, message, field, metadata, applied, retry_after }
    }

    /// The same of a call with an attempt that has no answer, if it has one.
    pub(crate) fn of_call(self, unanswered: bool) -> Self {
        let applied = if unanswered { Applied::Unknown } else { self.applied };
        Refused { applied, ..self }
    }

    /// The refusal of one item.
    pub(crate) fn from_item(status: RpcStatus) -> Self {
        let details = status.get_error_details();
        Refused::from_parts(tonic::Code::from_i32(status.code), status.message, &details)
    }

    fn from_parts(code: tonic::Code, message: String, details: &ErrorDetails) -> Self {
        let info = details.error_info();
        Refused {
            code,
            reason: info.map(|info| info.reason.clone()).unwrap_or_default(),
            message,
            field: details
                .bad_request()
                .and_then(|bad| bad.field_violations.first())
                .map(|violation| violation.field.clone()),
            metadata: info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default(),
            applied: Applied::No,
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
        }
    }
}

impl Error {
    /// Whether the same call may succeed later. The client has repeated it already, for
    /// [`retry_for`](crate::ClientBuilder::retry_for).
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    /// The refusal, if it is one.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Error::Refused(refused) => Some(refused),
            _ => None,
        }
    }

    /// A refusal of a call with an attempt that has no answer, if it has one, says so.
    pub(crate) fn of_call(self, unanswered: bool) -> Self {
        match self {
            Error::Refused(refused) => Error::Refused(refused.of_call(unanswered)),
            error => error,
        }
    }

    /// No answer within the deadline.
    pub(crate) fn deadline(after: Duration) -> Self {
        Error::Unavailable { applied: Applied::Unknown, message: format!("no answer within {after:?}") }
    }

    /// A call's status: the server's, or the transport's for a broken connection.
    pub(crate) fn from_status(status: &tonic::Status) -> Self {
        use tonic::Code;
        let refused = Refused::from_parts(status.code(), status.message().to_owned(), &status.get_error_details());
        // Only a status that arose on this side (a connection refused, reset or closed) has a source.
        let broken = std::error::Error::source(status).is_some();
        match refused.code {
            // The server has answered: the count needs more time (N19).
            Code::DeadlineExceeded if refused.reason == "NOT_EXACT_YET" => return Error::Refused(refused),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {}
            _ if broken => {}
            _ => return Error::Refused(refused),
        }
        let certainly_not = refused.metadata.get("applied").is_some_and(|applied| applied == "no");
        let applied = if certainly_not || never_sent(status) { Applied::No } else { Applied::Unknown };
        Error::Unavailable { applied, message: refused.message }
    }
}

/// Whether the request was never sent: the connection could not be opened.
fn never_sent(status: &tonic::Status) -> bool {
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}
