//! Changes of the number of shards of a queue (docs/decisions/0268): what the shards say of them after a failover, and their end.

use super::copies::Copies;
use super::entry::read;
use super::queues::changed_meanwhile;
use super::shared::Caller;
use super::stored::{Member, Stored};
use super::view::View;
use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_lua::Script;
use tallystone_lua::constants::FAR_MS;
use tallystone_lua::record::ShardState;
use tallystone_model::config::QueueConfig;
use tallystone_model::{Refusal, Shard, Spread};

impl Copies<'_> {
    /// The first shard takes over how a copy of its queue says that the number of shards was changed, if that is later than what it has:
    /// it has lost the change. Returns the first shard as it is then, also if the copy is of another queue.
    pub(super) async fn adopt(&self, first: &Shard, copy: &Stored) -> Result<Arc<View>, Refusal> {
        let (Some(member), Some(spread)) = (&copy.member, &copy.spread) else {
            return Ok(self.of(first).read(first).await?.0);
        };
        let current = self.of(first).read(first).await?.0;
        if current.stored.is_of(&member.queue_id, current.created_at_ms) && !current.stored.admits(spread, 0) {
            self.of(first).index_values(first).await?;
        }
        let adopt = |view: &View, _: &ShardState, stored: &mut Stored| {
            if !stored.is_of(&member.queue_id, view.created_at_ms) {
                return Ok(());
            }
            if stored.deleting_since_ms().is_some() || !stored.admits(spread, 0) {
                return Err(changed_meanwhile());
            }
            let had_others = stored.member.is_some();
            stored.take_spread(spread, view.created_at_ms);
            if let Some(own) = stored.member.as_mut().filter(|_| !had_others) {
                own.epoch = own.epoch.max(member.epoch);
            }
            Ok(())
        };
        self.of(first).change_seen(first, adopt).await
    }

    /// The same for all copies that the registries have, also those that the first shard has lost.
    pub(super) async fn catch_up(&self, first: &Shard, view: Arc<View>) -> Result<Arc<View>, Refusal> {
        let is_ours = |stored: &Stored| {
            stored.member.as_ref().is_some_and(|member| view.stored.is_of(&member.queue_id, view.created_at_ms))
        };
        let latest = self.latest(first, is_ours).await?;
        match latest.filter(|copy| copy.stored.spread_version() > view.stored.spread_version()) {
            Some(copy) => self.adopt(first, &copy.stored).await,
            None => Ok(view),
        }
    }

    /// Removes the closed shards of a queue if nothing is left in them.
    ///
    /// The first shard is changed before they are deleted: a server that has them in mind finds that they are no shards of the queue
    /// any more, and none creates them again. If this server dies between the two, `remove_strays` deletes them.
    pub(super) async fn finish(&self, first: &Shard, view: &Arc<View>) -> Result<(), Refusal> {
        let (Some(spread), Some(member)) = (&view.stored.spread, &view.stored.member) else { return Ok(()) };
        let Some(oldest) = spread.old.first().copied() else { return Ok(()) };
        for number in oldest.numbers() {
            let shard = first.sibling(number);
            if !self.is_drained(&shard, spread).await? {
                return Ok(());
            }
            // What is read may not be on the replicas yet. This is confirmed after all writes before it (docs/decisions/0240).
            self.of(&shard).run(&shard, Script::Sweep, Caller::Other, |_, _| Ok(())).await?;
            if !self.is_drained(&shard, spread).await? {
                return Ok(());
            }
        }
        let finish = |stored: &mut Stored| {
            if stored.spread.as_ref() == Some(spread) && stored.member.as_ref() == Some(member) {
                stored.spread = Some(spread.finished());
            }
            Ok(())
        };
        let finished = self.of(first).change(first, finish).await?;
        let is_ours = finished.stored.member.as_ref().is_some_and(|found| found.queue_id == member.queue_id);
        if !is_ours || finished.stored.spread_version() <= spread.version {
            // It is being deleted, or was created again.
            return Ok(());
        }
        self.follow_all(first, &finished).await?;
        for number in oldest.numbers().filter(|number| *number > 0) {
            self.delete_copy(&first.sibling(number), member).await?;
        }
        tracing::info!(queue = %first.queue, shards = oldest.count, "the earlier shards of a queue are empty and removed");
        Ok(())
    }

    /// Whether a shard is closed by this change and nothing is left in it. Nothing comes to a closed shard that is empty, so what it has
    /// can be read bit by bit: the ids last, because the collection of the last message may add one.
    async fn is_drained(&self, shard: &Shard, spread: &Spread) -> Result<bool, Refusal> {
        let partition = self.of(shard);
        let (view, state) = match partition.read(shard).await {
            Ok(found) => found,
            // Another server removes it, or a creation has not reached it.
            Err(Refusal::QueueNotFound { .. }) => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        if view.stored.spread.as_ref() != Some(spread) || state.counts.iter().any(|count| *count > 0) {
            return Ok(false);
        }
        let keys = partition.keyspace.shard(shard);
        let has_bodies: bool = read(partition.link.call(redis::cmd("EXISTS").arg(keys.key("body"))).await?)?;
        if has_bodies {
            return Ok(false);
        }
        // Without a window, those of earlier windows count as none; they are deleted with the shard.
        if view.config().id_window_ms == 0 {
            return Ok(true);
        }
        let now_ms = partition.now_ms().await?;
        let mut count = redis::cmd("ZCOUNT");
        // As `lib/ids.lua` has them.
        count.arg(keys.key("request_due")).arg(format!("({}", 2 * FAR_MS + now_ms)).arg("+inf");
        Ok(read::<u64>(partition.link.call(&count).await?)? == 0)
    }

    /// What the first shard of a queue had whose copies are still there, and which its store has lost: they keep what they have. `None`:
    /// there are none, or their queue was deleted, or was another one.
    pub(super) async fn left_behind(
        &self,
        first: &Shard,
        config: &QueueConfig,
    ) -> Result<Option<(Member, Option<Spread>)>, Refusal> {
        let partition = self.of(first);
        let is_new = matches!(partition.read(first).await, Err(Refusal::QueueNotFound { .. }));
        if !is_new || partition.deleted(first).await?.is_some() {
            return Ok(None);
        }
        let latest = self.latest(first, |_| true).await?;
        let Some(Stored { config: found, member: Some(member), spread, .. }) = latest.map(|view| view.stored.clone())
        else {
            return Ok(None);
        };
        let is_same = (found.shards == config.shards || spread.is_some()) && found.queue_type == config.queue_type;
        let first_member = Member { copied_revision: 0, deleting_since_ms: 0, ..member };
        Ok(is_same.then_some((first_member, spread)))
    }

    /// Of the copies that the registries have, and that pass, the one with the latest spread; of equally late ones the lowest number.
    async fn latest(
        &self,
        first: &Shard,
        passes: impl Fn(&Stored) -> bool + Send + Sync,
    ) -> Result<Option<Arc<View>>, Refusal> {
        let mut latest: Option<Arc<View>> = None;
        for copy in self.registered(first).await?.into_values() {
            let found = match self.of(&copy).read(&copy).await {
                Ok((found, _)) => found,
                Err(Refusal::QueueNotFound { .. }) => continue,
                Err(refusal) => return Err(refusal),
            };
            let version = |view: &View| view.stored.spread_version();
            if passes(&found.stored) && latest.as_ref().is_none_or(|latest| version(&found) > version(latest)) {
                latest = Some(found);
            }
        }
        Ok(latest)
    }

    /// The shards of a queue but the first, by their numbers, as the registries have them.
    async fn registered(&self, first: &Shard) -> Result<BTreeMap<u16, Shard>, Refusal> {
        let mut found = BTreeMap::new();
        for partition in self.0 {
            let mut command = redis::cmd("ZRANGEBYLEX");
            // Their tags end with their numbers. So may tags of queues whose names begin like this one.
            command.arg(partition.keyspace.shards());
            command.arg(format!("[{}/0", first.queue)).arg(format!("({}/:", first.queue));
            let tags: Vec<String> = read(partition.link.call(&command).await?)?;
            let shards = tags.iter().filter_map(|tag| Shard::of_tag(tag));
            found.extend(shards.filter(|shard| shard.queue == first.queue).map(|shard| (shard.number, shard)));
        }
        Ok(found)
    }
}
