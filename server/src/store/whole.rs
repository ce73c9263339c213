//! The verbs on whole queues: create, update, delete, each over all shards of a queue, which may be in several partitions
//! (Q17, docs/decisions/0181).
//!
//! The first shard has the configuration; the queue exists while it exists. It is created first and deleted last. The others have
//! copies, which follow it. Each step may be the last one of a server that dies: then the next call that misses the rest does it.

use super::copies::{Copies, copies};
use super::partitions;
use super::queues::changed_meanwhile;
use super::shared::{Deleted, Shared};
use super::stored::Stored;
use super::view::View;
use futures::future::join_all;
use std::sync::Arc;
use tallystone_model::config::{QueueConfig, QueuePatch};
use tallystone_model::store::Queue;
use tallystone_model::{Applied, Generation, Layout, QueueName, Refusal, Shard, Spread};

/// How long the missing shards of a queue that is being deleted are not created again: a deletion takes less, unless its server
/// dies.
const DELETION_MS: u64 = 10_000;

/// The queues of a store.
pub(super) struct Whole<'a> {
    partitions: &'a [Arc<Shared>],
    copies: Copies<'a>,
}

impl<'a> Whole<'a> {
    /// Those of a store with these partitions.
    pub(super) fn new(partitions: &'a [Arc<Shared>]) -> Self {
        Whole { partitions, copies: Copies(partitions) }
    }

    /// The partition with the keys of a shard.
    fn of(&self, shard: &Shard) -> &'a Arc<Shared> {
        partitions::of(self.partitions, shard)
    }

    pub(super) async fn create(&self, name: &QueueName, config: QueueConfig) -> Result<Queue, Refusal> {
        let config = config.patched(&QueuePatch::default())?;
        let first = Shard::first(name);
        let mut stored = Stored::new(config.clone());
        if config.shards > 1
            && let Some((member, spread)) = self.copies.left_behind(&first, &config).await?
        {
            stored.member = Some(member);
            if let Some(spread) = spread {
                stored.take_spread(&spread, 0);
            }
        }
        let created = self.of(&first).create_shard(&first, &stored).await?;
        let mut view = created.ok_or_else(changed_meanwhile)?;
        if *view.config() != config {
            return Err(Refusal::QueueExists { queue: name.to_string() });
        }
        if view.stored.deleting_since_ms().is_some() {
            view = self.copies.revive(&first).await.map_err(Refusal::after_an_earlier_try)?;
        }
        self.copies.follow_all(&first, &view).await.map_err(Refusal::after_an_earlier_try)?;
        Ok(view.queue(name))
    }

    pub(super) async fn update(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal> {
        let first = Shard::first(name);
        if patch.shards.is_some() {
            // What a change before it has not reached, and what a copy knows of one that the first shard has lost.
            let view = self.undeleted(&self.of(&first).read(&first).await?.0, &first).await?;
            let view = self.copies.catch_up(&first, view).await?;
            let view = self.copies.follow_all(&first, &view).await?;
            let shards = view.config().patched(&patch)?.shards;
            if shards != view.config().shards {
                let spread = Spread::changed(view.config(), view.stored.spread.as_ref(), shards)?;
                self.check_room(&first, &spread)?;
                self.index_values(&first, view.stored.layout().current()).await?;
            }
        }
        let edit = |view: &View, stored: &mut Stored| {
            let config = stored.config.patched(&patch)?;
            if config.shards != stored.config.shards {
                if stored.deleting_since_ms().is_some() {
                    return Err(changed_meanwhile());
                }
                // The first shard is closed with this, if it is not closed yet.
                let spread = Spread::changed(&stored.config, stored.spread.as_ref(), config.shards)?;
                if !stored.admits(&spread, 0) {
                    return Err(changed_meanwhile());
                }
                stored.take_spread(&spread, view.created_at_ms);
            }
            match stored.configure(config) {
                true => Ok(()),
                false => Err(Refusal::TooManyIndexes { queue: name.to_string() }),
            }
        };
        let view = self.of(&first).configure(&first, edit).await?;
        // The change is in force, also where a new shard finds no room, and where an earlier one has lost its index.
        let after = |refusal: Refusal| match refusal.after_an_earlier_try() {
            late @ (Refusal::StoreFull { .. } | Refusal::IndexBuilding { .. } | Refusal::TooManyIndexes { .. }) => {
                Refusal::Unavailable { applied: Applied::Unknown, why: late.to_string() }
            }
            refusal => refusal,
        };
        let followed = self.copies.follow_all(&first, &view).await.map_err(after)?;
        Ok(followed.queue(name))
    }

    /// Whether the disks have room for new shards. The earlier ones are closed before the new ones are created: without them, no
    /// Dequeue that calls all shards is answered. A Redis at its bound of memory is not noticed before the change.
    ///
    /// # Errors
    /// [`Refusal::StoreFull`]: the disk of a partition has none.
    fn check_room(&self, first: &Shard, spread: &Spread) -> Result<(), Refusal> {
        spread.current.numbers().try_for_each(|number| self.of(&first.sibling(number)).options.room.check())
    }

    /// Prepares these shards of a queue to be closed. The change itself closes the first one, so the index of the first one must be
    /// complete before.
    ///
    /// # Errors
    /// [`Refusal::IndexBuilding`]: some of them build it in the background.
    async fn index_values(&self, first: &Shard, shards: Generation) -> Result<(), Refusal> {
        let mut building = None;
        for shard in shards.numbers().map(|number| first.sibling(number)) {
            match self.of(&shard).index_values(&shard).await {
                Err(refusal @ Refusal::IndexBuilding { .. }) => building = Some(refusal),
                indexed => indexed?,
            }
        }
        building.map_or(Ok(()), Err)
    }

    pub(super) async fn delete(&self, name: &QueueName) -> Result<(), Refusal> {
        let first = Shard::first(name);
        let partition = self.of(&first);
        let member = match partition.read(&first).await {
            Ok((view, _)) => view.stored.member.clone().map(|member| (member, view)),
            Err(Refusal::QueueNotFound { .. }) => None,
            Err(refusal) => return Err(refusal),
        };
        let Some((member, view)) = member else { return partition.delete_shard(&first, None).await };
        let layout = view.stored.layout();
        let others: Vec<Shard> = copies(&first, &layout).collect();
        let all: Vec<Shard> = std::iter::once(first.clone()).chain(others.iter().cloned()).collect();
        let all: Vec<&Shard> = all.iter().collect();
        let states = async |partition: Arc<Shared>, shards: Vec<Shard>| partition.shard_states(&shards).await;
        let states = partitions::of_shards(self.partitions, &all, states).await?;
        if states.iter().flatten().any(|(depth, _)| depth.live() > 0) {
            return Err(Refusal::QueueNotEmpty { queue: name.to_string() });
        }
        // From now on calls that miss a shard do not create it again.
        let now_ms = partition.now_ms().await?;
        let begin = |stored: &mut Stored| {
            let is_same = stored.layout() == layout;
            match &mut stored.member {
                Some(current) if is_same && (&current.queue_id, current.epoch) == (&member.queue_id, member.epoch) => {
                    current.deleting_since_ms = now_ms;
                    Ok(())
                }
                _ => Err(changed_meanwhile()),
            }
        };
        partition.change(&first, begin).await?;
        let deleted = join_all(others.iter().map(|shard| self.copies.delete_copy(shard, &member))).await;
        let mut deleted = deleted.into_iter().collect::<Result<(), Refusal>>();
        if deleted.is_ok() {
            deleted = partition.delete_shard(&first, Some(&member)).await;
        }
        match deleted {
            Ok(()) => Ok(()),
            // A message came meanwhile: the queue stays.
            Err(not_empty @ Refusal::QueueNotEmpty { .. }) => {
                let view = self.copies.revive(&first).await.map_err(Refusal::after_an_earlier_try)?;
                self.copies.follow_all(&first, &view).await.map_err(Refusal::after_an_earlier_try)?;
                Err(not_empty)
            }
            Err(refusal) => Err(refusal.after_an_earlier_try()),
        }
    }

    pub(super) async fn was_exclusive(&self, name: &QueueName) -> Result<bool, Refusal> {
        Ok(self.of(&Shard::first(name)).deleted(&Shard::first(name)).await? == Some(Deleted::Exclusive))
    }

    pub(super) async fn layout(&self, first: &Shard) -> Result<Layout, Refusal> {
        Ok(self.of(first).view(first).await?.stored.layout())
    }

    pub(super) async fn mend(&self, shard: &Shard) -> Result<(), Refusal> {
        let first = shard.sibling(0);
        let partition = self.of(&first);
        let mut view = partition.read(&first).await?.0;
        if shard.number == 0 || !view.stored.layout().has(shard.number) {
            return Ok(());
        }
        view = self.undeleted(&view, &first).await?;
        self.copies.follow(shard, &view).await
    }

    /// The first shard as it was seen, unless its queue is being deleted. If the server that deletes it has died, the queue stays.
    async fn undeleted(&self, view: &Arc<View>, first: &Shard) -> Result<Arc<View>, Refusal> {
        let Some(since_ms) = view.stored.deleting_since_ms() else { return Ok(view.clone()) };
        if self.of(first).now_ms().await? < since_ms + DELETION_MS {
            return Err(Refusal::QueueNotFound { queue: first.queue.to_string() });
        }
        self.copies.revive(first).await
    }
}
