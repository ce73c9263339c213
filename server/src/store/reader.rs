//! Reads the outboxes of one partition for a relay (Q19): all of them at once, on a dedicated connection that waits for new
//! events; removes the events that a sink has acknowledged.

use super::entry::{Entry, decode, read};
use super::reply::{QueueReply, defect};
use super::shared::{Shared, script_texts};
use redis::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::{Link, ReplicaWait};
use tallystone_lua::Script;
use tallystone_lua::constants::Answer;
use tallystone_model::{Loss, QueueName, Recorded, Refusal, Shard};

/// Entries of one read, over all shards.
const READ_ENTRIES: usize = 256;
/// The planned size of one read, in bytes. It is exceeded only where one entry of each shard is larger.
const READ_BYTES: usize = 32 * 1024 * 1024;
/// A generous size of an event without its payload.
const EVENT_BYTES: usize = 512;
/// The most events of one entry.
const ENTRY_EVENTS: usize = 64;
/// Names on one page of the registry of queues.
const PAGE: usize = 1_000;

/// The result of one read of the outboxes.
#[derive(Debug, Default)]
pub struct Read {
    /// In order within each shard.
    pub events: Arc<Vec<Recorded>>,
    /// The shards with events that were lost before those of this read.
    pub losses: Arc<Vec<Loss>>,
    /// Every event up to this time, by the store's clock, is in this read or in an earlier one; 0: unknown.
    pub complete_to_ms: u64,
    /// The shards with entries in this read.
    pub shards: HashSet<Shard>,
    /// A queue was added to the registry.
    pub new_queues: bool,
    /// Some shard has more entries.
    pub more: bool,
    /// All shards of the partition were found before this read.
    pub walked: bool,
}

/// How far the log of one shard has been read.
#[derive(Clone, Debug, Default)]
struct LogPosition {
    /// The id of the last entry that was read; empty: none.
    last: String,
    /// The offset of the next event; `None`: unknown.
    next: Option<u64>,
    /// The offset behind the events that were read before the log was read from its beginning again; 0: none were.
    reached: u64,
    /// The last read met its bound, so there may be more entries.
    more: bool,
}

impl LogPosition {
    /// The offset behind all events that are known to have been read.
    fn read_to(&self) -> u64 {
        match self.next {
            // A reader that has begun again, and read nothing since, only expects what the state of a new timeline says.
            Some(next) if self.reached == 0 || !self.last.is_empty() => self.reached.max(next),
            _ => self.reached,
        }
    }
}

/// Reads the outboxes of every shard of a partition, from the oldest event on.
pub(super) struct PartitionReader {
    shared: Arc<Shared>,
    /// A dedicated connection: a blocking read would delay all other calls.
    link: Link,
    positions: BTreeMap<Shard, LogPosition>,
    /// How far the earlier reader of this partition had come, for the shards that this one has not found yet.
    reached: HashMap<Shard, u64>,
    new_queues: String,
    /// The last read covered only shards with more entries: the next one covers all.
    partial: bool,
    /// Events that were dropped before they were read, or that could not be decoded.
    lost: u64,
    /// Events that were read, and whose writes Redis has lost since.
    undone: u64,
}

impl PartitionReader {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let link = Link::new(shared.link.source().clone(), ReplicaWait::default(), script_texts());
        let link = match &shared.identity {
            Some(identity) => link.guarded_by(identity.state()),
            None => link,
        };
        PartitionReader {
            shared,
            link,
            positions: BTreeMap::new(),
            reached: HashMap::new(),
            new_queues: "0".to_owned(),
            partial: false,
            lost: 0,
            undone: 0,
        }
    }

    /// A reader that starts at the oldest event again, because Redis may be another one now, which lacks what was read. It
    /// still finds out which events that were read are lost.
    pub(super) fn restarted(self) -> Self {
        let mut reached = self.reached;
        for (shard, position) in self.positions {
            reached.insert(shard, position.read_to());
        }
        PartitionReader { reached, ..PartitionReader::new(self.shared) }
    }

    /// Finds all shards. Those of deleted queues stay until their outboxes are read to the end.
    pub(super) async fn discover(&mut self) -> Result<(), Refusal> {
        let left = self.left_outboxes().await?;
        let deleted = self.shared.without("state", left.clone()).await?;
        for shard in left.iter().filter_map(|tag| Shard::of_tag(tag)) {
            self.watch(shard.clone()).await?;
            if deleted.contains(&shard.tag()) {
                self.check_left(&shard).await?;
            }
        }
        // After these: a queue may be created again after `check_left` has stopped reading it.
        // Only the names are known here: a shard is registered before it is created.
        for name in self.registered(self.shared.keyspace.queues()).await? {
            self.watch(Shard::first(&QueueName::parse("queue", &name)?)).await?;
        }
        for tag in self.registered(self.shared.keyspace.shards()).await? {
            if let Some(shard) = Shard::of_tag(&tag) {
                self.watch(shard).await?;
            }
        }
        // A queue that was deleted meanwhile was in the list too late, and in the registry too early.
        for shard in self.left_outboxes().await?.iter().filter_map(|tag| Shard::of_tag(tag)) {
            self.watch(shard).await?;
        }
        // The others are gone.
        self.reached.clear();
        Ok(())
    }

    /// The ids of the first and the last entry that announces a queue. A stream keeps some hundred.
    async fn announced(&self) -> Result<Option<(String, String)>, Refusal> {
        let mut command = redis::cmd("XRANGE");
        command.arg(self.shared.keyspace.new_queues()).arg("-").arg("+");
        let entries: Vec<(String, Value)> = read(self.shared.link.call(&command).await?)?;
        let mut ids = entries.into_iter().map(|(id, _)| id);
        let first = ids.next();
        Ok(first.map(|first| (first.clone(), ids.next_back().unwrap_or(first))))
    }

    /// Whether announcements behind the last one that was read may have been trimmed: unless the stream reaches back to that one.
    async fn may_lack_new_queues(&self) -> Result<bool, Refusal> {
        let announced = self.announced().await?;
        Ok(announced.is_none_or(|(first, _)| entry_id(&first) > entry_id(&self.new_queues)))
    }

    /// The list of left outboxes.
    async fn left_outboxes(&self) -> Result<Vec<String>, Refusal> {
        read(self.shared.link.call(redis::cmd("SMEMBERS").arg(self.shared.keyspace.left_outboxes())).await?)
    }

    /// All names of a registry.
    async fn registered(&self, registry: String) -> Result<Vec<String>, Refusal> {
        let (mut all, mut from) = (Vec::new(), "-".to_owned());
        loop {
            let mut page = redis::cmd("ZRANGEBYLEX");
            page.arg(&registry).arg(from).arg("+").arg("LIMIT").arg(0).arg(PAGE);
            let names: Vec<String> = read(self.shared.link.call(&page).await?)?;
            let last = names.last().filter(|_| names.len() == PAGE).cloned();
            all.extend(names);
            match last {
                Some(last) => from = format!("({last}"),
                None => return Ok(all),
            }
        }
    }

    /// Checks a shard in the list of left outboxes. It leaves the list, and is read no longer, when its queue is deleted and its outbox is
    /// empty. While the queue exists, or is about to be created again, it stays: a deletion lists it before it deletes, so what is not in
    /// the list may have an outbox that no other relay would find.
    async fn check_left(&mut self, shard: &Shard) -> Result<(), Refusal> {
        if self.shared.state(shard).await?.is_some()
            || self.shared.is_registered(shard).await?
            || self.remove_until(shard, 0).await? != Some(0)
        {
            return Ok(());
        }
        if self.shared.forget_left_outbox(shard).await? {
            self.positions.remove(shard);
        }
        Ok(())
    }

    /// Removes the events before an offset. Returns how many entries are left if the queue is deleted.
    async fn remove_until(&self, shard: &Shard, offset: u64) -> Result<Option<u64>, Refusal> {
        let keys = self.shared.keyspace.shard(shard).all([]);
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::AckOutbox.sha1()).arg(keys.len()).arg(&keys).arg(offset);
        let mut reply = QueueReply::read(self.shared.link.eval(&command, false).await?, Answer::from_code)?;
        if reply.answer == Answer::NoQueue { Ok(Some(reply.number()?)) } else { Ok(None) }
    }

    /// Whether a shard is of this partition.
    pub(super) fn has(&self, shard: &Shard) -> bool {
        self.shared.partition.has(shard)
    }

    /// Adds a shard to those that are read.
    pub(super) async fn watch(&mut self, shard: Shard) -> Result<(), Refusal> {
        if !self.positions.contains_key(&shard) {
            // The first event to expect: if it was dropped, the gap shows.
            let next = self.shared.state(&shard).await?.map(|state| state.acked);
            let reached = self.reached.remove(&shard).unwrap_or_default();
            self.positions.insert(shard, LogPosition { next, reached, ..LogPosition::default() });
        }
        Ok(())
    }

    /// Waits for new events, at most for `wait`, and returns a bounded number of them. `walks`: finds all shards first.
    pub(super) async fn read(&mut self, walks: bool, wait: Duration) -> Result<Read, Refusal> {
        if walks {
            // The walk finds the queues of all earlier entries: each was registered before it was announced.
            self.new_queues = self.announced().await?.map_or_else(|| "0".to_owned(), |(_, last)| last);
            self.discover().await?;
        }
        let behind: Vec<Shard> =
            self.positions.iter().filter(|(_, position)| position.more).map(|(shard, _)| shard.clone()).collect();
        let partial = !behind.is_empty() && !self.partial;
        self.partial = partial;
        let shards = if partial { behind } else { self.positions.keys().cloned().collect() };
        // Few events have the payload of an errored message: if all had one, a read would take 75 MB by default.
        let entry_bytes = ENTRY_EVENTS * (EVENT_BYTES + usize::from(self.shared.options.outbox.payload_bytes_kept));
        let count = (READ_ENTRIES.min(READ_BYTES / entry_bytes) / shards.len().max(1)).max(1);
        let keyspace = &self.shared.keyspace;
        let keys: Vec<String> = shards.iter().map(|shard| keyspace.shard(shard).key("outbox")).collect();
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(count);
        if !partial {
            command.arg("BLOCK").arg(wait.as_millis().max(1) as u64);
        }
        command.arg("STREAMS");
        command.arg(&keys).arg(keyspace.new_queues());
        for shard in &shards {
            let last = self.positions.get(shard).map_or("", |position| position.last.as_str());
            command.arg(if last.is_empty() { "0" } else { last });
        }
        command.arg(&self.new_queues);
        // The time before the read: later events may not be in it. A wrong clock says nothing of when they were.
        let now_ms = match self.shared.options.clock.right_ms(&self.link).await {
            Err(Refusal::ClockSkew { .. }) => 0,
            now_ms => now_ms?,
        };
        let found: Option<Vec<(String, Value)>> = read(self.link.call(&command).await?)?;
        // Only a read of all shards can be complete up to a time.
        let complete_to_ms = if partial { 0 } else { now_ms.saturating_sub(1) };
        let mut answer = Read { complete_to_ms, walked: walks, ..Read::default() };
        for position in self.positions.values_mut() {
            position.more = false;
        }
        let by_key: HashMap<&str, &Shard> = keys.iter().map(String::as_str).zip(&shards).collect();
        let (mut events, mut losses) = (Vec::new(), Vec::new());
        // Nothing of the reader changes before all calls have succeeded: a read that fails is repeated as a whole.
        let (mut decoded, mut new_queues) = (Vec::new(), None);
        for (key, entries) in found.into_iter().flatten() {
            if key == self.shared.keyspace.new_queues() {
                let entries: Vec<(String, Value)> = read(entries)?;
                new_queues =
                    entries.first().map(|(id, _)| entry_id(id).0).zip(entries.last().map(|(id, _)| id.clone()));
                continue;
            }
            let shard = by_key.get(key.as_str()).copied();
            let Some(shard) = shard else { return Err(defect("a stream that was not requested")) };
            let entries = decode(shard, entries)?;
            if let Some(lost_to_ms) = self.count_losses(shard, &entries).await? {
                losses.push(Loss { shard: shard.clone(), lost_to_ms });
            }
            decoded.push((shard, entries));
        }
        if let Some((first_ms, last)) = new_queues {
            answer.new_queues = true;
            // A queue is announced before it is created: no event of it is earlier. The ids of a stream may be ahead of the clock, tests
            // have another clock, and the first announcements may have been trimmed.
            let is_known =
                self.shared.options.clock.argument() == 0 && first_ms <= now_ms && !self.may_lack_new_queues().await?;
            answer.complete_to_ms = if is_known { answer.complete_to_ms.min(first_ms.saturating_sub(1)) } else { 0 };
            self.new_queues = last;
        }
        for (shard, entries) in decoded {
            self.take(shard, entries, count, &mut answer, &mut events);
            answer.shards.insert(shard.clone());
        }
        (answer.events, answer.losses) = (Arc::new(events), Arc::new(losses));
        answer.more = self.positions.values().any(|position| position.more);
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
        let Some(position) = self.positions.get_mut(shard) else { return };
        position.more = entries.len() == count;
        if let (true, Some(last)) = (position.more, entries.last()) {
            answer.complete_to_ms = answer.complete_to_ms.min(last.at_ms.saturating_sub(1));
        }
        for entry in entries {
            position.next = Some(entry.offset + entry.count);
            position.last = entry.id;
            events.extend(entry.events);
        }
    }

    /// Counts the events that are missing before and between these entries. Returns the time by which all of them had
    /// happened: that of the entry after them, Unix ms; `None`: none is missing.
    async fn count_losses(&mut self, shard: &Shard, entries: &[Entry]) -> Result<Option<u64>, Refusal> {
        let Some(position) = self.positions.get(shard) else { return Ok(None) };
        let (Some(mut next), reached) = (position.next, position.reached) else { return Ok(None) };
        let mut lost_to_ms = None;
        for entry in entries {
            let lost_before = self.lost;
            // A reader that has begun again after the mark was written expects the events behind it, and has read none of them.
            let read_to = if next < entry.offset { next.max(reached) } else { reached };
            match entry.continues {
                // The sink has events whose writes are lost.
                Some(end) if end < read_to && read_to < entry.offset => {
                    tracing::warn!(
                        shard = shard.tag(),
                        events = read_to - end,
                        "Redis has lost its last writes: history has transitions that the queue no longer knows"
                    );
                    self.undone += read_to - end;
                    lost_to_ms = lost_to_ms.max(Some(entry.at_ms));
                }
                Some(end) => self.lost += self.missing(shard, next, end).await?,
                None => self.lost += self.missing(shard, next, entry.offset).await?,
            }
            if entry.events.is_empty() {
                self.lost += entry.count;
            }
            if self.lost > lost_before {
                lost_to_ms = lost_to_ms.max(Some(entry.at_ms));
            }
            next = entry.offset + entry.count;
        }
        Ok(lost_to_ms)
    }

    /// How many events are missing between the next one and this offset.
    async fn missing(&self, shard: &Shard, next: u64, offset: u64) -> Result<u64, Refusal> {
        if offset <= next {
            return Ok(0);
        }
        let state = self.shared.state(shard).await?;
        Ok(state.map_or(0, |state| missing(next, offset, state.acked, state.timeline_begin)))
    }

    /// A sink has acknowledged every event of these shards that was read so far: removes the events, and stops reading
    /// the outboxes of deleted queues that are empty now.
    pub(super) async fn ack(&mut self, shards: &HashSet<Shard>) -> Result<(), Refusal> {
        let partition = self.shared.partition;
        for shard in shards.iter().filter(|shard| partition.has(shard)) {
            let Some(offset) = self.positions.get(shard).and_then(|position| position.next) else { continue };
            if self.remove_until(shard, offset).await? == Some(0) {
                self.check_left(shard).await?;
            }
        }
        Ok(())
    }

    /// The shards that it reads.
    pub(super) fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.positions.keys()
    }

    /// Takes the number of events lost since the last call.
    pub(super) fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Takes the number of events whose writes Redis has lost, since the last call.
    pub(super) fn take_undone(&mut self) -> u64 {
        std::mem::take(&mut self.undone)
    }
}

/// How many events are missing between the next one and an entry at this offset, by the state of the shard. None if the queue was created
/// again, or if another relay was faster: then the shard says that the earlier events were acknowledged. An acknowledged offset that is
/// ahead of the entry, and before the begin of the timeline, is one of a new timeline whose mark no sink has yet (lib/timeline).
fn missing(next: u64, offset: u64, acked: u64, timeline_begin: u64) -> u64 {
    let from = if acked > offset && acked < timeline_begin { next } else { acked.min(offset).max(next) };
    offset - from
}

/// The id of an entry of a stream: its time (Unix ms), and its number within that.
fn entry_id(id: &str) -> (u64, u64) {
    let (ms, number) = id.split_once('-').unwrap_or((id, "0"));
    (ms.parse().unwrap_or_default(), number.parse().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_what_another_relay_has_acknowledged_meanwhile_is_not_missing() {
        assert_eq!(missing(71, 95, 71, 0), 24, "trimmed, and not acknowledged");
        assert_eq!(missing(71, 95, 80, 0), 15);
        assert_eq!(missing(71, 95, 95, 0), 0);
        assert_eq!(missing(71, 95, 100, 0), 0, "another relay has acknowledged this entry, too");
        assert_eq!(missing(71, 95, 100, 50), 0, "in a timeline that began before");
        assert_eq!(
            missing(71, 95, 990, 1_000),
            24,
            "in a timeline that has begun since, ten events are not acknowledged"
        );
        assert_eq!(missing(71, 95, 1_000, 1_000), 0, "or all of them are");
    }

    #[test]
    fn x1_what_a_reader_expects_after_it_has_begun_again_is_not_read() {
        let position = |last: &str, next, reached| LogPosition { last: last.to_owned(), next, reached, more: false };
        assert_eq!(position("", Some(7), 0).read_to(), 7, "a sink has acknowledged the events before");
        assert_eq!(position("", Some(900), 5).read_to(), 5);
        assert_eq!(position("900-1", Some(901), 5).read_to(), 901);
        assert_eq!(position("4-1", Some(5), 9).read_to(), 9);
        assert_eq!(position("", None, 9).read_to(), 9);
    }
}
