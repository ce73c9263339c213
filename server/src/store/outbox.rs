//! The outboxes as a relay reads them (Q19): all of this Redis's at once, waiting for news on one connection of its
//! own, and dropping what a sink has.

use super::reply::{Reply, defect, unreadable};
use super::{RedisStore, Shared, scripts};
use redis::{Value, from_redis_value};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::{Link, ReplicaWait};
use tallystone_lua::constants::Answer;
use tallystone_lua::{Script, ShardKeys, keys, record};
use tallystone_model::limits::SHARDS_MAX;
use tallystone_model::{Event, QueueName, Recorded, Refusal, Shard};

/// Entries of one read, over all shards; of up to 64 events each.
const READ_ENTRIES: usize = 256;
/// What a read may bring, as far as payloads are foreseen in it; one entry of each shard in any case.
const READ_BYTES: usize = 32 * 1024 * 1024;
/// A generous event without its payload, and how many there are in the largest entry.
const EVENT_BYTES: usize = 512;
const ENTRY_EVENTS: usize = 64;
/// Names on one page of the registry.
const PAGE: usize = 1_000;

/// What happens when an outbox is at its bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutboxFull {
    /// New messages are refused. What is in the queue goes on, and its events are kept up to twice the bound.
    #[default]
    RefuseEnqueue,
    /// The queue goes on; the oldest events are given up.
    GiveUpHistory,
}

/// What each shard's outbox holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxBound {
    /// Events that no sink has yet.
    pub events_max: u32,
    /// What happens there.
    pub full: OutboxFull,
    /// Bytes of each payload that the first event of a message carries; 0: none.
    pub payload_bytes_kept: u16,
}

impl Default for OutboxBound {
    fn default() -> Self {
        OutboxBound { events_max: 1_000_000, full: OutboxFull::RefuseEnqueue, payload_bytes_kept: 0 }
    }
}

impl OutboxBound {
    /// Events at which Enqueue is refused (0: never), and events past which the oldest are given up.
    pub(super) fn limits(&self) -> (u32, u32) {
        match self.full {
            OutboxFull::RefuseEnqueue => (self.events_max, self.events_max.saturating_mul(2)),
            OutboxFull::GiveUpHistory => (0, self.events_max),
        }
    }
}

/// What one read of the outboxes found.
#[derive(Debug, Default)]
pub struct Read {
    /// In order within each shard.
    pub events: Arc<Vec<Recorded>>,
    /// All that happened up to here, by the store's clock, is in this read or in an earlier one; 0: it cannot be said.
    pub complete_to_ms: u64,
    /// The shards of which entries were read.
    pub shards: HashSet<Shard>,
    /// A queue was put into the registry.
    pub new_queues: bool,
    /// Some shard has more.
    pub more: bool,
}

/// Where a shard's reader stands.
#[derive(Clone, Debug, Default)]
struct Place {
    /// The id of the last entry read; empty: none.
    last: String,
    /// The offset that comes next; `None`: not known yet.
    next: Option<u64>,
    /// The last read met its bound.
    more: bool,
}

/// Reads the outboxes of every shard, from the oldest event that is there.
pub struct OutboxReader {
    shared: Arc<Shared>,
    /// Its own: a blocked read would hold up everybody else's calls.
    link: Link,
    places: BTreeMap<Shard, Place>,
    new_queues: String,
    /// The last read was of those only that had more: the next is of all.
    hurried: bool,
    /// Events that were given up before this reader came to them, or that it could not read.
    lost: u64,
}

impl RedisStore {
    /// The events in the shard's outbox, oldest first: all that its bound and its reader have left there.
    pub async fn outbox_events(&self, shard: &Shard) -> Result<Vec<Event>, Refusal> {
        let key = ShardKeys::new(shard).key("outbox");
        let entries = self.shared.link.call(redis::cmd("XRANGE").arg(key).arg("-").arg("+")).await?;
        Ok(decode(shard, entries)?.into_iter().flat_map(|entry| entry.events).map(|recorded| recorded.event).collect())
    }

    /// A reader that begins with the oldest event of every shard.
    pub fn outbox_reader(&self) -> OutboxReader {
        OutboxReader {
            shared: self.shared.clone(),
            link: Link::new(self.shared.link.client().clone(), ReplicaWait::default(), scripts()),
            places: BTreeMap::new(),
            new_queues: "0".to_owned(),
            hurried: false,
            lost: 0,
        }
    }

    /// How many events of the shard no sink has yet; `None`: there is no such queue.
    pub async fn outbox_length(&self, shard: &Shard) -> Result<Option<u64>, Refusal> {
        Ok(self.shared.outbox_state(shard).await?.map(|state| state.added.saturating_sub(state.acked)))
    }
}

impl Shared {
    async fn outbox_state(&self, shard: &Shard) -> Result<Option<record::ShardState>, Refusal> {
        match self.link.call(redis::cmd("GET").arg(ShardKeys::new(shard).key("state"))).await? {
            Value::BulkString(state) => Ok(Some(record::decode_state(&state).map_err(unreadable)?)),
            _ => Ok(None),
        }
    }
}

impl OutboxReader {
    /// Looks up which shards there are; those of deleted queues stay until they are read to their end.
    pub async fn discover(&mut self) -> Result<(), Refusal> {
        let mut from = "-".to_owned();
        loop {
            let mut page = redis::cmd("ZRANGEBYLEX");
            page.arg(keys::QUEUES).arg(from).arg("+").arg("LIMIT").arg(0).arg(PAGE);
            let names: Vec<String> = read(self.shared.link.call(&page).await?)?;
            for name in &names {
                let queue = QueueName::parse("queue", name)?;
                // Known by name only: a queue is registered before it is made.
                for number in 0..SHARDS_MAX {
                    self.watch(Shard { queue: queue.clone(), number }).await?;
                }
            }
            match names.last() {
                Some(last) if names.len() == PAGE => from = format!("({last}"),
                _ => break,
            }
        }
        let left: Vec<String> = read(self.shared.link.call(redis::cmd("SMEMBERS").arg(keys::LEFT_OUTBOXES)).await?)?;
        for shard in left.iter().filter_map(|tag| Shard::of_tag(tag)) {
            self.watch(shard.clone()).await?;
            self.strike_off(&shard).await?;
        }
        Ok(())
    }

    /// A shard that is named as left: its queue is there again, or was never gone; or its outbox is empty; or it is left
    /// for later.
    async fn strike_off(&mut self, shard: &Shard) -> Result<(), Refusal> {
        // First of all: a deletion that comes meanwhile names it again.
        self.shared.link.call(redis::cmd("SREM").arg(keys::LEFT_OUTBOXES).arg(shard.tag())).await?;
        if self.shared.outbox_state(shard).await?.is_some() {
            return Ok(());
        }
        match self.drop_until(shard, 0).await? {
            Some(0) => drop(self.places.remove(shard)),
            _ => drop(self.shared.link.call(redis::cmd("SADD").arg(keys::LEFT_OUTBOXES).arg(shard.tag())).await?),
        }
        Ok(())
    }

    /// Drops what comes before an offset; answers how many entries are left, if the queue is deleted.
    async fn drop_until(&self, shard: &Shard, offset: u64) -> Result<Option<u64>, Refusal> {
        let keys = ShardKeys::new(shard).all([]);
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::AckOutbox.sha1()).arg(keys.len()).arg(&keys).arg(offset);
        let mut reply = Reply::read(self.shared.link.eval(&command, false).await?, Answer::from_code)?;
        if reply.answer == Answer::NoQueue { Ok(Some(reply.number()?)) } else { Ok(None) }
    }

    /// Reads this shard's too.
    pub async fn watch(&mut self, shard: Shard) -> Result<(), Refusal> {
        if !self.places.contains_key(&shard) {
            // What should come next, so that it is seen if it was given up.
            let next = self.shared.outbox_state(&shard).await?.map(|state| state.acked);
            self.places.insert(shard, Place { next, ..Place::default() });
        }
        Ok(())
    }

    /// Waits until there is something to read, or `wait` is over, and reads a bounded amount.
    pub async fn read(&mut self, wait: Duration) -> Result<Read, Refusal> {
        let behind: Vec<Shard> =
            self.places.iter().filter(|(_, place)| place.more).map(|(shard, _)| shard.clone()).collect();
        let hurry = !behind.is_empty() && !self.hurried;
        self.hurried = hurry;
        let shards = if hurry { behind } else { self.places.keys().cloned().collect() };
        let entry_bytes = ENTRY_EVENTS * (EVENT_BYTES + usize::from(self.shared.options.outbox.payload_bytes_kept));
        let count = (READ_ENTRIES.min(READ_BYTES / entry_bytes) / shards.len().max(1)).max(1);
        let keys: Vec<String> = shards.iter().map(|shard| ShardKeys::new(shard).key("outbox")).collect();

        // Before the read: what happens after this is perhaps not in it.
        let time: (u64, u64) = read(self.link.call(&redis::cmd("TIME")).await?)?;
        let now_ms = match self.shared.now_argument() {
            0 => time.0 * 1_000 + time.1 / 1_000,
            test_ms => test_ms,
        };
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(count);
        if !hurry {
            command.arg("BLOCK").arg(wait.as_millis().max(1) as u64);
        }
        command.arg("STREAMS");
        command.arg(&keys).arg(keys::NEW_QUEUES);
        for shard in &shards {
            let last = self.places.get(shard).map_or("", |place| place.last.as_str());
            command.arg(if last.is_empty() { "0" } else { last });
        }
        command.arg(&self.new_queues);
        let streams: Option<Vec<(String, Value)>> = read(self.link.call(&command).await?)?;

        // Only a read of all can say how far all go.
        let complete_to_ms = if hurry { 0 } else { now_ms.saturating_sub(1) };
        let mut answer = Read { complete_to_ms, ..Read::default() };
        for place in self.places.values_mut() {
            place.more = false;
        }
        let by_key: HashMap<&str, &Shard> = keys.iter().map(String::as_str).zip(&shards).collect();
        let mut events = Vec::new();
        for (key, entries) in streams.into_iter().flatten() {
            if key == keys::NEW_QUEUES {
                let entries: Vec<(String, Value)> = read(entries)?;
                answer.new_queues = true;
                // It is registered before it is made: where nothing new was registered, nothing is missed.
                answer.complete_to_ms = 0;
                self.new_queues = entries.into_iter().next_back().map_or(String::new(), |(id, _)| id);
                continue;
            }
            let shard = by_key.get(key.as_str()).copied();
            let Some(shard) = shard else { return Err(defect("a stream that nobody asked for")) };
            let entries = decode(shard, entries)?;
            self.look_for_losses(shard, &entries).await?;
            self.take(shard, entries, count, &mut answer, &mut events);
            answer.shards.insert(shard.clone());
        }
        answer.events = Arc::new(events);
        answer.more = self.places.values().any(|place| place.more);
        Ok(answer)
    }

    fn take(
        &mut self,
        shard: &Shard,
        entries: Vec<Entry>,
        count: usize,
        answer: &mut Read,
        events: &mut Vec<Recorded>,
    ) {
        let Some(place) = self.places.get_mut(shard) else { return };
        place.more = entries.len() == count;
        if let (true, Some(last)) = (place.more, entries.last()) {
            answer.complete_to_ms = answer.complete_to_ms.min(last.at_ms.saturating_sub(1));
        }
        for entry in entries {
            place.next = Some(entry.offset + entry.count);
            place.last = entry.id;
            events.extend(entry.events);
        }
    }

    /// Counts what should have come before these entries, or between them, and did not.
    async fn look_for_losses(&mut self, shard: &Shard, entries: &[Entry]) -> Result<(), Refusal> {
        let Some(mut next) = self.places.get(shard).and_then(|place| place.next) else { return Ok(()) };
        for entry in entries {
            if entry.offset > next {
                // No loss where the queue was made anew, or where another relay was faster: then the shard says that
                // all before is dealt with.
                let acked = self.shared.outbox_state(shard).await?.map_or(entry.offset, |state| state.acked);
                self.lost += entry.offset.saturating_sub(acked.max(next));
            }
            if entry.events.is_empty() {
                self.lost += entry.count;
            }
            next = entry.offset + entry.count;
        }
        Ok(())
    }

    /// A sink has every event of these that was read so far: they are dropped, and shards that have ended forgotten.
    pub async fn ack(&mut self, shards: &HashSet<Shard>) -> Result<(), Refusal> {
        for shard in shards {
            let Some(offset) = self.places.get(shard).and_then(|place| place.next) else { continue };
            if self.drop_until(shard, offset).await? == Some(0) {
                self.strike_off(shard).await?;
            }
        }
        Ok(())
    }

    /// The shards it reads.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.places.keys()
    }

    /// Events given up at the bound before they were read, since the last question.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }
}

/// One entry of an outbox.
struct Entry {
    id: String,
    at_ms: u64,
    /// Of its first event.
    offset: u64,
    count: u64,
    /// Empty: it cannot be read.
    events: Vec<Recorded>,
}

fn decode(shard: &Shard, entries: Value) -> Result<Vec<Entry>, Refusal> {
    /// Its id, then the fields `t` (Unix ms) and `e` (packed events).
    type Raw = (String, (String, u64, String, Vec<u8>));
    let raw: Vec<Raw> = read(entries)?;
    let entry = |(id, (_, at_ms, _, packed)): Raw| {
        let numbers = id.split_once('-').and_then(|(offset, count)| Some((offset.parse().ok()?, count.parse().ok()?)));
        let (offset, count) = numbers.ok_or_else(|| defect("an entry without offset"))?;
        let events = record::decode_events(at_ms, &packed).unwrap_or_else(|error| {
            // It will not become readable: what comes after it must not wait for it.
            tracing::error!(shard = shard.tag(), id, %error, "an outbox entry cannot be read; its events are lost");
            Vec::new()
        });
        let numbered = events.into_iter().zip(offset..);
        let events = numbered.map(|(event, offset)| Recorded { shard: shard.clone(), offset, event }).collect();
        Ok(Entry { id, at_ms, offset, count, events })
    };
    raw.into_iter().map(entry).collect()
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Refusal> {
    from_redis_value(value).map_err(|error| Refusal::Internal(error.to_string()))
}
