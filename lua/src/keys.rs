//! The keys of a queue shard: few, fixed, all with one hash tag (Q15, Q17). One function forms every key.

use tallystone_model::Shard;
use tallystone_model::limits::INDEXES_MAX;

/// The names of a shard's keys, in the order of KEYS. Lua knows them as `K_STATE`, `K_CONFIG`, …
pub const NAMES: [&str; 19] = [
    "state",         // string: revision, sequence, counts, the waiting server
    "config",        // string: JSON
    "body",          // hash: id → the content as sent
    "head",          // hash: id → the mutable part; written first by the first change after Enqueue
    "ready",         // sorted set by bytes: runnable messages
    "backlog",       // sorted set by bytes, exclusive queues: the messages behind the head of each value
    "keys",          // hash, exclusive queues: value → its lock or its head
    "invisible",     // sorted set: due time → id
    "running",       // sorted set: lease expiry → id
    "done",          // list: completed and canceled messages by the time they ended
    "requests",      // hash: Dequeue request id, or a server's slot → its leases
    "request_due",   // sorted set: when one of these may be deleted → its name
    "parked",        // sorted set by bytes: heads of filter indexes that wait until their value is free
    "outbox",        // stream: events
    "deleted",       // string, for an hour after DeleteQueue: the type of the queue
    "errored",       // sorted set: when it ended → errored message
    "errored_bytes", // string: the payload bytes of all errored messages
    "attempts",      // hash: id → the last attempts that have ended without success
    "results",       // hash: id → the result of a completed message that has one
];

/// The names of one filter index's keys.
pub const INDEX_NAMES: [&str; 4] = ["order", "counts", "covered", "covered_to"];

/// The registry of queue names: a sorted set by bytes.
pub const QUEUES: &str = "ts:queues";
/// A stream of the queues that are added to the registry; the relay waits on it.
pub const NEW_QUEUES: &str = "ts:queues:new";
/// The shards of deleted queues whose outboxes are not empty yet: a set of tags.
pub const LEFT_OUTBOXES: &str = "ts:outboxes:left";
/// The channel on which servers wake each other.
pub const WAKE_CHANNEL: &str = "ts:wake";

/// Holds the owner of the leader lease of a background job, with the lease's length as its expiry.
pub fn leader_lease(job: &str) -> String {
    format!("ts:leader:{job}")
}

/// The keys of one shard.
#[derive(Clone, Debug)]
pub struct ShardKeys {
    tag: String,
}

impl ShardKeys {
    /// The keys of this shard.
    pub fn new(shard: &Shard) -> Self {
        ShardKeys { tag: shard.tag() }
    }

    /// One of [`NAMES`].
    pub fn key(&self, name: &str) -> String {
        format!("ts:{{{}}}:{name}", self.tag)
    }

    /// The keys of the filter index in a slot.
    pub fn index(&self, slot: u8) -> [String; INDEX_NAMES.len()] {
        debug_assert!(usize::from(slot) < INDEXES_MAX);
        INDEX_NAMES.map(|name| self.key(&format!("index:{slot}:{name}")))
    }

    /// KEYS of a script: the fixed ones, then those of the given index slots.
    pub fn all(&self, slots: impl IntoIterator<Item = u8>) -> Vec<String> {
        let mut keys: Vec<String> = NAMES.iter().map(|name| self.key(name)).collect();
        keys.extend(slots.into_iter().flat_map(|slot| self.index(slot)));
        keys
    }
}

/// The shard of a state key, which is the content of a wake-up.
pub fn shard_of_state_key(key: &str) -> Option<Shard> {
    Shard::of_tag(key.strip_prefix("ts:{")?.strip_suffix("}:state")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::QueueName;

    #[test]
    fn q15_q17_every_key_of_a_shard_is_behind_its_tag() {
        let shard = Shard { queue: QueueName::parse("queue", "a/b").unwrap(), number: 3 };
        let keys = ShardKeys::new(&shard).all([0, 7]);
        assert_eq!(keys.len(), NAMES.len() + 2 * INDEX_NAMES.len());
        assert!(keys.iter().all(|key| key.starts_with("ts:{a/b/3}:")), "{keys:?}");
        assert_eq!(shard_of_state_key(&keys[0]), Some(shard));
        assert_eq!(shard_of_state_key("ts:queues"), None);
    }
}
