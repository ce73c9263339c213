//! What the states of many shards say, read together (Q18): when the sweeper must act on each, and whether the mark of this
//! waiting server is still there. So quiet queues cost one command for [`STATES_READ`] of them.

use super::entry::read;
use super::queues::lexical_range;
use super::reads::depth_of;
use super::reply::{defect, unreadable};
use super::shared::Shared;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tallystone_lua::record;
use tallystone_model::store::{Depth, Page};
use tallystone_model::{QueueName, Refusal, Shard};

/// States of shards that one command reads.
pub(super) const STATES_READ: usize = 500;
/// Messages from which Redis estimates the bytes of a queue's messages.
const BODY_SAMPLES: usize = 50;
/// What the cursor of a page of the second registry begins with. No name of a queue does.
const OTHER_SHARDS: &str = "#";
/// Between two checks of the marks of this server.
const CHECK_EVERY: Duration = Duration::from_secs(60);

/// What the store keeps for some queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Queues.
    pub queues: u64,
    /// Their messages, in all states.
    pub messages: u64,
    /// Bytes of the messages' contents; 0 unless they were requested.
    pub bytes: u64,
}

impl Kept {
    /// Adds what another partition keeps.
    pub fn add(&mut self, other: &Kept) {
        self.queues += other.queues;
        self.messages += other.messages;
        self.bytes += other.bytes;
    }
}

impl Shared {
    /// One page of the shards in which something falls due, each with the time until then.
    pub(super) async fn sweep_times(&self, cursor: &str) -> Result<Page<(Shard, Duration)>, Refusal> {
        let Page { items: shards, next_cursor } = self.shards("", cursor).await?;
        let (now_ms, states) = self.states(&shards).await?;
        let mut items = Vec::new();
        for (shard, state) in shards.into_iter().zip(states) {
            let Some(state) = state else { continue };
            if let Some(at_ms) = record::decode_marks(&state).map_err(unreadable)?.sweep_at_ms {
                items.push((shard, Duration::from_millis(at_ms.saturating_sub(now_ms))));
            }
        }
        Ok(Page { items, next_cursor })
    }

    /// One page of all shards with their messages.
    pub(super) async fn queue_depths(&self, cursor: &str) -> Result<Page<(Shard, Depth)>, Refusal> {
        let Page { items: shards, next_cursor } = self.shards("", cursor).await?;
        let states = self.shard_states(&shards).await?;
        let depths = shards.into_iter().zip(states).filter_map(|(shard, state)| Some((shard, state?.0)));
        Ok(Page { items: depths.collect(), next_cursor })
    }

    /// The messages of these shards, in their order, each with the record of its state; `None`: there is no such queue.
    pub(super) async fn shard_states(&self, shards: &[Shard]) -> Result<Vec<Option<(Depth, Vec<u8>)>>, Refusal> {
        let mut found = Vec::with_capacity(shards.len());
        for shards in shards.chunks(STATES_READ) {
            for state in self.raw_states(shards).await? {
                let depth = |state: Vec<u8>| {
                    let counts = record::decode_state(&state).map_err(unreadable)?.counts;
                    Ok::<_, Refusal>((depth_of(counts), state))
                };
                found.push(state.map(depth).transpose()?);
            }
        }
        Ok(found)
    }

    /// What is kept for the queues of this prefix; the bytes only on request: they cost a command for each queue.
    pub(super) async fn kept(&self, prefix: &str, with_bytes: bool) -> Result<Kept, Refusal> {
        let (mut kept, mut cursor) = (Kept::default(), String::new());
        loop {
            let Page { items: shards, next_cursor } = self.shards(prefix, &cursor).await?;
            let states = self.shard_states(&shards).await?;
            let mut measure = redis::pipe();
            for (shard, (depth, _)) in shards.iter().zip(states).filter_map(|(shard, state)| Some((shard, state?))) {
                kept.queues += u64::from(*shard == Shard::first(&shard.queue));
                kept.messages += depth.kept();
                if with_bytes && depth.kept() > 0 {
                    let body = self.keyspace.shard(shard).key("body");
                    measure.cmd("MEMORY").arg("USAGE").arg(body).arg("SAMPLES").arg(BODY_SAMPLES);
                }
            }
            if !measure.is_empty() {
                for bytes in self.link.calls(&measure, false).await? {
                    kept.bytes += read::<Option<u64>>(bytes)?.unwrap_or(0);
                }
            }
            if next_cursor.is_empty() {
                return Ok(kept);
            }
            cursor = next_cursor;
        }
    }

    /// One page of the shards of the queues of this prefix: first the first ones, then the others.
    async fn shards(&self, prefix: &str, cursor: &str) -> Result<Page<Shard>, Refusal> {
        let (registry, after) = match cursor.strip_prefix(OTHER_SHARDS) {
            None => (self.keyspace.queues(), cursor),
            Some(after) => (self.keyspace.shards(), after),
        };
        let (from, to) = lexical_range(prefix, after);
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(registry).arg(from).arg(to).arg("LIMIT").arg(0).arg(STATES_READ);
        let names: Vec<String> = read(self.link.call(&command).await?)?;
        let last = names.last().filter(|_| names.len() == STATES_READ);
        let are_first = !cursor.starts_with(OTHER_SHARDS);
        let next_cursor = match (last, are_first) {
            (Some(last), true) => last.clone(),
            (Some(last), false) => format!("{OTHER_SHARDS}{last}"),
            (None, true) => OTHER_SHARDS.to_owned(),
            (None, false) => String::new(),
        };
        let items = names.iter().map(|name| match are_first {
            true => Ok(Shard::first(&QueueName::parse("queue", name)?)),
            false => Shard::of_tag(name).ok_or_else(|| defect("no shard in the registry of shards")),
        });
        Ok(Page { items: items.collect::<Result<_, Refusal>>()?, next_cursor })
    }

    /// One page of the shards that are not the first of their queues.
    pub(super) async fn other_shards(&self, cursor: &str) -> Result<Page<Shard>, Refusal> {
        self.shards("", if cursor.is_empty() { OTHER_SHARDS } else { cursor }).await
    }

    /// Wakes the waiting callers of shards that have lost the mark of this server: a script made something runnable and
    /// published it, and the publication was lost.
    pub(super) async fn check_waiting(&self) -> Result<(), Refusal> {
        let mut shards = self.wakes.waiting();
        shards.retain(|shard| self.partition.has(shard));
        for shards in shards.chunks(STATES_READ) {
            let (now_ms, states) = self.states(shards).await?;
            for (shard, state) in shards.iter().zip(states) {
                let is_marked = match &state {
                    Some(state) => {
                        let marks = record::decode_marks(state).map_err(unreadable)?;
                        let is_ours = marks.waiter == self.server_id.as_bytes() || marks.waiter == b"*";
                        is_ours && marks.wait_until_ms > now_ms
                    }
                    // The queue was deleted: its callers get that.
                    None => false,
                };
                if !is_marked {
                    self.wakes.wake_waiting(shard);
                }
            }
        }
        Ok(())
    }

    /// Drops what this server keeps of queues that were deleted through another one.
    async fn forget_deleted(&self) -> Result<(), Refusal> {
        let cached: Vec<Shard> = self.views.read().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        let mut deleted = Vec::new();
        for shards in cached.chunks(STATES_READ) {
            let states = self.raw_states(shards).await?;
            deleted.extend(shards.iter().zip(states).filter(|(_, state)| state.is_none()).map(|(shard, _)| shard));
        }
        // A store that lost its data has none of them: what was cached is how a call finds that out.
        if !deleted.is_empty() {
            self.verify_identity().await?;
        }
        for shard in deleted {
            self.forget(shard);
        }
        Ok(())
    }

    /// The store's time (Unix ms), and the states of these shards in their order; `None`: the queue does not exist.
    async fn states(&self, shards: &[Shard]) -> Result<(u64, Vec<Option<Vec<u8>>>), Refusal> {
        if shards.is_empty() {
            return Ok((0, Vec::new()));
        }
        let states = self.raw_states(shards).await?;
        // After the states: what is due by this time was due when they were read, or will be soon.
        Ok((self.now_ms().await?, states))
    }

    async fn raw_states(&self, shards: &[Shard]) -> Result<Vec<Option<Vec<u8>>>, Refusal> {
        let keys: Vec<String> = shards.iter().map(|shard| self.keyspace.shard(shard).key("state")).collect();
        if keys.is_empty() { Ok(Vec::new()) } else { read(self.link.call(redis::cmd("MGET").arg(keys)).await?) }
    }
}

/// Checks the marks of this server every minute, and drops what is kept of queues that are gone.
pub(super) async fn check_often(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        if let Err(refusal) = shared.check_waiting().await {
            tracing::debug!(%refusal, "the marks of this waiting server were not checked");
        }
        if let Err(refusal) = shared.forget_deleted().await {
            tracing::debug!(%refusal, "views of deleted queues were not dropped");
        }
        if let Err(refusal) = shared.forget_left_outboxes().await {
            tracing::debug!(%refusal, "the list of left outboxes was not examined");
        }
        if let Err(refusal) = shared.correct_entries().await {
            tracing::debug!(%refusal, "the entries of undeclared indexes were not counted");
        }
    }
}
