//! The verbs on whole queues: create, update, get, list, delete, purge.

use super::shared::{Caller, Shared};
use super::view::{Stored, View};
use redis::Cmd;
use std::sync::Arc;
use tallystone_lua::Script;
use tallystone_lua::constants::Answer;
use tallystone_model::config::{QueueConfig, QueuePatch};
use tallystone_model::store::{Purged, Queue};
use tallystone_model::{QueueName, Refusal, Shard};

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

impl Shared {
    pub(super) async fn create_queue(
        self: &Arc<Self>,
        name: &QueueName,
        config: QueueConfig,
    ) -> Result<Queue, Refusal> {
        let config = config.patched(&QueuePatch::default())?;
        self.options.room.check()?;
        let shard = Shard::first(name);
        // A queue that is made in an emptied store would hide the loss of one that was there.
        self.verify_identity().await?;
        self.register(name, true).await?;
        let stored =
            serde_json::to_vec(&Stored::new(config.clone())).map_err(|error| Refusal::Internal(error.to_string()))?;
        let keys = self.keyspace.shard(&shard).all([]);
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::CreateQueue.sha1()).arg(keys.len()).arg(&keys);
        self.options.clock.stamp(&mut command);
        command.arg(stored);
        let mut reply = self.eval(&command, true).await?;
        let view = self.cache(&shard, &reply.bytes()?, &reply.bytes()?)?;
        if *view.config() != config {
            return Err(Refusal::QueueExists { queue: name.to_string() });
        }
        Ok(view.queue(name))
    }

    pub(super) async fn update_queue(self: &Arc<Self>, name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal> {
        let edit = |stored: &mut Stored| {
            let config = stored.config.patched(&patch)?;
            // An index that is no longer declared is dropped, unless filters used it before it was declared.
            stored.indexes.retain(|index| index.used_at_ms > 0 || config.indexes.contains(&index.keys));
            stored.config = config;
            for keys in stored.config.indexes.clone() {
                if !stored.declare_index(keys) {
                    return Err(Refusal::TooManyIndexes { queue: name.to_string() });
                }
            }
            Ok(())
        };
        let shard = Shard::first(name);
        let view = self.change(&shard, edit).await?;
        let declared: Vec<_> =
            view.stored.indexes.iter().filter(|index| index.building).map(|index| index.keys.clone()).collect();
        for keys in declared {
            match self.build(&shard, keys).await {
                // Filters that need the index build it; while the store is full, they are refused.
                Ok(()) | Err(Refusal::IndexBuilding { .. } | Refusal::StoreFull { .. }) => {}
                // The configuration has changed already.
                Err(other) => return Err(other.after_an_earlier_try()),
            }
        }
        Ok(view.queue(name))
    }

    pub(super) async fn get_queue(&self, name: &QueueName) -> Result<Queue, Refusal> {
        Ok(self.read(&Shard::first(name)).await?.0.queue(name))
    }

    pub(super) async fn delete_queue(&self, name: &QueueName) -> Result<(), Refusal> {
        let shard = Shard::first(name);
        // The relay must still read its last events. The shard is listed before it is deleted, or a crash between the
        // two would lose them; if the queue stays, the relay removes it from the list.
        self.link.call(redis::cmd("SADD").arg(self.keyspace.left_outboxes()).arg(shard.tag())).await?;
        let fill = |view: &View, command: &mut redis::Cmd| {
            command.arg(u8::from(view.config().queue_type.key().is_some()));
            Ok(())
        };
        let delete = async || self.run(&shard, Script::DeleteQueue, Caller::Other, fill).await;
        let mut deleted = delete().await;
        while matches!(&deleted, Ok((_, reply)) if reply.answer == Answer::Again) {
            let mut cursor = String::new();
            loop {
                let step = self.purge_step(&shard, TERMINAL_ONLY, &cursor).await;
                cursor = step.map_err(Refusal::after_an_earlier_try)?.next_cursor;
                if cursor.is_empty() {
                    break;
                }
            }
            deleted = delete().await.map_err(Refusal::after_an_earlier_try);
        }
        match deleted {
            Ok((_, reply)) if reply.answer == Answer::NotEmpty => {
                return Err(Refusal::QueueNotEmpty { queue: name.to_string() });
            }
            Ok(_) => {}
            // A repeated call: the first reply was lost, perhaps before the registry was written.
            Err(Refusal::QueueNotFound { .. }) if self.deleted(&shard).await?.is_some() => {}
            Err(refusal) => return Err(refusal),
        }
        self.forget(&shard);
        self.unregister(&shard).await.map_err(Refusal::after_an_earlier_try)
    }

    /// Removes a deleted queue from the registry.
    async fn unregister(&self, shard: &Shard) -> Result<(), Refusal> {
        let name = &shard.queue;
        self.link.call(redis::cmd("ZREM").arg(self.keyspace.queues()).arg(name.as_str())).await?;
        // A creation between the deletion and ZREM would leave the new queue unlisted.
        match self.read(shard).await {
            Ok(_) => self.register(name, false).await,
            Err(Refusal::QueueNotFound { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// One bounded step of a purge; `which` is the argument of `purge.lua`.
    pub(super) async fn purge_step(&self, shard: &Shard, which: u8, cursor: &str) -> Result<Purged, Refusal> {
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
        let fill = |_: &View, command: &mut Cmd| {
            command.arg(which).arg(scan).arg(until);
            Ok(())
        };
        let (_, mut reply) = self.run(shard, Script::Purge, Caller::Other, fill).await?;
        let (purged, scan, until) = (reply.number()?, reply.text()?, reply.text()?);
        let next_cursor = if scan == "0" { String::new() } else { format!("{scan}-{until}") };
        Ok(Purged { purged, next_cursor })
    }
}
