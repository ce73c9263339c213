//! A queue on a simulated Redis, whose state a case fills up to its limits.

use crate::simulator::bounds::real::{self, Measured};
use redis::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_lua::{Script, ShardKeys};
use tallystone_model::limits::*;
use tallystone_model::store::*;
use tallystone_model::{
    Backoff, Filter, IndexKeys, Lease, MessageId, Metadata, NewMessage, QueueConfig, QueueName, QueueType, Shard, Store,
};
use tallystone_server::store::{Clock, OutboxBound, RedisOptions, RedisStore};
use tallystone_simulator::SimulatedRedis;

const BEGIN_MS: u64 = 1_780_000_000_000;
/// The lease of every message.
pub(crate) const LEASE_MS: u64 = 60_000;
/// A payload that is small.
pub(crate) const SMALL: usize = 100;
/// Messages of one call of a setup.
const BATCH: usize = 100;

/// A queue.
pub(crate) struct Stage {
    pub(crate) redis: Arc<SimulatedRedis>,
    pub(crate) store: RedisStore,
    pub(crate) shard: Shard,
    clock: Arc<AtomicU64>,
}

/// The name of a metadata pair, as long as it may be. Number 0 is the exclusivity key.
pub(crate) fn key(number: usize) -> String {
    format!("{number:k>METADATA_KEY_BYTES_MAX$}")
}

/// A metadata value, as long as it may be.
pub(crate) fn value(number: usize) -> String {
    format!("{number:v>METADATA_VALUE_BYTES_MAX$}")
}

pub(crate) fn id(number: usize) -> MessageId {
    MessageId::parse("id", format!("{number:m>MESSAGE_ID_BYTES_MAX$}")).expect("a message id")
}

pub(crate) fn worker() -> String {
    "w".repeat(WORKER_BYTES_MAX)
}

pub(crate) fn reason() -> String {
    "r".repeat(REASON_BYTES_MAX)
}

/// A message with four pairs of metadata: its exclusivity value, and three values with this number.
pub(crate) fn message(number: usize, payload: usize, exclusive: usize, group: usize) -> NewMessage {
    let mut pairs: BTreeMap<String, String> = (1..METADATA_PAIRS_MAX).map(|pair| (key(pair), value(group))).collect();
    pairs.insert(key(0), value(exclusive));
    NewMessage {
        payload: vec![b'p'; payload].into(),
        metadata: Metadata::parse(pairs).expect("metadata"),
        lease_ms: Some(LEASE_MS),
        ..NewMessage::new(id(number), number as i64)
    }
}

/// Messages, each with its own exclusivity value, in sixteen groups.
pub(crate) fn messages(range: std::ops::Range<usize>, payload: usize) -> impl Iterator<Item = NewMessage> {
    range.map(move |number| message(number, payload, number, number % FILTERS_MAX))
}

pub(crate) fn filter(pairs: impl IntoIterator<Item = (usize, usize)>) -> Filter {
    Filter::parse(pairs.into_iter().map(|(pair, number)| (key(pair), value(number))).collect()).expect("a filter")
}

/// The sets of the metadata keys whose numbers have these bits.
fn indexes(count: usize) -> Vec<IndexKeys> {
    let keys = |bits: usize| (0..METADATA_PAIRS_MAX).filter(move |pair| bits >> pair & 1 == 1).map(key);
    let mut all: Vec<IndexKeys> = (1..1 << METADATA_PAIRS_MAX)
        .rev()
        .take(count)
        .map(|bits| IndexKeys::parse(keys(bits)).expect("keys"))
        .collect();
    all.sort();
    all
}

/// As many as four keys have sets.
pub(crate) const ALL_INDEXES: usize = (1 << METADATA_PAIRS_MAX) - 1;

pub(crate) fn simple() -> QueueConfig {
    QueueConfig { retry_backoff: Backoff::default(), max_attempts: ATTEMPTS_MAX, ..QueueConfig::default() }
}

pub(crate) fn exclusive(index_count: usize) -> QueueConfig {
    let queue_type = QueueType::Exclusive { key: key(0) };
    QueueConfig { queue_type, indexes: indexes(index_count), ..simple() }
}

pub(crate) fn request(limit: usize, request_id: String) -> DequeueRequest {
    DequeueRequest { worker: worker(), limit, lease_ms: None, filters: Vec::new(), request_id }
}

pub(crate) fn request_id(number: usize) -> String {
    format!("{number:q>REQUEST_ID_BYTES_MAX$}")
}

pub(crate) fn to(lease: &Lease) -> LeaseRef {
    LeaseRef { id: lease.id.clone(), fencing_token: lease.fencing_token }
}

impl Stage {
    /// Events have no payloads, except those of errored messages, which have all of it.
    pub(crate) async fn new(config: QueueConfig) -> Stage {
        Stage::with_payloads(config, 0).await
    }

    pub(crate) async fn with_payloads(config: QueueConfig, payload_bytes_kept: u16) -> Stage {
        let (redis, clock) = (Arc::new(SimulatedRedis::new(0)), Arc::new(AtomicU64::new(BEGIN_MS)));
        let outbox = OutboxBound {
            payload_bytes_kept,
            errored_payload_bytes_kept: PAYLOAD_BYTES_MAX as u16,
            ..OutboxBound::default()
        };
        let options = RedisOptions { clock: Clock::Test(clock.clone()), outbox, ..RedisOptions::default() };
        let store = RedisStore::within_process(redis.clone(), options, "server".to_owned());
        let name = QueueName::parse("queue", &"q".repeat(QUEUE_NAME_BYTES_MAX)).expect("a name");
        let shard = Shard::first(&name);
        let stage = Stage { redis, store, shard, clock };
        stage.create(config).await;
        stage
    }

    pub(crate) async fn create(&self, config: QueueConfig) {
        self.store.create_queue(&self.shard.queue, config).await.expect("a new queue");
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.load(Ordering::SeqCst)
    }

    pub(crate) fn advance(&self, ms: u64) {
        self.clock.fetch_add(ms, Ordering::SeqCst);
    }

    /// The calls of `script` that `call` makes.
    pub(crate) async fn metered<T>(&self, script: Script, call: impl Future<Output = T>) -> Vec<Measured> {
        let state = real::url().map(|_| self.redis.keyspace().commands()).unwrap_or_default();
        self.redis.start_meter();
        call.await;
        real::measured(&state, self.redis.take_meter(), script.sha1())
    }

    /// A command on one of the queue's keys.
    pub(crate) fn raw<W: AsRef<[u8]>>(&self, command: &str, name: &str, words: impl IntoIterator<Item = W>) -> Value {
        let mut built = redis::cmd(command);
        built.arg(ShardKeys::new(&self.shard).key(name));
        words.into_iter().for_each(|word| {
            built.arg(word.as_ref());
        });
        let (reply, _) = self.redis.execute(&built);
        reply.and_then(Value::extract_error).expect("a command that fits the key")
    }

    pub(crate) async fn put(&self, messages: impl IntoIterator<Item = NewMessage>) {
        let mut messages = messages.into_iter().peekable();
        while messages.peek().is_some() {
            let batch = messages.by_ref().take(BATCH).collect();
            let results = self.store.enqueue(&self.shard, batch).await.expect("an open queue");
            results.into_iter().for_each(|result| drop(result.expect("a new message")));
        }
    }

    /// Leases messages in the order of their numbers.
    pub(crate) async fn take(&self, count: usize) -> Vec<Lease> {
        let mut leases = Vec::new();
        while leases.len() < count {
            let limit = BATCH.min(count - leases.len());
            let answer = self.store.dequeue(&self.shard, &[request(limit, String::new())], false, None).await;
            let more = answer.expect("an open queue").leases.remove(0).expect("leases");
            assert!(!more.is_empty(), "{} messages are runnable, not {count}", leases.len());
            leases.extend(more);
        }
        leases
    }

    /// All these messages have failed as often as is remembered.
    pub(crate) fn fill_attempts(&self, ids: impl IntoIterator<Item = MessageId>) {
        let mut attempt = vec![0; 2 + 7 + 6 + 6 + 1];
        attempt.push(WORKER_BYTES_MAX as u8);
        attempt.extend_from_slice(worker().as_bytes());
        attempt.push(REASON_BYTES_MAX as u8);
        attempt.extend_from_slice(reason().as_bytes());
        let mut record = vec![ATTEMPTS_KEPT as u8];
        (0..ATTEMPTS_KEPT).for_each(|_| record.extend_from_slice(&attempt));
        for id in ids {
            self.raw("HSET", "attempts", [tallystone_lua::record::stored_id(&id), record.clone()]);
        }
    }

    /// Remembers a Dequeue under a request id, with these leases; it is to be examined now.
    pub(crate) fn remember(&self, request_id: &str, leases: &[LeaseRef]) {
        let mut record = (self.now_ms() + LEASE_MS).to_be_bytes()[2..].to_vec();
        for LeaseRef { id, fencing_token } in leases {
            let id = tallystone_lua::record::stored_id(id);
            record.extend_from_slice(&fencing_token.to_be_bytes()[1..]);
            record.push(id.len() as u8);
            record.extend_from_slice(&id);
        }
        self.raw("HSET", "requests", [request_id.as_bytes(), &record]);
        self.raw("ZADD", "request_due", [self.now_ms().to_string().as_bytes(), request_id.as_bytes()]);
    }

    /// Remembers the id of a message that is gone, until then.
    pub(crate) fn remember_id(&self, number: usize, until_ms: u64) {
        let mut name = vec![1];
        name.extend_from_slice(&tallystone_lua::record::stored_id(&id(number)));
        let mut record = until_ms.to_be_bytes()[2..].to_vec();
        record.extend_from_slice(&[0; 6 + 4 + 8]);
        self.raw("HSET", "requests", [&name, &record]);
        let score = 2 * tallystone_lua::constants::FAR_MS + until_ms;
        self.raw("ZADD", "request_due", [score.to_string().as_bytes(), &name]);
    }

    /// Heads of the first index that wait until the exclusivity value with this number is free.
    pub(crate) fn park(&self, exclusive: usize, count: usize) {
        const PARKED_AT: usize = 59;
        let text = value(exclusive);
        for number in 0..count {
            let mut entry = vec![b'P', text.len() as u8];
            entry.extend_from_slice(text.as_bytes());
            // The slot, and a tuple of as many values as the index has keys.
            entry.push(0);
            for _ in 0..METADATA_PAIRS_MAX {
                let part = format!("{number:08}");
                entry.push(part.len() as u8);
                entry.extend_from_slice(part.as_bytes());
            }
            self.raw("ZADD", "parked", [b"0", entry.as_slice()]);
        }
        let Value::Int(parked) = self.raw("ZCARD", "parked", [""; 0]) else { panic!("a number") };
        self.raw("SETRANGE", "state", [PARKED_AT.to_string().as_bytes(), &(parked as u32).to_be_bytes()[..]]);
    }
}
