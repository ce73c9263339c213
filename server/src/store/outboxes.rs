//! Reads the outboxes of all partitions for a relay (Q19): a read of each partition is under way at any time.

use super::entry::{decode, read};
use super::marks::STATES_READ;
use super::partitions;
use super::reader::{PartitionReader, Read, Reading, Streams};
use super::redis_store::RedisStore;
use super::reply::unreadable;
use super::shared::Shared;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tallystone_lua::record;
use tallystone_model::{Event, Refusal, Shard};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Reads the outboxes of every shard, from the oldest event on.
pub struct OutboxReader {
    partitions: Vec<PartitionReader>,
    /// Up to when each partition was read, by its own clock; 0: unknown.
    complete_to_ms: Vec<u64>,
    /// Whether a read of each partition is under way.
    reads: Vec<bool>,
    flights: JoinSet<(usize, Reading, Result<Streams, Refusal>)>,
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
        let partitions: Vec<_> = self.partitions().iter().cloned().map(PartitionReader::new).collect();
        let count = partitions.len();
        let (complete_to_ms, reads) = (vec![0; count], vec![false; count]);
        OutboxReader { partitions, complete_to_ms, reads, flights: JoinSet::new() }
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
    /// Finds all shards. Those of deleted queues stay until their outboxes are read to the end.
    pub async fn discover(&mut self) -> Result<(), Refusal> {
        for partition in &mut self.partitions {
            partition.discover().await?;
        }
        Ok(())
    }

    /// Adds a shard to those that are read.
    pub async fn watch(&mut self, shard: Shard) -> Result<(), Refusal> {
        match self.partitions.iter_mut().find(|partition| partition.has(&shard)) {
            Some(partition) => partition.watch(shard).await,
            None => Ok(()),
        }
    }

    /// Waits for new events, at most for `wait`, and returns a bounded number of them, all of one partition.
    pub async fn read(&mut self, wait: Duration) -> Result<Read, Refusal> {
        for (number, partition) in self.partitions.iter_mut().enumerate() {
            if !std::mem::replace(&mut self.reads[number], true) {
                let (reading, answer) = partition.begin(wait);
                self.flights.spawn(async move { (number, reading, answer.await) });
            }
        }
        // A read of another partition may have begun with a longer wait.
        let flight = match self.partitions.len() {
            1 => self.flights.join_next().await,
            _ => timeout(wait, self.flights.join_next()).await.unwrap_or_default(),
        };
        let Some(flight) = flight else { return Ok(Read::default()) };
        let (number, reading, answer) = flight.map_err(|panic| Refusal::Internal(panic.to_string()))?;
        self.reads[number] = false;
        let mut read = self.partitions[number].finish(reading, answer?).await?;
        if read.complete_to_ms > 0 {
            self.complete_to_ms[number] = read.complete_to_ms;
            // What another partition has up to this time may still be under way.
            read.complete_to_ms = self.complete_to_ms.iter().copied().min().unwrap_or_default();
        }
        Ok(read)
    }

    /// A sink has acknowledged every event of these shards that was read so far: removes the events, and stops reading
    /// the outboxes of deleted queues that are empty now.
    pub async fn ack(&mut self, shards: &HashSet<Shard>) -> Result<(), Refusal> {
        for partition in &mut self.partitions {
            partition.ack(shards).await?;
        }
        Ok(())
    }

    /// The shards that it reads.
    pub fn shards(&self) -> impl Iterator<Item = &Shard> {
        self.partitions.iter().flat_map(PartitionReader::shards)
    }

    /// Takes the number of events lost since the last call.
    pub fn take_lost(&mut self) -> u64 {
        self.partitions.iter_mut().map(PartitionReader::take_lost).sum()
    }

    /// Takes the number of events whose writes Redis has lost, since the last call.
    pub fn take_undone(&mut self) -> u64 {
        self.partitions.iter_mut().map(PartitionReader::take_undone).sum()
    }
}
