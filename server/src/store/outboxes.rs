//! Reads the outboxes of all partitions for a relay (Q19): a call to each partition is under way at any time.

use super::entry::{decode, read};
use super::marks::STATES_READ;
use super::partitions;
use super::reader::{PartitionReader, Read};
use super::redis_store::RedisStore;
use super::reply::unreadable;
use super::shared::Shared;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tallystone_lua::record;
use tallystone_model::{Event, Refusal, Shard};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};

/// The first and the longest pause of a partition after a failure.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Reads the outboxes of every shard, from the oldest event on. Each partition has a reader, which makes one call at a time,
/// in a task: a partition that is unavailable, or does not answer, holds up no other (decision 0115).
pub struct OutboxReader {
    partitions: Vec<OutboxPartition>,
    tasks: JoinSet<(usize, PartitionReader, Result<Option<Read>, Refusal>)>,
    lost: u64,
    undone: u64,
}

/// A partition, and where its reader is.
struct OutboxPartition {
    shared: Arc<Shared>,
    /// `None`: in the task.
    reader: Option<PartitionReader>,
    task: Option<task::Id>,
    /// The shards that it read when it was last here.
    shards: Vec<Shard>,
    /// Up to when the partition was read, by its own clock; 0: unknown.
    complete_to_ms: u64,
    /// The next read finds all shards first.
    walks: bool,
    /// Before the next read; zero: the last call has not failed.
    pause: Duration,
}

impl OutboxPartition {
    fn new(shared: Arc<Shared>) -> OutboxPartition {
        let reader = Some(PartitionReader::new(shared.clone()));
        let (shards, pause) = (Vec::new(), Duration::ZERO);
        OutboxPartition { shared, reader, task: None, shards, complete_to_ms: 0, walks: false, pause }
    }

    /// Takes the reader back. `is_complete`: it has found all shards that it is to read.
    fn put_back(&mut self, reader: PartitionReader, is_complete: bool) {
        if is_complete && !reader.shards().eq(&self.shards) {
            self.shards = reader.shards().cloned().collect();
        }
        self.reader = Some(reader);
    }
}

impl RedisStore {
    /// The events that are in the shard's outbox, oldest first.
    pub async fn outbox_events(&self, shard: &Shard) -> Result<Vec<Event>, Refusal> {
        let partition = self.of(shard);
        let key = partition.keyspace.shard(shard).key("outbox");
        let entries = partition.link.call(redis::cmd("XRANGE").arg(key).arg("-").arg("+")).await?;
        Ok(decode(shard, entries)?.into_iter().flat_map(|entry| entry.events).map(|recorded| recorded.event).collect())
    }

    /// A reader that starts at the oldest event of every shard.
    pub fn outbox_reader(&self) -> OutboxReader {
        let partitions = self.partitions().iter().cloned().map(OutboxPartition::new).collect();
        OutboxReader { partitions, tasks: JoinSet::new(), lost: 0, undone: 0 }
    }

    /// For each shard, in their order: the number of its events that no sink has acknowledged; `None`: the queue does not
    /// exist.
    pub async fn outbox_lengths(&self, shards: &[&Shard]) -> Result<Vec<Option<u64>>, Refusal> {
        let lengths = async |partition: Arc<Shared>, shards: Vec<Shard>| partition.outbox_lengths(&shards).await;
        partitions::of_shards(self.partitions(), shards, lengths).await
    }
}

impl Shared {
    async fn outbox_lengths(&self, shards: &[Shard]) -> Result<Vec<Option<u64>>, Refusal> {
        let mut lengths = Vec::with_capacity(shards.len());
        for shards in shards.chunks(STATES_READ) {
            let keys: Vec<String> = shards.iter().map(|shard| self.keyspace.shard(shard).key("state")).collect();
            let states: Vec<Option<Vec<u8>>> = read(self.link.call(redis::cmd("MGET").arg(keys)).await?)?;
            for state in states {
                let state = state.map(|state| record::decode_state(&state).map_err(unreadable)).transpose()?;
                lengths.push(state.map(|state| state.added.saturating_sub(state.acked)));
            }
        }
        Ok(lengths)
    }
}

impl OutboxReader {
    /// The next read of each partition finds all its shards first. Those of deleted queues stay until their outboxes are
    /// read to the end.
    pub fn discover(&mut self) {
        for partition in &mut self.partitions {
            partition.walks = true;
        }
    }

    /// Adds a shard to those that are read, before the first read.
    pub async fn watch(&mut self, shard: Shard) -> Result<(), Refusal> {
        let readers = self.partitions.iter_mut().filter_map(|partition| partition.reader.as_mut());
        match readers.into_iter().find(|reader| reader.has(&shard)) {
            Some(reader) => reader.watch(shard).await,
            None => Ok(()),
        }
    }

    /// Waits for new events, at most for `wait`, and returns a bounded number of them, all of one partition.
    ///
    /// # Errors
    /// One of the partitions cannot be read, or its events cannot be removed. The next calls read the others meanwhile, and
    /// this one again after a pause.
    pub async fn read(&mut self, wait: Duration) -> Result<Read, Refusal> {
        let until = Instant::now() + wait;
        loop {
            self.begin_reads(wait);
            // A read of another partition may have begun with a longer wait, or not be answered.
            let ended = match self.partitions.len() {
                1 => self.tasks.join_next().await,
                _ => timeout_at(until, self.tasks.join_next()).await.unwrap_or_default(),
            };
            let Some(ended) = ended else { return Ok(Read::default()) };
            let (number, mut reader, result) = ended.unwrap_or_else(|panic| self.replace(&panic));
            // A read that has failed is repeated, and counts again.
            let (lost, undone) = (reader.take_lost(), reader.take_undone());
            if result.is_ok() {
                (self.lost, self.undone) = (self.lost + lost, self.undone + undone);
            }
            let partition = &mut self.partitions[number];
            partition.put_back(reader, result.is_ok());
            match result {
                Ok(read) => {
                    partition.pause = Duration::ZERO;
                    if let Some(read) = read {
                        return Ok(self.complete(number, read));
                    }
                }
                Err(refusal) => {
                    (partition.walks, partition.pause) = (true, (partition.pause * 2).clamp(RETRY_MIN, RETRY_MAX));
                    return Err(refusal);
                }
            }
        }
    }

    /// The number of the partition whose reader has panicked, and another reader for it.
    fn replace(&self, panic: &JoinError) -> (usize, PartitionReader, Result<Option<Read>, Refusal>) {
        let number =
            self.partitions.iter().position(|partition| partition.task == Some(panic.id())).unwrap_or_default();
        let reader = PartitionReader::new(self.partitions[number].shared.clone());
        (number, reader, Err(Refusal::Internal(panic.to_string())))
    }

    /// Begins a read of each partition whose reader is here.
    fn begin_reads(&mut self, wait: Duration) {
        for (number, partition) in self.partitions.iter_mut().enumerate() {
            let Some(mut reader) = partition.reader.take() else { continue };
            let (walks, pause) = (std::mem::take(&mut partition.walks), partition.pause);
            let task = self.tasks.spawn(async move {
                if !pause.is_zero() {
                    sleep(pause).await;
                }
                let read = reader.read(walks, wait).await;
                (number, reader, read.map(Some))
            });
            partition.task = Some(task.id());
        }
    }

    /// What another partition has up to the time of this read may still be under way.
    fn complete(&mut self, number: usize, mut read: Read) -> Read {
        if read.complete_to_ms > 0 {
            self.partitions[number].complete_to_ms = read.complete_to_ms;
            read.complete_to_ms =
                self.partitions.iter().map(|partition| partition.complete_to_ms).min().unwrap_or_default();
        }
        read
    }

    /// The partitions that the last call could not read start at the oldest event again: their Redis may be another one
    /// now, which lacks what was read.
    pub fn start_over(&mut self) {
        for partition in self.partitions.iter_mut().filter(|partition| !partition.pause.is_zero()) {
            partition.reader = partition.reader.take().map(PartitionReader::restarted);
        }
    }

    /// A sink has acknowledged every event of these shards that was read so far: removes the events, and stops reading
    /// the outboxes of deleted queues that are empty now.
    pub async fn ack(&mut self, shards: &HashSet<Shard>) -> Result<(), Refusal> {
        for partition in &mut self.partitions {
            if let Some(mut reader) = partition.reader.take() {
                let acked = reader.ack(shards).await;
                partition.put_back(reader, acked.is_ok());
                acked?;
            }
        }
        Ok(())
    }

    /// As [`ack`](OutboxReader::ack) for the shards of the last read, without waiting: a failure is that of a later read.
    pub fn begin_ack(&mut self, shards: HashSet<Shard>) {
        let is_theirs = |reader: &PartitionReader| shards.iter().any(|shard| reader.has(shard));
        let found = self
            .partitions
            .iter_mut()
            .enumerate()
            .find(|(_, partition)| partition.reader.as_ref().is_some_and(is_theirs));
        if let Some((number, partition)) = found
            && let Some(mut reader) = partition.reader.take()
        {
            let task = self.tasks.spawn(async move {
                let acked = reader.ack(&shards).await;
                (number, reader, acked.map(|()| None))
            });
            partition.task = Some(task.id());
        }
    }

    /// The shards that it reads, of each partition.
    pub fn partitions(&self) -> impl Iterator<Item = &[Shard]> {
        self.partitions.iter().map(|partition| partition.shards.as_slice())
    }

    /// The shards that it reads.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.partitions().flatten()
    }

    /// Takes the number of events lost since the last call.
    pub fn take_lost(&mut self) -> u64 {
        std::mem::take(&mut self.lost)
    }

    /// Takes the number of events whose writes Redis has lost, since the last call.
    pub fn take_undone(&mut self) -> u64 {
        std::mem::take(&mut self.undone)
    }
}
