//! Filter indexes: created when a filter first needs one, built in bounded steps, dropped when unused (Q8).

use super::shared::{Caller, Sent, Shared};
use super::view::{Stored, StoredIndex, View};
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tallystone_link::wall_ms;
use tallystone_lua::Script;
use tallystone_model::{Filter, IndexKeys, QueueConfig, Refusal, Shard};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How many build steps run while the caller waits, enough for a small queue. A larger one is indexed in the background.
const STEPS_AT_ONCE: usize = 8;
/// How many chunks of 250 messages a background step examines at first and at most. Larger ones would save little.
const CHUNKS: u8 = 4;
/// How long a background step may take before the next one becomes smaller: all other callers of Redis wait for it.
const STEP: Duration = Duration::from_millis(6);
/// How often a build that waits checks whether its index has been declared.
const DECLARED_POLL: Duration = Duration::from_secs(1);

impl Shared {
    /// Reads the current configuration if a filter seems to need a new index: which of several requests gets the last
    /// index slot must not depend on a stale view.
    pub(super) async fn refresh_for(
        &self,
        shard: &Shard,
        mut filters: impl Iterator<Item = &Filter> + Send,
    ) -> Result<(), Refusal> {
        let (view, now_ms) = (self.view(shard).await?, wall_ms());
        if filters.any(|filter| !view.stored.has_index(&filter.index_keys(), now_ms)) {
            self.read(shard).await?;
        }
        Ok(())
    }

    /// Ensures that the index of each filter exists and is complete. Missing indexes are created all or none, and none
    /// if `allow` refuses the current configuration.
    pub(super) async fn ready_indexes(
        self: &Arc<Self>,
        shard: &Shard,
        filters: &[Filter],
        allow: impl Fn(&QueueConfig) -> Result<(), Refusal> + Send + Sync,
    ) -> Result<(), Refusal> {
        if filters.is_empty() {
            return Ok(()); // the hot path: most requests have none
        }
        let wanted: BTreeSet<IndexKeys> = filters.iter().map(Filter::index_keys).collect();
        let now_ms = wall_ms();
        let mut view = self.view(shard).await?;
        if wanted.iter().any(|keys| !view.stored.has_index(keys, now_ms)) {
            let add = |stored: &mut Stored| {
                allow(&stored.config)?;
                match wanted.iter().all(|keys| stored.use_index(keys, now_ms)) {
                    true => Ok(()),
                    false => Err(Refusal::TooManyIndexes { queue: shard.queue.to_string() }),
                }
            };
            view = self.change(shard, add).await?;
        }
        for index in view.stored.indexes.iter().filter(|index| index.building && wanted.contains(&index.keys)) {
            self.build(shard, index.keys.clone()).await?;
        }
        Ok(())
    }

    /// Builds an index. A second caller waits for the first one's steps; beyond them the build goes on in the background,
    /// and both are refused.
    pub(super) async fn build(self: &Arc<Self>, shard: &Shard, keys: IndexKeys) -> Result<(), Refusal> {
        let key = (shard.clone(), keys.clone());
        let building = || Refusal::IndexBuilding { keys: keys.to_string() };
        let done = loop {
            let first = match self.builds.lock().unwrap_or_else(PoisonError::into_inner).entry(key.clone()) {
                Entry::Occupied(build) => build.get().clone(),
                Entry::Vacant(free) => {
                    let leaves_callers = free.insert(CancellationToken::new()).clone();
                    break BuildGuard { shared: self.clone(), key, leaves_callers };
                }
            };
            if first.is_cancelled() {
                return Err(building());
            }
            first.cancelled().await;
            let view = self.view(shard).await?;
            if !view.stored.indexes.iter().any(|index| index.building && index.keys == keys) {
                return Ok(());
            }
        };
        let mut cursor = "0".to_owned();
        for _ in 0..STEPS_AT_ONCE {
            if self.build_step(shard, &keys, 1, &mut cursor).await? {
                return self.finish(shard, &keys).await;
            }
        }
        done.leaves_callers.cancel();
        let (shared, shard, keys) = (self.clone(), shard.clone(), keys.clone());
        let refusal = building();
        tokio::spawn(async move {
            let _done = done;
            match shared.build_on(&shard, &keys, cursor).await {
                Ok(()) => tracing::info!(queue = %shard.queue, index = %keys, "filter index built"),
                // The next use of this filter starts the build again; covered messages stay covered.
                Err(error) => tracing::warn!(queue = %shard.queue, index = %keys, %error, "filter index not built"),
            }
        });
        Err(refusal)
    }

    /// Builds the rest of an index in the background. A declared index is built at once, and at the full rate; the
    /// others are built one after another, at the rate of [`Pace`](super::pace::Pace).
    async fn build_on(&self, shard: &Shard, keys: &IndexKeys, mut cursor: String) -> Result<(), Refusal> {
        let (mut turn, mut chunks) = (None, CHUNKS);
        loop {
            let is_declared = self.view(shard).await?.stored.config.indexes.contains(keys);
            if !is_declared && turn.is_none() {
                // An index may be declared while it waits.
                turn = timeout(DECLARED_POLL, self.pace.turn()).await.ok();
                continue;
            }
            let began = Instant::now();
            if self.build_step(shard, keys, chunks, &mut cursor).await? {
                return self.finish(shard, keys).await;
            }
            let took = began.elapsed();
            chunks = if took > STEP { (chunks / 2).max(1) } else { (chunks + 1).min(CHUNKS) };
            if !is_declared {
                sleep(self.pace.pause(took).min(DECLARED_POLL)).await;
            }
        }
    }

    /// One step of a build. `true`: every older message is covered, or the index is complete or dropped already.
    async fn build_step(
        &self,
        shard: &Shard,
        keys: &IndexKeys,
        chunks: u8,
        cursor: &mut String,
    ) -> Result<bool, Refusal> {
        let mut gone = false;
        let fill = |view: &View, command: &mut redis::Cmd| {
            let at = view.stored.indexes.iter().position(|index| index.keys == *keys && index.building);
            gone = at.is_none();
            // A position past all indexes would be an error in the script: it is never sent.
            command.arg(&[at.map_or(0, |at| at as u8 + 1)][..]).arg(cursor.as_str()).arg(chunks);
            if gone { Err(Refusal::IndexBuilding { keys: keys.to_string() }) } else { Ok(()) }
        };
        match self.run(shard, Script::BuildIndex, Caller::Other, fill).await {
            Ok((_, mut reply)) => *cursor = reply.text()?,
            Err(Refusal::IndexBuilding { .. }) if gone => return Ok(true),
            Err(other) => return Err(other),
        }
        Ok(cursor == "0")
    }

    async fn finish(&self, shard: &Shard, keys: &IndexKeys) -> Result<(), Refusal> {
        let finish = |stored: &mut Stored| {
            stored.indexes.iter_mut().filter(|index| index.keys == *keys).for_each(|index| index.building = false);
            Ok(())
        };
        self.change(shard, finish).await.map(drop)
    }

    /// Drops indexes that are neither declared nor used. Their ages are by the clocks of servers: a wrong one drops an
    /// index early or late, nothing more.
    pub(super) async fn drop_unused(&self, shard: &Shard) -> Result<(), Refusal> {
        let oldest_ms = wall_ms().saturating_sub(self.options.index_unused_ms);
        let unused = |stored: &Stored, at: usize| {
            let index = &stored.indexes[at];
            index.used_at_ms < oldest_ms && !stored.config.indexes.contains(&index.keys)
        };
        let view = self.view(shard).await?;
        if (0..view.stored.indexes.len()).any(|at| unused(&view.stored, at)) {
            self.change(shard, |stored| {
                for at in (0..stored.indexes.len()).rev() {
                    if unused(stored, at) {
                        stored.indexes.remove(at);
                    }
                }
                Ok(())
            })
            .await?;
        }
        Ok(())
    }

    /// Compare-and-set of the configuration by its revision. A change that changes nothing writes nothing.
    pub(super) async fn change(
        &self,
        shard: &Shard,
        edit: impl Fn(&mut Stored) -> Result<(), Refusal> + Send + Sync,
    ) -> Result<Arc<View>, Refusal> {
        let mut view = self.read(shard).await?.0;
        loop {
            let mut stored = view.stored.clone();
            edit(&mut stored)?;
            if stored == view.stored {
                return Ok(view);
            }
            if stored.config != view.stored.config {
                stored.revise(view.timeline_begin, view.created_at_ms);
            }
            // A slot may pass from one index to another: the structures of the old one are deleted in the same write. So
            // is what only a build needs, when it ends.
            let keys = self.keyspace.shard(shard);
            let superfluous = |old: &StoredIndex| {
                let [order, counts, covered, covered_to] = keys.index(old.slot);
                match stored.indexes.iter().find(|new| (new.slot, &new.keys) == (old.slot, &old.keys)) {
                    None => vec![order, counts, covered, covered_to],
                    Some(new) if old.building && !new.building => vec![covered, covered_to],
                    Some(_) => Vec::new(),
                }
            };
            let unlink: Vec<String> = view.stored.indexes.iter().flat_map(superfluous).collect();
            let json = serde_json::to_vec(&stored).map_err(|error| Refusal::Internal(error.to_string()))?;
            let mut command = self.command(Script::UpdateQueue, &view, &unlink, Caller::Other);
            let forgets_ids = view.config().id_window_ms > 0 && stored.config.id_window_ms == 0;
            command.arg(json).arg(view.keys.len()).arg(u8::from(forgets_ids));
            match self.send(shard, Script::UpdateQueue, &command).await? {
                Sent::Stale(current) => view = current,
                Sent::Done(mut reply) => return self.cache(shard, &reply.bytes()?, &reply.bytes()?),
            }
        }
    }
}

/// A build of this server. When it ends, it leaves the list, and those that wait for it go on.
struct BuildGuard {
    shared: Arc<Shared>,
    key: (Shard, IndexKeys),
    leaves_callers: CancellationToken,
}

impl Drop for BuildGuard {
    fn drop(&mut self) {
        self.shared.builds.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
        self.leaves_callers.cancel();
    }
}
