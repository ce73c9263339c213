//! What every verb uses: the link, the cached view of each shard, the call of a script.

use super::entry::read;
use super::options::RedisOptions;
use super::pace::Pace;
use super::reply::{QueueReply, defect, unreadable};
use super::stored::Member;
use super::undeclared::Seen;
use super::view::View;
use super::wake::Wakes;
use redis::{Cmd, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tallystone_link::{Identity, Link, LinkError};
use tallystone_lua::constants::Answer;
use tallystone_lua::keys::Keyspace;
use tallystone_lua::{Script, record};
use tallystone_model::{Filter, IndexKeys, QueueConfig, Refusal, Shard};
use tokio_util::sync::CancellationToken;

/// The texts of the scripts in the order in which they are loaded. Dequeue is the last: if Redis has it, it has the others. Otherwise, after
/// SCRIPT FLUSH, a flush could carry out its Dequeue, which leaves the mark of this server as one that waits, and then its Complete, which
/// notifies no server that is marked by its own flush.
pub(super) fn script_texts() -> impl Iterator<Item = &'static str> {
    let others = Script::ALL.iter().filter(|script| **script != Script::Dequeue);
    others.chain([&Script::Dequeue]).map(|script| script.source())
}

/// How far the name of this server is behind the stamp of a script call ([`Shared::command`]).
const SERVER_ID_BEHIND_STAMP: usize = 3;

/// What the verbs and the background builds of indexes share.
pub(super) struct Shared {
    pub(super) link: Link,
    /// Which part of the store this is.
    pub(super) partition: Partition,
    /// The keys of this partition.
    pub(super) keyspace: Keyspace,
    /// `None`: a simulator's store, whose losses the simulator knows.
    pub(super) identity: Option<Arc<Identity>>,
    pub(super) options: RedisOptions,
    /// Names this server in the mark of waiting servers.
    pub(super) server_id: String,
    pub(super) views: RwLock<HashMap<Shard, Arc<View>>>,
    pub(super) wakes: Arc<Wakes>,
    /// The index builds that this server runs, so that another use of a filter does not start a second one. Cancelled: the
    /// build continues in the background.
    pub(super) builds: Mutex<HashMap<(Shard, IndexKeys), CancellationToken>>,
    /// The pace of the builds that continue in the background.
    pub(super) pace: Pace,
    /// The entries of the indexes that filters have created.
    pub(super) undeclared: Seen,
}

/// A part of the store: `number` of `partitions`, from 0. Most stores have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub(super) number: u16,
    pub(super) partitions: u16,
}

impl Partition {
    /// The whole store.
    pub(super) const WHOLE: Partition = Partition { number: 0, partitions: 1 };

    pub(super) fn has(self, shard: &Shard) -> bool {
        Keyspace::number_of(shard, self.partitions) == self.number
    }
}

/// What a deleted queue was.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Deleted {
    Simple,
    Exclusive,
}

/// Whether this server itself needs a wake-up after a script: a lane checks for runnable messages itself, with a dequeue that it sends
/// directly behind; other callers do not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    Lane,
    Other,
}

impl Caller {
    /// The caller of the next script of a call. Only the first is sent before the dequeue of its flush: that one may find nothing, and leave
    /// the mark of this server, before the others make messages runnable.
    pub(super) fn then_other(&mut self) -> Caller {
        std::mem::replace(self, Caller::Other)
    }
}

impl Shared {
    pub(super) fn cached(&self, shard: &Shard) -> Option<Arc<View>> {
        self.views.read().unwrap_or_else(PoisonError::into_inner).get(shard).cloned()
    }

    pub(super) fn cache(&self, shard: &Shard, stored: &[u8], state: &[u8]) -> Result<Arc<View>, Refusal> {
        let view = Arc::new(View::read(shard, stored, state, &self.options.outbox, &self.keyspace)?);
        self.views.write().unwrap_or_else(PoisonError::into_inner).insert(shard.clone(), view.clone());
        Ok(view)
    }

    pub(super) fn forget(&self, shard: &Shard) -> Option<Arc<View>> {
        self.views.write().unwrap_or_else(PoisonError::into_inner).remove(shard)
    }

    /// Verifies that the store is what it was (X7).
    pub(super) async fn verify_identity(&self) -> Result<(), LinkError> {
        match &self.identity {
            Some(identity) => identity.verify().await,
            None => Ok(()),
        }
    }

    /// The store has no such queue. `had_it`: it had, as far as this server knew, so the whole store may be another one.
    /// The queue is forgotten only afterwards, so that every call that meets the loss says so, not only the first.
    async fn no_queue(&self, shard: &Shard, had_it: bool) -> Refusal {
        if (had_it || self.cached(shard).is_some())
            && let Err(error) = self.verify_identity().await
        {
            return error.into();
        }
        self.forget(shard);
        Refusal::QueueNotFound { queue: shard.queue.to_string() }
    }

    /// Reads the current configuration and state.
    pub(super) async fn read(&self, shard: &Shard) -> Result<(Arc<View>, record::ShardState), Refusal> {
        let keys = self.keyspace.shard(shard);
        let value = self.link.call(redis::cmd("MGET").arg(keys.key("config")).arg(keys.key("state"))).await?;
        let Value::Array(parts) = value else { return Err(defect("no list")) };
        let [Value::BulkString(stored), Value::BulkString(state)] = parts.as_slice() else {
            return Err(self.no_queue(shard, false).await);
        };
        let counters = record::decode_state(state).map_err(unreadable)?;
        let view = match self.cached(shard) {
            Some(view) if view.revision == counters.revision && view.created_at_ms == counters.created_at_ms => view,
            cached => {
                // Before it is cached: a dequeue that finds the view sends its script at once, and would overtake the enqueue of its flush
                // that has read the view and still registers it. And a call after one that has failed registers it again.
                if cached.is_none() {
                    self.register(shard, false).await?;
                }
                self.cache(shard, stored, state)?
            }
        };
        Ok((view, counters))
    }

    /// Adds a shard to its registry. The registry is written before a shard is created and after it is deleted, and again
    /// by every server that first uses the shard: so a deletion that raced with a creation cannot hide it for long.
    ///
    /// The relay is notified of a new name. `creating`: it is notified in any case, because the server that added the name
    /// may have died before it notified.
    pub(super) async fn register(&self, shard: &Shard, creating: bool) -> Result<(), Refusal> {
        let (registry, name) = self.registered(shard);
        let added = self.link.call(redis::cmd("ZADD").arg(registry).arg(0).arg(name)).await?;
        if creating || added != Value::Int(0) {
            let mut notify = redis::cmd("XADD");
            notify
                .arg(self.keyspace.new_queues())
                .arg("MAXLEN")
                .arg("~")
                .arg(100)
                .arg("*")
                .arg("queue")
                .arg(shard.queue.as_str());
            self.link.call(&notify).await?;
        }
        Ok(())
    }

    /// Whether a shard is in its registry: it exists, or is about to be created or removed.
    pub(super) async fn is_registered(&self, shard: &Shard) -> Result<bool, Refusal> {
        let (registry, name) = self.registered(shard);
        Ok(self.link.call(redis::cmd("ZSCORE").arg(registry).arg(name)).await? != Value::Nil)
    }

    /// The registry of a shard, and its name in it.
    pub(super) fn registered(&self, shard: &Shard) -> (String, String) {
        match shard.number {
            0 => (self.keyspace.queues(), shard.queue.to_string()),
            _ => (self.keyspace.shards(), shard.tag()),
        }
    }

    /// The store's time: Unix ms.
    pub(super) async fn now_ms(&self) -> Result<u64, Refusal> {
        match self.options.clock.argument() {
            0 => Ok(self.link.time_ms().await?),
            test_ms => Ok(test_ms),
        }
    }

    /// Whether a queue was deleted within the last hour, or an exclusive one within the last 30 days, and not created
    /// again (Q1, Q10).
    pub(super) async fn deleted(&self, shard: &Shard) -> Result<Option<Deleted>, Refusal> {
        let kind = |mark: String| if mark.starts_with("exclusive") { Deleted::Exclusive } else { Deleted::Simple };
        Ok(self.deletion_mark(shard).await?.map(kind))
    }

    /// Whether the mark of a deletion says that this shard must not be created in this epoch of its queue.
    pub(super) async fn is_marked_deleted(&self, shard: &Shard, member: &Member) -> Result<bool, Refusal> {
        let mark = self.deletion_mark(shard).await?;
        let of = mark.as_deref().and_then(|mark| mark.rsplit_once(" of ")?.1.rsplit_once(':'));
        Ok(of.is_some_and(|(id, epoch)| {
            id == member.queue_id && epoch.parse().is_ok_and(|epoch: u32| epoch >= member.epoch)
        }))
    }

    /// Leaves such a mark for a shard that does not exist; what an earlier mark says of its sequence stays.
    pub(super) async fn mark_deleted(&self, shard: &Shard, member: &Member) -> Result<(), Refusal> {
        const HOUR_MS: u32 = 3_600_000;
        let earlier = self.deletion_mark(shard).await?;
        let mut command = redis::cmd("SET");
        command.arg(self.keyspace.shard(shard).key("deleted"));
        match &earlier {
            // One that has expired meanwhile is not written again without a time.
            Some(mark) => {
                let kept = mark.split_once(" of ").map_or(mark.as_str(), |(kept, _)| kept);
                command.arg(format!("{kept} of {}", member.mark())).arg("XX").arg("KEEPTTL")
            }
            None => command.arg(format!("simple of {}", member.mark())).arg("NX").arg("PX").arg(HOUR_MS),
        };
        self.link.call(&command).await.map(drop).map_err(Refusal::from)
    }

    async fn deletion_mark(&self, shard: &Shard) -> Result<Option<String>, Refusal> {
        let mark = self.link.call(redis::cmd("GET").arg(self.keyspace.shard(shard).key("deleted"))).await?;
        read(mark)
    }

    pub(super) async fn view(&self, shard: &Shard) -> Result<Arc<View>, Refusal> {
        match self.cached(shard) {
            Some(view) => Ok(view),
            None => Ok(self.read(shard).await?.0),
        }
    }

    /// EVALSHA with the first arguments of every script, which `lib/shard.lua` reads.
    pub(super) fn command(&self, script: Script, view: &View, more_keys: &[String], caller: Caller) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.sha1()).arg(view.keys.len() + more_keys.len()).arg(&view.keys).arg(more_keys);
        if has_writes(script) {
            self.options.clock.stamp(&mut command);
        } else {
            command.arg(self.options.clock.argument());
        }
        command.arg(view.revision).arg(view.parameters.as_slice());
        command.arg(if caller == Caller::Lane { self.server_id.as_str() } else { "" });
        command
    }

    /// Calls a script with the arguments that `fill` adds for a view: first for the cached view, then, as long as the
    /// script answers that it is stale, for the current one.
    pub(super) async fn run(
        &self,
        shard: &Shard,
        script: Script,
        mut caller: Caller,
        mut fill: impl FnMut(&View, &mut Cmd) -> Result<(), Refusal> + Send,
    ) -> Result<(Arc<View>, QueueReply), Refusal> {
        let mut view = self.view(shard).await?;
        loop {
            let mut command = self.command(script, &view, &[], caller);
            fill(&view, &mut command)?;
            match self.send(shard, script, &command).await? {
                Sent::Done(reply) => return Ok((view, reply)),
                Sent::Stale(current) => view = current,
            }
            // The dequeue of the flush may come before the next try. Its own script leaves the mark of this server.
            if script != Script::Dequeue {
                caller = Caller::Other;
            }
        }
    }

    pub(super) async fn send(&self, shard: &Shard, script: Script, command: &Cmd) -> Result<Sent, Refusal> {
        // The dequeue of the flush may come before a call that is sent again. Its own script leaves the mark of this server.
        let first_only = (script != Script::Dequeue).then_some(SERVER_ID_BEHIND_STAMP);
        let clock = &self.options.clock;
        let answer = clock.eval_first_only(&self.link, command, first_only, has_writes(script)).await?;
        let mut reply = QueueReply::read(answer, Answer::from_code)?;
        match reply.answer {
            Answer::NoQueue => Err(self.no_queue(shard, true).await),
            Answer::Stale => {
                let (stored, state) = (reply.bytes()?, reply.bytes()?);
                Ok(Sent::Stale(self.cache(shard, &stored, &state)?))
            }
            _ => Ok(Sent::Done(reply)),
        }
    }

    /// Calls a script whose first argument is the clock's, and which notifies no server.
    pub(super) async fn eval(&self, command: &Cmd, writes: bool) -> Result<QueueReply, Refusal> {
        QueueReply::read(self.options.clock.eval(&self.link, command, writes).await?, Answer::from_code)
    }

    /// The state of a shard; `None`: its queue does not exist.
    pub(super) async fn state(&self, shard: &Shard) -> Result<Option<record::ShardState>, Refusal> {
        match self.link.call(redis::cmd("GET").arg(self.keyspace.shard(shard).key("state"))).await? {
            Value::BulkString(state) => Ok(Some(record::decode_state(&state).map_err(unreadable)?)),
            _ => Ok(None),
        }
    }

    /// Applies a rule to the configuration. Before it refuses it reads the current one: the cached one may be stale, and
    /// no script call follows that would say so. Returns whether it has done that.
    pub(super) async fn ensure(
        &self,
        shard: &Shard,
        rule: fn(&Shard, &QueueConfig) -> Result<(), Refusal>,
    ) -> Result<bool, Refusal> {
        match rule(shard, self.view(shard).await?.config()) {
            Ok(()) => Ok(false),
            Err(_) => rule(shard, self.read(shard).await?.0.config()).map(|()| true),
        }
    }
}

/// Whether a script may change something.
fn has_writes(script: Script) -> bool {
    !script.source().starts_with("#!lua flags=no-writes")
}

/// The outcome of one script call.
pub(super) enum Sent {
    /// The script acted.
    Done(QueueReply),
    /// The view was stale, and nothing was done; this is the current one.
    Stale(Arc<View>),
}

/// Refuses Dequeue on a paused queue.
pub(super) fn not_paused(shard: &Shard, config: &QueueConfig) -> Result<(), Refusal> {
    if config.dequeue_blocked { Err(Refusal::DequeueBlocked { queue: shard.queue.to_string() }) } else { Ok(()) }
}

/// Refuses Enqueue on a closed queue.
pub(super) fn not_closed(shard: &Shard, config: &QueueConfig) -> Result<(), Refusal> {
    if config.enqueue_blocked { Err(Refusal::EnqueueBlocked { queue: shard.queue.to_string() }) } else { Ok(()) }
}

/// A filter in the form that scripts take: the position of its index in the view, and its values. The index may have been
/// dropped since it was found: then the caller tries again, and the index is built again.
pub(super) fn filter_arguments(view: &View, filter: &Filter) -> Result<(u8, Vec<u8>), Refusal> {
    match view.index_of(filter) {
        Some((position, index)) if !index.building => {
            let mut tuple = Vec::new();
            record::encode_tuple(filter, &mut tuple);
            Ok((position, tuple))
        }
        _ => Err(Refusal::IndexBuilding { keys: filter.index_keys().to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q8_dequeue_is_loaded_after_all_others() {
        let texts: Vec<&str> = script_texts().collect();
        assert_eq!(texts.last(), Some(&Script::Dequeue.source()));
        assert_eq!(texts.len(), Script::ALL.len());
        assert!(Script::ALL.iter().all(|script| texts.contains(&script.source())));
    }
}
