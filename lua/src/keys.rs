//! The keys of a queue shard: few, fixed, all with one hash tag (Q15, Q17). One function forms every key.
//!
//! A store on a Redis Cluster has partitions (decision 0084). All keys of a partition begin with its hash tag, so they are in one
//! slot, and commands may name any of them together.

use tallystone_model::limits::INDEXES_MAX;
use tallystone_model::{QueueName, Shard};

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
    "deleted",       // string, for a time after DeleteQueue: the type of the queue, and numbers behind its own
    "errored",       // sorted set: when it ended → errored message
    "errored_bytes", // string: the payload bytes of all errored messages
    "attempts",      // hash: id → the last attempts that have ended without success
    "results",       // hash: id → the result of a completed message that has one
];

/// The names of one filter index's keys.
pub const INDEX_NAMES: [&str; 4] = ["order", "counts", "covered", "covered_to"];

/// The channel on which servers wake each other.
pub const WAKE_CHANNEL: &str = "ts:wake";

/// How many partitions the queues have; only where there are several. It is in no partition.
pub const PARTITIONS: &str = "ts:partitions";

/// The slots of a Redis Cluster.
pub const SLOTS: u16 = 16_384;

/// The keys of one partition. The default is a store without partitions: its keys have no prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keyspace {
    prefix: String,
}

/// The keys of one shard.
#[derive(Clone, Debug)]
pub struct ShardKeys {
    prefix: String,
    tag: String,
}

impl Keyspace {
    /// The keys of a partition: `number` of `partitions`, from 0. Its slot is in the middle of its share of all slots, so that
    /// primaries with equal shares of the slots have equal shares of the partitions.
    pub fn partition(number: u16, partitions: u16) -> Self {
        if partitions <= 1 {
            return Keyspace::default();
        }
        let share = |number: u32| number * u32::from(SLOTS) / u32::from(partitions);
        let slot = (share(number.into()) + share(u32::from(number) + 1)) / 2;
        let tag = (0_u32..).map(|suffix| format!("{number}.{suffix}")).find(|tag| u32::from(slot_of(tag)) == slot);
        Keyspace { prefix: format!("{{{}}}", tag.unwrap_or_default()) }
    }

    /// The keys of each of this number of partitions.
    pub fn all(partitions: u16) -> impl Iterator<Item = Keyspace> {
        (0..partitions).map(move |number| Keyspace::partition(number, partitions))
    }

    /// The number of the partition with the keys of this shard. The shards of a queue are in partitions that follow each other.
    pub fn number_of(shard: &Shard, partitions: u16) -> u16 {
        let first = Self::number_of_queue(&shard.queue, partitions);
        ((u32::from(first) + u32::from(shard.number)) % u32::from(partitions.max(1))) as u16
    }

    /// The number of the partition with the first shard of this queue.
    pub fn number_of_queue(queue: &QueueName, partitions: u16) -> u16 {
        // Most stores have one partition, and each call of the queue may come here.
        if partitions <= 1 { 0 } else { slot_of(queue.as_str()) % partitions }
    }

    /// The number of the partition with a shard of the counters of a namespace, given by its tag. Its shards are in partitions
    /// that follow each other.
    pub fn number_of_counters(namespace: &str, shard: u16, partitions: u16) -> u16 {
        let first = u32::from(slot_of(namespace));
        ((first + u32::from(shard)) % u32::from(partitions.max(1))) as u16
    }

    /// The slot of a Redis Cluster that has these keys; of a store without partitions, that of no key in particular.
    pub fn slot(&self) -> u16 {
        slot_of(&self.prefix)
    }

    /// A key of the partition, by its name without prefix.
    pub fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The registry of queue names: a sorted set by bytes.
    pub fn queues(&self) -> String {
        self.key("ts:queues")
    }

    /// The registry of all shards but the first of each queue, by their tags: a sorted set by bytes.
    pub fn shards(&self) -> String {
        self.key("ts:shards")
    }

    /// A stream of the queues and shards that are added to the registries; the relay waits on it.
    pub fn new_queues(&self) -> String {
        self.key("ts:queues:new")
    }

    /// The shards of deleted queues whose outboxes are not empty yet: a set of tags.
    pub fn left_outboxes(&self) -> String {
        self.key("ts:outboxes:left")
    }

    /// The entries that undeclared filter indexes have in each shard: a sorted set of tags.
    pub fn undeclared_indexes(&self) -> String {
        self.key("ts:indexes:undeclared")
    }

    /// Holds the owner of the leader lease of a background job, with the lease's length as its expiry.
    pub fn leader_lease(&self, job: &str) -> String {
        self.key(&format!("ts:leader:{job}"))
    }

    /// The keys of a shard of this partition.
    pub fn shard(&self, shard: &Shard) -> ShardKeys {
        ShardKeys { prefix: self.prefix.clone(), tag: shard.tag() }
    }
}

impl ShardKeys {
    /// The keys of a shard in a store without partitions.
    pub fn new(shard: &Shard) -> Self {
        Keyspace::default().shard(shard)
    }

    /// One of [`NAMES`].
    pub fn key(&self, name: &str) -> String {
        format!("{}ts:{{{}}}:{name}", self.prefix, self.tag)
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
    let (_, rest) = key.split_once("ts:{")?;
    Shard::of_tag(rest.strip_suffix("}:state")?)
}

/// The slot of a Redis Cluster that a key is in: CRC-16/XMODEM of what is between its first braces, or of the whole key.
pub fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(tag, _)| tag);
    let hashed = if tag.is_empty() { key } else { tag };
    let crc = hashed.bytes().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % SLOTS
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

    #[test]
    fn q17_slots_are_those_of_redis() {
        // From the specification of Redis Cluster, and from CLUSTER KEYSLOT.
        for (key, slot) in [("123456789", 0x31c3), ("{user1000}.following", 3443), ("foo{}{bar}", 8363), ("", 0)] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!((slot_of("foo{bar}{zap}"), slot_of("{user1000}.x")), (slot_of("bar"), slot_of("user1000")));
    }

    #[test]
    fn q17_partitions_are_even_and_each_is_in_one_slot() {
        for partitions in [2, 3, 8, 16, 64] {
            let slots: Vec<u16> =
                (0..partitions).map(|number| Keyspace::partition(number, partitions).slot()).collect();
            for (number, slot) in slots.iter().enumerate() {
                assert_eq!(usize::from(*slot) * usize::from(partitions) / usize::from(SLOTS), number, "{slots:?}");
            }
        }
        let (queue, keyspace) = (QueueName::parse("queue", "a/b").unwrap(), Keyspace::partition(5, 8));
        let shard = Shard { queue, number: 3 };
        let mut keys = keyspace.shard(&shard).all([0]);
        assert_eq!(shard_of_state_key(&keys[0]), Some(shard));
        keys.extend([
            keyspace.queues(),
            keyspace.shards(),
            keyspace.new_queues(),
            keyspace.left_outboxes(),
            keyspace.undeclared_indexes(),
            keyspace.leader_lease("job"),
        ]);
        assert!(keys.iter().all(|key| slot_of(key) == keyspace.slot()), "{keys:?}");
    }

    #[test]
    fn q17_the_partition_of_a_shard_never_changes() {
        let shard = |number| Shard { queue: QueueName::parse("queue", "123456789").unwrap(), number };
        // Data depends on it: 0x31c3 % 8 = 3.
        assert_eq!([0, 1, 7].map(|number| Keyspace::number_of(&shard(number), 8)), [3, 4, 2]);
        assert_eq!(Keyspace::number_of(&shard(1), 1), 0);
        assert_eq!(Keyspace::partition(0, 1), Keyspace::default());
        assert_eq!([0, 1, 7].map(|shard| Keyspace::number_of_counters("123456789", shard, 8)), [3, 4, 2]);
    }
}
