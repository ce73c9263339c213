//! The options of the store.

use super::bound::OutboxBound;
use tallystone_link::{Clock, ConnectError, RedisAccess, RedisConfig, ReplicaWait, Room};
use tallystone_model::limits::UNDECLARED_INDEX_ENTRIES_MAX;

/// How to reach Redis, and what is required of it.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// Where Redis is: `redis.url`.
    pub url: String,
    /// The partitions of the store: several on a Redis Cluster, otherwise 1. Stored data depends on it.
    pub partitions: u16,
    /// The user and the files with which it is reached.
    pub access: RedisAccess,
    /// The identity marks that its data may have; empty: any.
    pub store_ids: Vec<String>,
    /// Work with a Redis that may lose acknowledged writes (Q16).
    pub allow_volatile: bool,
    /// The number of replicas that must hold each write before the caller gets its answer; 0: none (Q16).
    pub replicas_min: u32,
    /// The longest wait for them, in ms.
    pub replica_wait_ms: u64,
    /// They must have fsynced it, too.
    pub replicas_fsync: bool,
    /// The bound of each outbox.
    pub outbox: OutboxBound,
    /// A filter index that was not declared is dropped when no filter has used it for so long.
    pub index_unused_ms: u64,
    /// The entries that undeclared indexes of all queues may have together.
    pub undeclared_entries_max: u64,
    /// Between two checks of the shards of queues that have several.
    pub shard_check_ms: u64,
    /// The clock of the scripts.
    pub clock: Clock,
    /// The room for more data.
    pub room: Room,
}

impl Default for RedisOptions {
    fn default() -> Self {
        RedisOptions {
            url: "redis://127.0.0.1:6379".to_owned(),
            partitions: 1,
            access: RedisAccess::default(),
            store_ids: Vec::new(),
            allow_volatile: false,
            replicas_min: 0,
            replica_wait_ms: 1_000,
            replicas_fsync: false,
            outbox: OutboxBound::default(),
            index_unused_ms: 3_600_000,
            undeclared_entries_max: UNDECLARED_INDEX_ENTRIES_MAX,
            shard_check_ms: 60_000,
            clock: Clock::default(),
            room: Room::default(),
        }
    }
}

impl RedisOptions {
    /// The options that a configuration gives.
    ///
    /// # Errors
    /// [`ConnectError::File`]: `redis.data_dir` cannot be used.
    pub fn new(redis: &RedisConfig, outbox: OutboxBound) -> Result<RedisOptions, ConnectError> {
        let (clock, access) = (redis.clock("queues"), redis.access());
        let RedisConfig { url, store_ids, allow_volatile, .. } = redis.clone();
        let RedisConfig { replicas_min, replica_wait_ms, replicas_fsync, .. } = *redis;
        Ok(RedisOptions {
            clock,
            room: redis.room("queues")?,
            url,
            partitions: redis.partition_count(),
            access,
            store_ids,
            allow_volatile,
            replicas_min,
            replica_wait_ms,
            replicas_fsync,
            outbox,
            ..RedisOptions::default()
        })
    }

    /// The replicas that each write waits for.
    pub(super) fn replicas(&self) -> ReplicaWait {
        ReplicaWait { replicas_min: self.replicas_min, wait_ms: self.replica_wait_ms, fsync: self.replicas_fsync }
    }
}
