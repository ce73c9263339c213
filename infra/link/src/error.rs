//! A failed command, and whether it took effect.

use crate::offset::Sight;
use metrics::{counter, describe_counter};
use redis::{ErrorKind, RedisError, ServerError};
use tallystone_model::{Applied, Refusal, Resource};

/// A failed command, and whether it took effect.
#[derive(Debug)]
pub struct LinkError {
    /// The error of the client or of the server.
    pub source: RedisError,
    pub(crate) applied: Applied,
    /// The connection is of no more use: it broke, or leads to a node that has become a replica.
    pub(crate) lost: bool,
    /// Nothing was sent: the store is not what it was (X7).
    pub(crate) is_data_loss: bool,
    /// Nothing was sent: the connection leads to this primary, and the call was made for another timeline.
    pub(crate) elsewhere: Option<Sight>,
}

/// The code of Redis's answer while it cannot write its data to its disk: it refuses every write.
const DISK_ERROR: &str = "MISCONF";
const DISK_ERRORS: &str = "tallystone_store_disk_errors_total";

/// Shows the counter of such answers from 0 on.
pub(crate) fn begin_disk_errors() {
    describe_counter!(DISK_ERRORS, "calls that Redis refused because it cannot write to its disk (MISCONF)");
    counter!(DISK_ERRORS).increment(0);
}

/// The code of a node of a Redis Cluster that does not have the slot of the command.
pub(crate) const MOVED: &str = "MOVED";

/// Whether Redis has answered as a replica does. Its address may already lead to the new primary.
pub(crate) fn is_of_a_replica(code: Option<&str>) -> bool {
    matches!(code, Some("READONLY" | "MASTERDOWN" | "UNBLOCKED"))
}

/// Whether a node is giving the slot of the command to another one, key by key. A module answers `TRYAGAIN` for other reasons, too.
fn is_moving(error: &RedisError) -> bool {
    let is_of_keys = || error.detail().is_some_and(|detail| detail.contains("rehashing"));
    error.code() == Some("ASK") || error.code() == Some("TRYAGAIN") && is_of_keys()
}

fn disk_error(error: &RedisError) -> String {
    let why = error.detail().unwrap_or_default();
    format!("Redis cannot write to its disk, and refuses every write until it can: {why}")
}

fn slot_moves(error: &RedisError) -> String {
    format!(
        "the slot of these keys is MIGRATING to another node of the Redis Cluster ({error}): calls go on when the move has \
         ended; `redis-cli --cluster fix` ends one that was interrupted"
    )
}

impl LinkError {
    /// No connection could be opened.
    pub(crate) fn before(error: RedisError) -> Self {
        LinkError { source: error, applied: Applied::No, lost: true, is_data_loss: false, elsewhere: None }
    }

    /// The command was sent.
    pub(crate) fn after(error: RedisError) -> Self {
        // An answer from the server, even an error, proves that the connection works.
        let answered = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        if error.code() == Some(DISK_ERROR) {
            counter!(DISK_ERRORS).increment(1);
        }
        let applied = if answered { Applied::No } else { Applied::Unknown };
        let leads_elsewhere = is_of_a_replica(error.code()) || error.code() == Some(MOVED);
        LinkError { source: error, applied, lost: !answered || leads_elsewhere, is_data_loss: false, elsewhere: None }
    }

    /// Another node of the Redis Cluster has the slot of the command, which was not executed.
    pub(crate) fn is_moved(&self) -> bool {
        self.source.code() == Some(MOVED)
    }

    /// The write was executed, and it is not known whether enough replicas have it. `lost`: the connection is of no more use.
    pub(crate) fn unconfirmed(lost: bool, why: String) -> Self {
        let error = RedisError::from((ErrorKind::Client, "too few replicas", why));
        LinkError { source: error, applied: Applied::Unknown, lost, is_data_loss: false, elsewhere: None }
    }

    /// The store has no memory left for what the command would write.
    pub(crate) fn is_full(&self) -> bool {
        self.source.code() == Some("OOM")
    }

    /// The store is not what it was.
    pub(crate) fn data_loss(why: String) -> Self {
        let error = RedisError::from((ErrorKind::Client, "data loss", why));
        LinkError { source: error, applied: Applied::No, lost: false, is_data_loss: true, elsewhere: None }
    }

    /// The connection leads to this primary, and the call was made for another timeline.
    pub(crate) fn other_timeline(found: Sight) -> Self {
        let error = RedisError::from((ErrorKind::Client, "Redis was replaced since the call was made"));
        LinkError { source: error, applied: Applied::No, lost: false, is_data_loss: false, elsewhere: Some(found) }
    }
}

/// The error of one command of a pipeline ([`crate::Link::calls`]).
impl From<ServerError> for LinkError {
    fn from(error: ServerError) -> LinkError {
        LinkError::after(error.into())
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Refusal {
        if error.is_data_loss {
            return Refusal::DataLoss { why: error.source.detail().unwrap_or_default().to_owned() };
        }
        let why = error.source.to_string();
        match error.source.code() {
            Some("OOM") => Refusal::StoreFull { of: Resource::Memory },
            // Refused before anything was executed.
            Some(DISK_ERROR) => Refusal::Unavailable { applied: Applied::No, why: disk_error(&error.source) },
            Some(_) if is_moving(&error.source) => {
                Refusal::Unavailable { applied: Applied::No, why: slot_moves(&error.source) }
            }
            // The same: loading, a replica, an unknown script.
            Some(
                "LOADING" | "READONLY" | "NOSCRIPT" | "BUSY" | "NOREPLICAS" | "CLUSTERDOWN" | "MASTERDOWN" | "TRYAGAIN"
                | MOVED,
            ) => Refusal::Unavailable { applied: Applied::No, why },
            // A defect (wrong type, an error in a script): a retry would fail again.
            Some(_) if !error.lost => Refusal::Internal(why),
            _ => Refusal::Unavailable { applied: error.applied, why },
        }
    }
}
