//! What can go wrong, and how it is read from the wire: a gRPC status, of a call or of one item, whose
//! google.rpc details carry the reason.

use std::collections::BTreeMap;
use tallystone_proto::RpcStatus;
use tonic_types::{ErrorDetails, RpcStatusExt as _, StatusExt as _};

/// The answer of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The answer of a batch: of the whole call, then of each item, in the order of the request. One refused item
/// never spoils the others.
pub type Items<T> = Result<Vec<Result<T, Refused>>>;

/// Why a call failed as a whole.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused the call. It changed nothing.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No answer, though the call was repeated for as long as [`retry_for`](crate::ClientBuilder::retry_for)
    /// allows. It is safe to call again, whatever `applied` says: every call is idempotent, but for adds to counters
    /// without [a token of one's own](crate::CounterClient#every-add-has-a-token).
    #[error("unavailable ({applied}): {message}")]
    Unavailable {
        /// Whether the write may have happened.
        applied: Applied,
        /// What went wrong last.
        message: String,
    },
    /// The address is no address, or (only from [`Client::connect`](crate::Client::connect) and the like) nobody listens there.
    #[error("cannot connect to {url}: {message}")]
    Connect {
        /// Where to.
        url: String,
        /// What went wrong.
        message: String,
    },
    /// The server answered what this client does not understand.
    #[error("protocol error: {0}")]
    Protocol(String),
}

/// Whether a write of which no answer came may have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Applied {
    /// It certainly did not happen.
    No,
    /// It may have happened.
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
#[error("{message}")]
pub struct Refused {
    /// The kind, by the common codes of gRPC.
    pub code: tonic::Code,
    /// The reason, stable and for programs to compare: `LEASE_LOST`, `QUEUE_NOT_FOUND`, `ID_CONFLICT` …
    /// (the protocol file lists them). Empty where something other than a Tallystone server answered.
    pub reason: String,
    /// A sentence for a person.
    pub message: String,
    /// The field at fault, for `INVALID_ARGUMENT`.
    pub field: Option<String>,
    /// Facts that go with the reason.
    pub metadata: BTreeMap<String, String>,
}

impl Refused {
    /// Whether the lease of this item is over: the holder must stop, its work is (or will be) another's.
    pub fn is_lease_lost(&self) -> bool {
        self.reason == "LEASE_LOST"
    }

    /// Whether the same call may succeed a little later.
    pub fn is_unavailable(&self) -> bool {
        self.code == tonic::Code::Unavailable
    }

    /// An item whose answer made no sense.
    pub(crate) fn protocol(message: &str) -> Self {
        let (reason, message) = (String::new(), message.to_owned());
        Refused { code: tonic::Code::Internal, reason, message, field: None, metadata: BTreeMap::new() }
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
        }
    }
}

impl Error {
    /// Whether repeating the call may help. The client has done so already, for as long as it was told to.
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

    /// No answer within the deadline.
    pub(crate) fn deadline(after: std::time::Duration) -> Self {
        Error::Unavailable { applied: Applied::Unknown, message: format!("no answer within {after:?}") }
    }

    /// A call's status: an answer of the server, or what the transport made of a broken connection.
    pub(crate) fn from_status(status: &tonic::Status) -> Self {
        use tonic::Code;
        let refused = Refused::from_parts(status.code(), status.message().to_owned(), &status.get_error_details());
        // Only what arose on this side (a connection refused, reset or closed) has a source.
        let broken = std::error::Error::source(status).is_some();
        match refused.code {
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {}
            _ if broken => {}
            _ => return Error::Refused(refused),
        }
        let certainly_not = refused.metadata.get("applied").is_some_and(|applied| applied == "no");
        let applied = if certainly_not || never_sent(status) { Applied::No } else { Applied::Unknown };
        Error::Unavailable { applied, message: refused.message }
    }
}

/// Whether the connection was never made.
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
