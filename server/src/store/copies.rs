//! The copies of the configuration of a queue with several shards: all shards but the first have one, and follow the first
//! (docs/decisions/0181, 0183).

use super::partitions;
use super::queues::changed_meanwhile;
use super::reply::defect;
use super::shared::Shared;
use super::stored::{Member, Stored};
use super::view::View;
use futures::future::join_all;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tallystone_model::{Layout, Refusal, Shard};

/// The shards of a queue with this layout that are copies.
pub(super) fn copies(first: &Shard, layout: &Layout) -> impl Iterator<Item = Shard> + use<> {
    layout.shards(&first.queue).skip(1)
}

/// The copies of the queues of a store with these partitions.
#[derive(Clone, Copy)]
pub(super) struct Copies<'a>(pub(super) &'a [Arc<Shared>]);

impl<'a> Copies<'a> {
    /// The partition with the keys of a shard.
    pub(super) fn of(&self, shard: &Shard) -> &'a Arc<Shared> {
        partitions::of(self.0, shard)
    }

    /// The queue is not deleted after all.
    pub(super) async fn revive(&self, first: &Shard) -> Result<Arc<View>, Refusal> {
        let revive = |stored: &mut Stored| {
            if let Some(member) = stored.member.as_mut().filter(|member| member.deleting_since_ms > 0) {
                member.deleting_since_ms = 0;
                member.epoch += 1;
            }
            Ok(())
        };
        self.of(first).change(first, revive).await
    }

    /// All copies get the configuration of the queue, and those that are missing are created: first those that are closed. Returns the
    /// first shard as it was then.
    pub(super) async fn follow_all(&self, first: &Shard, view: &Arc<View>) -> Result<Arc<View>, Refusal> {
        let mut view = view.clone();
        loop {
            for generation in view.stored.layout().generations() {
                let copies = generation.numbers().filter(|number| *number > 0).map(|number| first.sibling(number));
                // One that fails holds up no other.
                let followed = join_all(copies.map(async |shard| self.follow(&shard, &view).await)).await;
                followed.into_iter().collect::<Result<(), Refusal>>()?;
            }
            // A copy may have been ahead.
            match self.of(first).cached(first) {
                Some(current) if current.stored.spread_version() > view.stored.spread_version() => view = current,
                _ => return Ok(view),
            }
        }
    }

    /// The same for one copy. `view`: of the first shard, perhaps an earlier one.
    ///
    /// A copy that is ahead of the view, or deleted in its epoch, is compared with the first shard as it is after the copy was read:
    /// either the view is old, or the first shard has lost its last changes (docs/decisions/0183). What it has lost of its number of
    /// shards, it takes over from the copy: a closed shard stays closed (docs/decisions/0268).
    pub(super) async fn follow(&self, shard: &Shard, view: &Arc<View>) -> Result<(), Refusal> {
        let partition = self.of(shard);
        let mut view = view.clone();
        while let Some(wanted) = view.stored.copied_member() {
            let copy = match partition.read(shard).await {
                Ok((copy, _)) => copy,
                Err(Refusal::QueueNotFound { .. }) => {
                    if partition.create_shard(shard, &Stored::copy_of(&view.stored)).await?.is_some() {
                        return Ok(());
                    }
                    view = match self.newer(shard, &view).await? {
                        Some(current) => current,
                        None => self.next_epoch(&shard.sibling(0), &wanted).await?,
                    };
                    continue;
                }
                Err(refusal) => return Err(refusal),
            };
            let found = copy.stored.member.clone().ok_or_else(|| defect("a shard that belongs to no queue"))?;
            if found == wanted && copy.stored.spread == view.stored.spread {
                return Ok(());
            }
            let is_ours = found.queue_id == wanted.queue_id;
            if is_ours && copy.stored.spread_version() > view.stored.spread_version() {
                view = self.adopt(&shard.sibling(0), &copy.stored).await?;
                if !view.stored.layout().has(shard.number) {
                    return Ok(());
                }
                continue;
            }
            if (!is_ours || !found.is_behind(&wanted))
                && let Some(current) = self.newer(shard, &view).await?
            {
                view = current;
                continue;
            }
            if !is_ours {
                clear(partition, shard, &found).await?;
                continue;
            }
            let admits =
                |stored: &Stored| view.stored.spread.as_ref().is_none_or(|spread| stored.admits(spread, shard.number));
            if !admits(&copy.stored) {
                partition.index_values(shard).await?;
                continue;
            }
            let edit = |_: &View, stored: &mut Stored| {
                // Another server may have changed it meanwhile.
                let is_later = stored.spread_version() > view.stored.spread_version();
                if stored.member.as_ref() != Some(&found) || is_later || !admits(stored) {
                    return Ok(());
                }
                stored.member = Some(wanted.clone());
                stored.spread.clone_from(&view.stored.spread);
                match stored.configure(view.config().clone()) {
                    true => Ok(()),
                    false => Err(Refusal::TooManyIndexes { queue: shard.queue.to_string() }),
                }
            };
            partition.configure(shard, edit).await?;
        }
        Ok(())
    }

    /// The first shard of this copy, if it differs from the view.
    async fn newer(&self, copy: &Shard, view: &Arc<View>) -> Result<Option<Arc<View>>, Refusal> {
        let first = copy.sibling(0);
        let current = self.of(&first).read(&first).await?.0;
        if current.stored.deleting_since_ms().is_some() || !current.stored.layout().has(copy.number) {
            return Err(changed_meanwhile());
        }
        Ok((current.stored.copied_member() != view.stored.copied_member()).then_some(current))
    }

    /// A copy was deleted in this epoch, but its queue is there: the first shard has lost its deletion. The queue stays.
    async fn next_epoch(&self, first: &Shard, copied: &Member) -> Result<Arc<View>, Refusal> {
        let raise = |stored: &mut Stored| {
            let is_same = |member: &&mut Member| (&member.queue_id, member.epoch) == (&copied.queue_id, copied.epoch);
            if let Some(member) = stored.member.as_mut().filter(is_same) {
                member.epoch += 1;
            }
            Ok(())
        };
        self.of(first).change(first, raise).await
    }

    /// Deletes a copy, and leaves the mark of a deletion also where there is none: a call that is late must not create it any more.
    pub(super) async fn delete_copy(&self, shard: &Shard, member: &Member) -> Result<(), Refusal> {
        let partition = self.of(shard);
        loop {
            match partition.delete_shard(shard, Some(member)).await {
                // Deleted before, or not created yet, or one of another queue of this name.
                Ok(()) | Err(Refusal::QueueNotFound { .. }) => {}
                Err(refusal) => return Err(refusal),
            }
            if partition.is_marked_deleted(shard, member).await? {
                return Ok(());
            }
            // Perhaps it was created between the two: then it is deleted now.
            partition.mark_deleted(shard, member).await?;
        }
    }

    /// Brings the copies of all queues that this server uses up to date, if a server died while it changed a queue, ends changes of their
    /// numbers of shards, and removes shards that they do not have. Returns how many of these are left.
    pub(super) async fn check(&self) -> Result<usize, Refusal> {
        for first in self.queues_of_several() {
            let followed = async {
                let view = self.of(&first).read(&first).await?.0;
                if view.stored.member.is_none() || view.stored.deleting_since_ms().is_some() {
                    return Ok(());
                }
                let view = self.follow_all(&first, &view).await?;
                self.finish(&first, &view).await
            };
            if let Err(refusal) = followed.await {
                tracing::debug!(queue = %first.queue, %refusal, "the shards of a queue were not checked");
            }
        }
        self.remove_strays().await
    }

    /// The first shards of the queues with several shards that this server has used.
    fn queues_of_several(&self) -> Vec<Shard> {
        let mut found = Vec::new();
        for partition in self.0 {
            let views = partition.views.read().unwrap_or_else(PoisonError::into_inner);
            let firsts = views.iter().filter(|(shard, view)| shard.number == 0 && view.is_of_several());
            found.extend(firsts.map(|(shard, _)| shard.clone()));
        }
        // A simulated episode repeats its order (X8).
        found.sort_unstable();
        found
    }
}

/// Removes a shard of an earlier queue, unless another server has done that and created one of the current queue.
async fn clear(partition: &Arc<Shared>, shard: &Shard, of: &Member) -> Result<(), Refusal> {
    const ALL: u8 = 1;
    let mut cursor = String::new();
    let cleared = loop {
        cursor = match partition.purge_step(shard, ALL, Some(of), &cursor).await {
            Ok(step) => step.next_cursor,
            Err(refusal) => break Err(refusal),
        };
        if cursor.is_empty() {
            break partition.delete_shard(shard, Some(of)).await;
        }
    };
    match cleared {
        Err(Refusal::QueueNotFound { .. }) => Ok(()),
        cleared => cleared,
    }
}

/// Checks the shards of the queues that this server uses, again and again.
pub(super) async fn follow_often(partitions: Vec<Arc<Shared>>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if let Err(refusal) = Copies(&partitions).check().await {
            tracing::debug!(%refusal, "the registry of shards was not walked");
        }
    }
}
