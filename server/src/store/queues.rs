//! The verbs on one shard as a whole: create, configure, delete, purge. `whole` makes those on queues of them.

use super::shared::{Caller, Shared};
use super::stored::{Member, Stored};
use super::view::View;
use redis::Cmd;
use std::sync::Arc;
use tallystone_lua::Script;
use tallystone_lua::constants::Answer;
use tallystone_model::store::{Purged, Queue};
use tallystone_model::{Applied, QueueName, Refusal, Shard};

/// The purge of terminal messages only, for the deletion of a queue. (0: all but running ones, 1: all.)
const TERMINAL_ONLY: u8 = 2;
/// Queues of one page that are read at once.
pub(super) const READS_AT_ONCE: usize = 64;

/// The start and the end of a page of the registry: the names that begin with the prefix and follow the cursor.
pub(super) fn lexical_range(prefix: &str, cursor: &str) -> (String, String) {
    let from = if cursor.is_empty() { format!("[{prefix}") } else { format!("({cursor}") };
    let to = if prefix.is_empty() { "+".to_owned() } else { format!("({prefix}\x7f") };
    (from, to)
}

/// The refusal of a call on a whole queue that another one has changed meanwhile. The caller repeats it.
pub(super) fn changed_meanwhile() -> Refusal {
    Refusal::Unavailable { applied: Applied::No, why: "the queue was deleted, created or changed meanwhile".to_owned() }
}

impl Shared {
    /// Creates a shard with this configuration, unless it exists. Returns its current configuration; `None`: a late call for a
    /// shard that was deleted with its queue.
    pub(super) async fn create_shard(&self, shard: &Shard, stored: &Stored) -> Result<Option<Arc<View>>, Refusal> {
        self.options.room.check()?;
        // A queue that is made in an emptied store would hide the loss of one that was there.
        if let Some(identity) = &self.identity {
            identity.begin().await?;
        }
        self.register(shard, true).await?;
        let json = stored.write()?;
        let keys = self.keyspace.shard(shard).all([]);
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::CreateQueue.sha1()).arg(keys.len()).arg(&keys);
        self.options.clock.stamp(&mut command);
        command.arg(json);
        if let Some(member) = stored.member.as_ref().filter(|_| shard.number > 0) {
            command.arg(&member.queue_id).arg(member.epoch);
        }
        let mut reply = self.eval(&command, true).await?;
        if reply.answer == Answer::NoQueue {
            self.unregister(shard).await?;
            return Ok(None);
        }
        Ok(Some(self.cache(shard, &reply.bytes()?, &reply.bytes()?)?))
    }

    /// Changes the configuration of a shard, and builds the indexes that are declared.
    pub(super) async fn configure(
        self: &Arc<Self>,
        shard: &Shard,
        edit: impl Fn(&View, &mut Stored) -> Result<(), Refusal> + Send + Sync,
    ) -> Result<Arc<View>, Refusal> {
        let view = self.change_seen(shard, |view, _, stored| edit(view, stored)).await?;
        let declared: Vec<_> =
            view.stored.indexes.iter().filter(|index| index.building).map(|index| index.keys.clone()).collect();
        for keys in declared {
            match self.build(shard, keys).await {
                // Filters that need the index build it; while the store is full, they are refused.
                Ok(()) | Err(Refusal::IndexBuilding { .. } | Refusal::StoreFull { .. }) => {}
                // The configuration has changed already.
                Err(other) => return Err(other.after_an_earlier_try()),
            }
        }
        Ok(view)
    }

    pub(super) async fn get_queue(&self, name: &QueueName) -> Result<Queue, Refusal> {
        Ok(self.read(&Shard::first(name)).await?.0.queue(name))
    }

    /// Deletes a shard without live messages. `of`: the queue and epoch that it must belong to, of several; another one stays. `None`:
    /// the only shard of its queue.
    pub(super) async fn delete_shard(&self, shard: &Shard, of: Option<&Member>) -> Result<(), Refusal> {
        // The relay must still read its last events. The shard is listed before it is deleted, or a crash between the
        // two would lose them; if the queue stays, so does the name.
        self.link.call(redis::cmd("SADD").arg(self.keyspace.left_outboxes()).arg(shard.tag())).await?;
        let fill = |view: &View, command: &mut redis::Cmd| {
            command.arg(u8::from(view.config().queue_type.key().is_some()));
            if of.is_none() && view.is_of_several() {
                // It has got others meanwhile, which would be left.
                return Err(changed_meanwhile());
            }
            if let Some(of) = of {
                let is_member = |member: &Member| member.queue_id == of.queue_id && member.epoch <= of.epoch;
                if !view.stored.member.as_ref().is_some_and(is_member) {
                    return Err(Refusal::QueueNotFound { queue: shard.queue.to_string() });
                }
                if shard.number > 0 {
                    command.arg(of.mark());
                }
            }
            Ok(())
        };
        let delete = async || self.run(shard, Script::DeleteQueue, Caller::Other, fill).await;
        let mut deleted = delete().await;
        while matches!(&deleted, Ok((_, reply)) if reply.answer == Answer::Again) {
            let mut cursor = String::new();
            loop {
                let step = self.purge_step(shard, TERMINAL_ONLY, of, &cursor).await;
                cursor = step.map_err(Refusal::after_an_earlier_try)?.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
            deleted = delete().await.map_err(Refusal::after_an_earlier_try);
        }
        match deleted {
            Ok((_, reply)) if reply.answer == Answer::NotEmpty => {
                return Err(Refusal::QueueNotEmpty { queue: shard.queue.to_string() });
            }
            Ok(_) => {}
            // A repeated call: the first reply was lost, perhaps before the registry was written.
            Err(Refusal::QueueNotFound { .. }) if self.deleted(shard).await?.is_some() => {}
            Err(refusal) => return Err(refusal),
        }
        self.forget(shard);
        self.unregister(shard).await.map_err(Refusal::after_an_earlier_try)
    }

    /// Removes a deleted shard from its registry.
    async fn unregister(&self, shard: &Shard) -> Result<(), Refusal> {
        let (registry, name) = self.registered(shard);
        self.link.call(redis::cmd("ZREM").arg(registry).arg(name)).await?;
        // A creation between the deletion and ZREM would leave the new queue unlisted.
        match self.read(shard).await {
            Ok(_) => self.register(shard, false).await,
            Err(Refusal::QueueNotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// One bounded step of a purge; `which` is the argument of `purge.lua`. `of`: the queue that the shard must belong to.
    pub(super) async fn purge_step(
        &self,
        shard: &Shard,
        which: u8,
        of: Option<&Member>,
        cursor: &str,
    ) -> Result<Purged, Refusal> {
        // A purge is not urgent: it must not displace events that history has not received yet.
        let bound = &self.options.outbox;
        if bound.limits(&shard.queue).0 > 0
            && let Some(state) = self.state(shard).await?
            && state.added.saturating_sub(state.acked) >= u64::from(bound.events_max)
        {
            let queue = shard.queue.to_string();
            return Err(Refusal::OutboxFull { queue, events_max: bound.events_max.into() });
        }
        let (scan, until) = match cursor {
            "" => ("0", "0"),
            cursor => cursor.split_once('-').ok_or_else(|| Refusal::invalid("cursor", "is not one of ours"))?,
        };
        let fill = |view: &View, command: &mut Cmd| {
            let is_member =
                |of: &Member| view.stored.member.as_ref().is_some_and(|found| found.queue_id == of.queue_id);
            if !of.is_none_or(is_member) {
                return Err(Refusal::QueueNotFound { queue: shard.queue.to_string() });
            }
            command.arg(which).arg(scan).arg(until);
            Ok(())
        };
        let (_, mut reply) = self.run(shard, Script::Purge, Caller::Other, fill).await?;
        let (purged, scan, until) = (reply.number()?, reply.text()?, reply.text()?);
        let next_cursor = if scan == "0" { String::new() } else { format!("{scan}-{until}") };
        Ok(Purged { purged, next_cursor })
    }
}
