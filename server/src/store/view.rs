//! The cached configuration of a shard. Every script call carries the revision that it was prepared for. If the shard has
//! another revision, the script does nothing and returns the current configuration. So a stale view is never acted on,
//! and a change is in force on every server at once (Q2).

use super::bound::OutboxBound;
use super::stored::{Stored, StoredIndex};
use tallystone_lua::keys::Keyspace;
use tallystone_lua::record::{self, ShardState};
use tallystone_model::store::Queue;
use tallystone_model::{Filter, QueueConfig, QueueName, Refusal, Shard};

/// One revision of a shard's configuration, with the arguments of its scripts.
#[derive(Debug)]
pub(super) struct View {
    pub(super) stored: Stored,
    /// The revision that scripts compare with the shard's.
    pub(super) revision: u32,
    pub(super) created_at_ms: u64,
    pub(super) timeline_begin: u64,
    /// KEYS of every script.
    pub(super) keys: Vec<String>,
    /// The third argument of every script.
    pub(super) parameters: Vec<u8>,
    /// The bound that a refusal names.
    pub(super) outbox_events_max: u64,
}

impl View {
    pub(super) fn read(
        shard: &Shard,
        stored: &[u8],
        state: &[u8],
        outbox: &OutboxBound,
        keyspace: &Keyspace,
    ) -> Result<View, Refusal> {
        let unreadable =
            |why: &dyn std::fmt::Display| Refusal::Internal(format!("configuration of '{}': {why}", shard.queue));
        let stored = Stored::read(stored).map_err(|error| unreadable(&error))?;
        let ShardState { revision, created_at_ms, timeline_begin, .. } =
            record::decode_state(state).map_err(|error| unreadable(&error))?;
        let keys = keyspace.shard(shard).all(stored.indexes.iter().map(|index| index.slot));
        let parameters = parameters(shard, &stored, outbox);
        let outbox_events_max = outbox.events_max.into();
        Ok(View { stored, revision, created_at_ms, timeline_begin, keys, parameters, outbox_events_max })
    }

    pub(super) fn config(&self) -> &QueueConfig {
        &self.stored.config
    }

    /// Whether the shard is one of several of its queue, or was one.
    pub(super) fn is_of_several(&self) -> bool {
        self.stored.member.is_some()
    }

    pub(super) fn queue(&self, name: &QueueName) -> Queue {
        Queue {
            name: name.clone(),
            config: self.config().clone(),
            revision: self.stored.revision,
            created_at_ms: self.created_at_ms,
            spread: self.stored.spread.clone(),
        }
    }

    /// The index of a filter, and its position in the parameters (from 1).
    pub(super) fn index_of(&self, filter: &Filter) -> Option<(u8, &StoredIndex)> {
        let keys = filter.index_keys();
        let at = self.stored.indexes.iter().position(|index| index.keys == keys)?;
        Some((at as u8 + 1, &self.stored.indexes[at]))
    }
}

/// In the first byte of the parameters; `lib/complete/batch.lua` reads it.
const FORGETS: u8 = 2;
/// The same: the queue has several shards. `lib/dequeue/reply.lua` reads it.
const OF_SEVERAL: u8 = 4;

/// The same: it is closed (Q17). `enqueue.lua` reads it.
const CLOSED: u8 = 8;

/// The parameters in the layout that `lib/shard.lua` and `lib/index.lua` decode.
fn parameters(shard: &Shard, stored: &Stored, outbox: &OutboxBound) -> Vec<u8> {
    let config = &stored.config;
    let generation = stored.layout().generation_or_current(shard.number);
    let share = |bound| generation.share(bound);
    let mut out = Vec::with_capacity(64);
    let forgets = FORGETS * u8::from(config.forgets_completed(&shard.queue));
    let closed = stored.spread.as_ref().is_some_and(|spread| spread.closes(shard.number));
    let of_several = OF_SEVERAL * u8::from(stored.member.is_some());
    out.push(u8::from(config.queue_type.key().is_some()) + forgets + of_several + CLOSED * u8::from(closed));
    out.extend_from_slice(&(config.lease_ms as u32).to_be_bytes());
    out.extend_from_slice(&six(config.invisibility_ms));
    out.extend_from_slice(&(config.max_attempts as u16).to_be_bytes());
    out.extend_from_slice(&six(config.terminal_retention_ms));
    out.push(config.retry_backoff.kind as u8);
    out.extend_from_slice(&six(config.retry_backoff.base_ms));
    out.extend_from_slice(&six(config.retry_backoff.max_ms));
    out.push(config.retry_backoff.jitter_percent);
    out.extend_from_slice(&six(share(config.max_depth)));
    let (refuse_at, keep) = outbox.limits(&shard.queue);
    out.extend_from_slice(&refuse_at.to_be_bytes());
    out.extend_from_slice(&keep.to_be_bytes());
    out.extend_from_slice(&outbox.payload_bytes_kept.to_be_bytes());
    out.extend_from_slice(&six(config.errored_retention_ms));
    out.extend_from_slice(&six(share(config.max_errored)));
    out.extend_from_slice(&six(share(config.max_errored_bytes)));
    out.extend_from_slice(&outbox.errored_payload_bytes().to_be_bytes());
    out.extend_from_slice(&six(config.id_window_ms));
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

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::Spread;

    #[test]
    fn q17_the_parameters_of_a_shard_say_that_it_is_closed() {
        let mut stored = Stored::new(QueueConfig::default());
        let spread = Spread::changed(&stored.config, None, 4).unwrap();
        stored.take_spread(&spread, 1);
        let shard = |number| Shard { queue: QueueName::parse("queue", "q").unwrap(), number };
        let flags = |stored: &Stored, number| parameters(&shard(number), stored, &OutboxBound::default())[0];
        assert_eq!([0, 1, 4].map(|number| flags(&stored, number)), [OF_SEVERAL + CLOSED, OF_SEVERAL, OF_SEVERAL]);
        assert_eq!(flags(&Stored::new(QueueConfig::default()), 0), 0);
    }
}
