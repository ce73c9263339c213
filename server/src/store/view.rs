//! What this server believes of a shard's configuration. Every script call carries the revision it was prepared for;
//! a script of another revision does nothing and answers the present one, so a belief is never acted on when it is
//! old (Q2: a change is in force at once on every server).

use super::outbox::OutboxBound;
use serde::{Deserialize, Serialize};
use tallystone_lua::ShardKeys;
use tallystone_lua::record::{self, ShardState};
use tallystone_model::limits::INDEXES_MAX;
use tallystone_model::store::Queue;
use tallystone_model::{Filter, IndexKeys, QueueConfig, QueueName, Refusal, Shard};

/// How coarsely the last use of an index is kept: each refresh is a change of configuration.
const USE_REFRESH_MS: u64 = 600_000;

/// The configuration as it is kept in Redis.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stored {
    pub(super) config: QueueConfig,
    /// Of the configuration, as callers see it; that of the scripts rises with the indexes too.
    pub(super) revision: u32,
    /// At most 8; the slot names its keys.
    pub(super) indexes: Vec<StoredIndex>,
}

/// One filter index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredIndex {
    pub(super) slot: u8,
    pub(super) keys: IndexKeys,
    /// Not all messages that were there before it are in it yet.
    pub(super) building: bool,
    /// When a filter last used it, roughly; declared ones do not age. 0: no filter asked for it before it was declared.
    pub(super) used_at_ms: u64,
}

impl Stored {
    /// A new queue's: its declared indexes are complete, because nothing is there.
    pub(super) fn new(config: QueueConfig) -> Self {
        let mut stored = Stored { config, revision: 1, indexes: Vec::new() };
        for keys in stored.config.indexes.clone() {
            stored.add_index(keys, false, 0);
        }
        stored
    }

    /// Whether the index is there and known to be in use.
    pub(super) fn has_index(&self, keys: &IndexKeys, now_ms: u64) -> bool {
        let is_in_use = |index: &StoredIndex| {
            index.used_at_ms + USE_REFRESH_MS >= now_ms || self.config.indexes.contains(&index.keys)
        };
        self.indexes.iter().any(|index| index.keys == *keys && is_in_use(index))
    }

    /// Makes the index, or notes that it is in use. `false`: no slot is free.
    pub(super) fn use_index(&mut self, keys: &IndexKeys, now_ms: u64) -> bool {
        if self.has_index(keys, now_ms) {
            return true;
        }
        match self.indexes.iter_mut().find(|index| index.keys == *keys) {
            Some(index) => index.used_at_ms = now_ms,
            None => return self.add_index(keys.clone(), true, now_ms),
        }
        true
    }

    /// Gives the index a free slot, unless it is there. `false`: no slot is free.
    pub(super) fn add_index(&mut self, keys: IndexKeys, building: bool, now_ms: u64) -> bool {
        if self.indexes.iter().any(|index| index.keys == keys) {
            return true;
        }
        let free = (0..INDEXES_MAX as u8).find(|slot| self.indexes.iter().all(|index| index.slot != *slot));
        let Some(slot) = free else { return false };
        self.indexes.push(StoredIndex { slot, keys, building, used_at_ms: now_ms });
        true
    }
}

/// One revision of a shard's configuration, ready for scripts.
#[derive(Debug)]
pub(super) struct View {
    pub(super) stored: Stored,
    /// What scripts compare with theirs.
    pub(super) revision: u32,
    pub(super) created_at_ms: u64,
    /// KEYS of every script.
    pub(super) keys: Vec<String>,
    /// The third argument of every script.
    pub(super) parameters: Vec<u8>,
    /// What a refusal names.
    pub(super) outbox_events_max: u64,
}

impl View {
    pub(super) fn read(shard: &Shard, stored: &[u8], state: &[u8], outbox: &OutboxBound) -> Result<View, Refusal> {
        let unreadable =
            |why: &dyn std::fmt::Display| Refusal::Internal(format!("configuration of '{}': {why}", shard.queue));
        let stored: Stored = serde_json::from_slice(stored).map_err(|error| unreadable(&error))?;
        let ShardState { revision, created_at_ms, .. } =
            record::decode_state(state).map_err(|error| unreadable(&error))?;
        let keys = ShardKeys::new(shard).all(stored.indexes.iter().map(|index| index.slot));
        let parameters = parameters(&stored, outbox);
        Ok(View { stored, revision, created_at_ms, keys, parameters, outbox_events_max: outbox.events_max.into() })
    }

    pub(super) fn config(&self) -> &QueueConfig {
        &self.stored.config
    }

    pub(super) fn queue(&self, name: &QueueName) -> Queue {
        Queue {
            name: name.clone(),
            config: self.config().clone(),
            revision: self.stored.revision,
            created_at_ms: self.created_at_ms,
        }
    }

    /// The index that answers a filter, by its position (from 1) in the parameters.
    pub(super) fn index_of(&self, filter: &Filter) -> Option<(u8, &StoredIndex)> {
        let keys = filter.index_keys();
        let at = self.stored.indexes.iter().position(|index| index.keys == keys)?;
        Some((at as u8 + 1, &self.stored.indexes[at]))
    }
}

/// The layout that `lib/shard.lua` and `lib/index.lua` take apart.
fn parameters(stored: &Stored, outbox: &OutboxBound) -> Vec<u8> {
    let config = &stored.config;
    let mut out = Vec::with_capacity(64);
    out.push(u8::from(config.queue_type.key().is_some()));
    out.extend_from_slice(&(config.lease_ms as u32).to_be_bytes());
    out.extend_from_slice(&six(config.invisibility_ms));
    out.extend_from_slice(&(config.max_attempts as u16).to_be_bytes());
    out.extend_from_slice(&six(config.terminal_retention_ms));
    out.push(config.retry_backoff.kind as u8);
    out.extend_from_slice(&six(config.retry_backoff.base_ms));
    out.extend_from_slice(&six(config.retry_backoff.max_ms));
    out.push(config.retry_backoff.jitter_percent);
    out.extend_from_slice(&six(config.max_depth));
    let (refuse_at, keep) = outbox.limits();
    out.extend_from_slice(&refuse_at.to_be_bytes());
    out.extend_from_slice(&keep.to_be_bytes());
    out.extend_from_slice(&outbox.payload_bytes_kept.to_be_bytes());
    out.push(stored.indexes.len() as u8);
    for index in &stored.indexes {
        record::encode_index(index.slot, index.building, &index.keys, &mut out);
    }
    out
}

fn six(number: u64) -> [u8; 6] {
    let [_, _, low @ ..] = number.to_be_bytes();
    low
}
