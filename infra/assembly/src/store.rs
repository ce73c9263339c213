//! `tallystone store`: the identity marks of a Redis, and the operator's word that takes it over as it is.

use serde::Serialize;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_link::{ConnectError, RedisConfig};
use tallystone_server::store::RedisStore;
use tallystone_views::log::ViewLog;

/// What was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedStore {
    /// The new identity mark of the queues; `None`: no process has noticed a loss of them.
    pub queues: Option<String>,
    /// The new identity mark of the counters; `None`: no process has noticed a loss of them.
    pub counters: Option<String>,
    /// The new identity mark of the log of views; `None`: no process has noticed a loss of it.
    pub views: Option<String>,
}

/// Accepts the data that a Redis has now, after it was deleted or is older than it was (X7). Running processes continue with
/// it.
pub async fn accept_store(redis: &RedisConfig) -> Result<AcceptedStore, ConnectError> {
    Ok(AcceptedStore {
        queues: RedisStore::accept(redis).await?,
        counters: RedisNamespaces::accept(redis).await?,
        views: ViewLog::accept(redis).await?,
    })
}

/// The identity marks that a Redis has, for `redis.store_ids`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoreMarks {
    /// Those of the queues: one for each partition.
    pub queues: Vec<String>,
    /// Those of the counters: one for each partition.
    pub counters: Vec<String>,
    /// That of the log of views, if there is one.
    pub views: Vec<String>,
}

/// Reads the identity marks of a Redis (X7). It changes nothing.
pub async fn store_marks(redis: &RedisConfig) -> Result<StoreMarks, ConnectError> {
    Ok(StoreMarks {
        queues: RedisStore::marks(redis).await?,
        counters: RedisNamespaces::marks(redis).await?,
        views: ViewLog::marks(redis).await?,
    })
}
