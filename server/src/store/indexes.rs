//! Filter indexes: created when a filter first needs one, built in bounded steps, dropped when unused (Q8).

use super::pace::BuildState;
use super::shared::{Caller, Sent, Shared};
use super::stored::{Stored, StoredIndex};
use super::view::View;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use tallystone_link::wall_ms;
use tallystone_lua::Script;
use tallystone_lua::record::ShardState;
use tallystone_model::{Filter, IndexKeys, QueueConfig, Refusal, Shard};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// How many build steps run while the caller waits, enough for a small queue. A larger one is indexed in the background.
const STEPS_AT_ONCE: usize = 8;
/// How many chunks of 250 messages a background step examines at first and at most. Larger ones would save little.
const CHUNKS: u8 = 4;
/// How long a background step may take before the next one becomes smaller: all other callers of Redis wait for it.
const STEP: Duration = Duration::from_millis(6);
/// The cursor of a scan that has not begun, and of one that has ended.
const BEGIN: &str = "0";
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
            let add = |_: &View, state: &ShardState, stored: &mut Stored| {
                allow(&stored.config)?;
                let messages: u64 = state.counts.iter().sum();
                match wanted.iter().all(|keys| stored.use_index(keys, now_ms, shard.number, messages)) {
                    true => Ok(()),
                    false => Err(Refusal::TooManyIndexes { queue: shard.queue.to_string() }),
                }
            };
            // What the queue refuses by itself is refused before anything is written.
            let (seen, state) = self.read(shard).await?;
            add(&seen, &state, &mut seen.stored.clone())?;
            self.reserve_entries(shard, &seen, &state, &wanted).await?;
            view = match self.change_read(shard, (seen, state), add).await {
                Ok(view) => view,
                Err(refusal) => {
                    self.correct_entries_of(shard).await?;
                    return Err(refusal);
                }
            };
        }
        for index in view.stored.indexes.iter().filter(|index| index.building && wanted.contains(&index.keys)) {
            self.build(shard, index.keys.clone()).await?;
        }
        Ok(())
    }

    /// Prepares a shard to be closed: a shard of an exclusive queue needs a complete index of its values (docs/decisions/0270).
    ///
    /// # Errors
    /// [`Refusal::IndexBuilding`]: it has many messages. The build continues in the background.
    pub(super) async fn index_values(self: &Arc<Self>, shard: &Shard) -> Result<(), Refusal> {
        let add = |stored: &mut Stored| match stored.config.queue_type.index_of_values() {
            Some(keys) if !stored.need_index(&keys, wall_ms()) => {
                Err(Refusal::TooManyIndexes { queue: shard.queue.to_string() })
            }
            _ => Ok(()),
        };
        let view = self.change(shard, add).await?;
        let wanted = view.config().queue_type.index_of_values();
        match view.stored.indexes.iter().find(|index| index.building && Some(&index.keys) == wanted.as_ref()) {
            Some(index) => self.build(shard, index.keys.clone()).await,
            None => Ok(()),
        }
    }

    /// Builds an index. A second caller waits for the first one's steps; beyond them the build continues in the background,
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
        let refusal = building();
        let mut build = Build { keys, begun_in: None, timeline_begin: 0, cursor: BEGIN.to_owned() };
        for _ in 0..STEPS_AT_ONCE {
            match self.build_step(shard, &mut build, 1).await? {
                BuildStep::More => {}
                BuildStep::Covered => return self.finish(shard, &build).await,
                BuildStep::Gone => return Ok(()),
            }
        }
        done.leaves_callers.cancel();
        let (shared, shard) = (self.clone(), shard.clone());
        tokio::spawn(async move {
            let _done = done;
            match shared.build_on(&shard, &mut build).await {
                Ok(()) => tracing::info!(queue = %shard.queue, index = %build.keys, "filter index built, or dropped"),
                // The next use of this filter starts the build again; covered messages stay covered.
                Err(error) => {
                    tracing::warn!(queue = %shard.queue, index = %build.keys, %error, "filter index not built")
                }
            }
        });
        Err(refusal)
    }

    /// Builds the rest of an index in the background. A declared index is built at once, and at the full rate; the
    /// others take turns step by step, at the rate of [`Pace`](super::pace::Pace).
    async fn build_on(&self, shard: &Shard, build: &mut Build) -> Result<(), Refusal> {
        let mut chunks = CHUNKS;
        loop {
            let is_declared = self.is_declared(shard, build).await?;
            let turn = match is_declared {
                true => None,
                // An index may be declared while it waits.
                false => {
                    let _waiting = BuildState::Waiting.enter();
                    match timeout(DECLARED_POLL, self.pace.turn()).await {
                        Ok(turn) => Some(turn),
                        Err(_) => continue,
                    }
                }
            };
            let running = BuildState::Running.enter();
            let began = Instant::now();
            match self.build_step(shard, build, chunks).await? {
                BuildStep::More => {}
                BuildStep::Covered => return self.finish(shard, build).await,
                BuildStep::Gone => return Ok(()),
            }
            drop(running);
            let took = began.elapsed();
            chunks = if took > STEP { (chunks / 2).max(1) } else { (chunks + 1).min(CHUNKS) };
            if turn.is_some() {
                let goes_on_at = Instant::now() + self.pace.pause(took);
                // Another build has its turn meanwhile, and so a long one does not keep all others waiting.
                drop(turn);
                let _pausing = BuildState::Pausing.enter();
                while Instant::now() < goes_on_at && !self.is_declared(shard, build).await? {
                    sleep(goes_on_at.saturating_duration_since(Instant::now()).min(DECLARED_POLL)).await;
                }
            }
        }
    }

    async fn is_declared(&self, shard: &Shard, build: &Build) -> Result<bool, Refusal> {
        Ok(self.view(shard).await?.stored.config.indexes.contains(&build.keys))
    }

    /// One step of a build.
    async fn build_step(&self, shard: &Shard, build: &mut Build, chunks: u8) -> Result<BuildStep, Refusal> {
        let mut gone = false;
        let fill = |view: &View, command: &mut redis::Cmd| {
            let at = view.stored.indexes.iter().position(|index| index.keys == build.keys && index.building);
            gone = at.is_none();
            // A position past all indexes would be an error in the script: it is never sent.
            let Some(at) = at else { return Err(Refusal::IndexBuilding { keys: build.keys.to_string() }) };
            let begun_in = view.stored.indexes[at].begun_in;
            if begun_in != build.begun_in {
                // Another index of these keys, which does not have what the steps so far have covered.
                (build.begun_in, build.cursor) = (begun_in, BEGIN.to_owned());
            }
            command.arg(&[at as u8 + 1][..]).arg(build.cursor.as_str()).arg(chunks);
            Ok(())
        };
        let cursor = match self.run(shard, Script::BuildIndex, Caller::Other, fill).await {
            Ok((view, mut reply)) => {
                build.timeline_begin = view.timeline_begin;
                reply.text()?
            }
            Err(Refusal::IndexBuilding { .. }) if gone => return Ok(BuildStep::Gone),
            Err(other) => return Err(other),
        };
        build.cursor = cursor;
        Ok(if build.cursor == BEGIN { BuildStep::Covered } else { BuildStep::More })
    }

    /// Every older message is covered: marks the index as complete, unless it has been replaced since.
    async fn finish(&self, shard: &Shard, build: &Build) -> Result<(), Refusal> {
        let is_built = |index: &StoredIndex| (&index.keys, index.begun_in) == (&build.keys, build.begun_in);
        let finish = |view: &View, _: &ShardState, stored: &mut Stored| {
            if view.timeline_begin != build.timeline_begin {
                // A failover may have lost the last steps: what they had covered is not in the index.
                return Err(Refusal::IndexBuilding { keys: build.keys.to_string() });
            }
            stored.indexes.iter_mut().filter(|index| is_built(index)).for_each(|index| index.building = false);
            Ok(())
        };
        self.change_seen(shard, finish).await.map(drop)
    }

    /// Drops indexes that are neither declared nor used. Their ages are by the clocks of servers: a wrong one drops an
    /// index early or late, nothing more.
    pub(super) async fn drop_unused(&self, shard: &Shard) -> Result<(), Refusal> {
        let oldest_ms = wall_ms().saturating_sub(self.options.index_unused_ms);
        let unused = |stored: &Stored, at: usize| {
            let index = &stored.indexes[at];
            index.used_at_ms < oldest_ms && !stored.config.indexes.contains(&index.keys) && !stored.is_needed(index)
        };
        let view = self.view(shard).await?;
        self.note_entries(shard, &view.stored).await?;
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
        self.change_seen(shard, |_, _, stored| edit(stored)).await
    }

    /// The same. The edit sees what it changes, and the state of the shard before the first try.
    pub(super) async fn change_seen(
        &self,
        shard: &Shard,
        edit: impl Fn(&View, &ShardState, &mut Stored) -> Result<(), Refusal> + Send + Sync,
    ) -> Result<Arc<View>, Refusal> {
        let seen = self.read(shard).await?;
        self.change_read(shard, seen, edit).await
    }

    /// The same for a caller that has read the shard.
    async fn change_read(
        &self,
        shard: &Shard,
        (mut view, state): (Arc<View>, ShardState),
        edit: impl Fn(&View, &ShardState, &mut Stored) -> Result<(), Refusal> + Send + Sync,
    ) -> Result<Arc<View>, Refusal> {
        loop {
            let mut stored = view.stored.clone();
            edit(&view, &state, &mut stored)?;
            if stored == view.stored {
                return Ok(view);
            }
            let begun = stored.indexes.iter_mut().filter(|index| index.building && index.begun_in.is_none());
            begun.for_each(|index| index.begun_in = Some(view.revision));
            let is_spread = stored.spread != view.stored.spread;
            if stored.config != view.stored.config || is_spread {
                stored.revise(view.timeline_begin, view.created_at_ms);
            }
            // As late as the revision: a change that was lost had a lower one (X1).
            if let Some(spread) = stored.spread.as_mut().filter(|_| is_spread && shard.number == 0) {
                spread.version = spread.version.max(stored.revision);
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
            let json = stored.write()?;
            let mut command = self.command(Script::UpdateQueue, &view, &unlink, Caller::Other);
            let forgets_ids = view.config().id_window_ms > 0 && stored.config.id_window_ms == 0;
            command.arg(json).arg(view.keys.len()).arg(u8::from(forgets_ids));
            if is_spread {
                command.arg(1);
            }
            match self.send(shard, Script::UpdateQueue, &command).await? {
                Sent::Stale(current) => view = current,
                Sent::Done(mut reply) => return self.cache(shard, &reply.bytes()?, &reply.bytes()?),
            }
        }
    }
}

/// A build of one index.
struct Build {
    keys: IndexKeys,
    /// Recognizes the index, see [`StoredIndex`]. Its queue may be deleted and created again while the build waits.
    begun_in: Option<u32>,
    /// The timeline of its last step, see [`ShardState`].
    timeline_begin: u64,
    /// Up to where the scan of the messages has come.
    cursor: String,
}

/// The outcome of one step of a build.
enum BuildStep {
    /// Older messages are left.
    More,
    /// The index covers every older message.
    Covered,
    /// The index has been dropped, or another server has built it.
    Gone,
}

/// A build of this server. When it ends, it leaves the list, and those that wait for it continue.
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
