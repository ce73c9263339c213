//! The store on Redis: every verb of [`Store`](tallystone_model::Store) is one script call, atomic and durable before its answer.
//!
//! What lives here: the layout check at the start (`format`), the configuration that this server
//! believes in (`view`), wake-ups between servers (`wake`), building and dropping of filter indexes
//! (`indexes`), the verbs (`verbs`; `dequeue` with its steps), and the taking apart of replies (`reply`). What may
//! not: rules of the queue (the scripts), combining and waiting (`engine/`), the wire (`api/`).

mod dequeue;
mod indexes;
mod outbox;
mod reply;
mod verbs;
mod view;
mod wake;

pub use outbox::{OutboxBound, OutboxFull, OutboxReader, Read};
pub use tallystone_link::ConnectError;
pub use tallystone_link::{Clock, ReplicaWait};

use redis::{Cmd, Value};
use reply::{Reply, defect, unreadable};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use tallystone_link::{Format, Link, RedisConfig};
use tallystone_lua::constants::Answer;
use tallystone_lua::{Script, ShardKeys, keys, record};
use tallystone_model::{QueueName, Refusal, Shard};
use view::View;
use wake::Wakes;

/// How to reach Redis, and what is asked of it.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// `redis://host:port/db`.
    pub url: String,
    /// Work with a Redis that may lose acknowledged writes (Q16).
    pub allow_volatile: bool,
    /// Replicas that must have each write before it is answered; 0: none (Q16).
    pub replicas_min: u32,
    /// How long to wait for them.
    pub replica_wait_ms: u64,
    /// What the outboxes hold.
    pub outbox: OutboxBound,
    /// A filter index that was never declared is dropped when no filter used it for so long.
    pub index_unused_ms: u64,
    /// Whose time.
    pub clock: Clock,
}

impl Default for RedisOptions {
    fn default() -> Self {
        RedisOptions {
            url: "redis://127.0.0.1:6379".to_owned(),
            allow_volatile: false,
            replicas_min: 0,
            replica_wait_ms: 1_000,
            outbox: OutboxBound::default(),
            index_unused_ms: 3_600_000,
            clock: Clock::Redis,
        }
    }
}

impl RedisOptions {
    /// The options that a configuration gives.
    pub fn new(redis: &RedisConfig, outbox: OutboxBound) -> RedisOptions {
        let RedisConfig { url, allow_volatile, replicas_min, replica_wait_ms } = redis.clone();
        RedisOptions { url, allow_volatile, replicas_min, replica_wait_ms, outbox, ..RedisOptions::default() }
    }
}

/// The texts of all scripts.
fn scripts() -> impl Iterator<Item = &'static str> {
    Script::ALL.iter().map(|script| script.source())
}

/// The store on Redis. Cheap to share behind an `Arc`; heals by itself after a lost connection.
pub struct RedisStore {
    shared: Arc<Shared>,
    listener: tokio::task::JoinHandle<()>,
}

/// What background builders of indexes share with the store.
struct Shared {
    link: Link,
    options: RedisOptions,
    /// Tells this server from others in the marks of who waits.
    server_id: String,
    views: RwLock<HashMap<Shard, Arc<View>>>,
    wakes: Arc<Wakes>,
    builds: indexes::Builds,
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

/// How queues are laid out.
const FORMAT: Format = Format { what: "queues", key: "ts:format", used: keys::QUEUES, number: 2 };

impl RedisStore {
    /// Connects, checks version and durability, and loads the scripts.
    pub async fn connect(options: RedisOptions) -> Result<RedisStore, ConnectError> {
        let client = tallystone_link::client(&options.url)?;
        let replicas = ReplicaWait { replicas_min: options.replicas_min, wait_ms: options.replica_wait_ms };
        let link = Link::new(client, replicas, scripts());
        let shown = tallystone_link::without_password(&options.url);
        tallystone_link::preflight(&link, &shown, options.allow_volatile).await?;
        FORMAT.check(&link, &shown).await?;
        let unreachable = |why: String| ConnectError::Unreachable { url: shown.clone(), why };
        link.load_scripts().await.map_err(|failure| unreachable(Refusal::from(failure).to_string()))?;
        let subscription = wake::subscribe(link.client()).await.map_err(|error| unreachable(error.to_string()))?;
        let wakes = Arc::new(Wakes::default());
        let listener = tokio::spawn(wake::listen(link.client().clone(), subscription, Arc::downgrade(&wakes)));
        let server_id = uuid::Uuid::now_v7().to_string();
        let shared =
            Shared { link, options, server_id, views: RwLock::default(), wakes, builds: indexes::Builds::default() };
        Ok(RedisStore { shared: Arc::new(shared), listener })
    }

    /// Acquires or renews the leader lease of a background job, for `lease_ms`. `false`: another server holds it.
    pub async fn acquire_leader_lease(&self, job: &str, owner: &str, lease_ms: u64) -> Result<bool, Refusal> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::AcquireLeaderLease.sha1()).arg(1).arg(keys::leader_lease(job)).arg(owner).arg(lease_ms);
        Ok(self.shared.link.eval(&command, false).await? == Value::Int(1))
    }

    /// Ends the leader lease, so that another server need not wait until it runs out.
    pub async fn release_leader_lease(&self, job: &str, owner: &str) -> Result<(), Refusal> {
        // The shortest lease there is: a release needs no script of its own.
        self.acquire_leader_lease(job, owner, 1).await.map(drop)
    }
}

/// Whether a publish to this server itself is wanted: the verbs of a lane look again by themselves, others do not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Lane,
    Other,
}

impl Shared {
    fn believed(&self, shard: &Shard) -> Option<Arc<View>> {
        self.views.read().unwrap_or_else(PoisonError::into_inner).get(shard).cloned()
    }

    fn believe(&self, shard: &Shard, stored: &[u8], state: &[u8]) -> Result<Arc<View>, Refusal> {
        let view = Arc::new(View::read(shard, stored, state, &self.options.outbox)?);
        self.views.write().unwrap_or_else(PoisonError::into_inner).insert(shard.clone(), view.clone());
        Ok(view)
    }

    fn forget(&self, shard: &Shard) -> Refusal {
        self.views.write().unwrap_or_else(PoisonError::into_inner).remove(shard);
        Refusal::QueueNotFound { queue: shard.queue.to_string() }
    }

    /// Reads the configuration and the counters as they stand.
    async fn read(&self, shard: &Shard) -> Result<(Arc<View>, record::ShardState), Refusal> {
        let keys = ShardKeys::new(shard);
        let value = self.link.call(redis::cmd("MGET").arg(keys.key("config")).arg(keys.key("state"))).await?;
        let Value::Array(parts) = value else { return Err(defect("no list")) };
        let [Value::BulkString(stored), Value::BulkString(state)] = parts.as_slice() else {
            return Err(self.forget(shard));
        };
        let counters = record::decode_state(state).map_err(unreadable)?;
        let view = match self.believed(shard) {
            Some(view) if view.revision == counters.revision && view.created_at_ms == counters.created_at_ms => view,
            known => {
                let view = self.believe(shard, stored, state)?;
                if known.is_none() {
                    self.register(&shard.queue, false).await?;
                }
                view
            }
        };
        Ok((view, counters))
    }

    /// The registry lists a queue that is there. It is written before the queue is made and after it is deleted, and
    /// again by every server that meets the queue: a deletion that crossed a creation cannot hide it for long.
    ///
    /// Who reads outboxes is told of one more. `about_to_make`: in any case, because whoever has put the name there may
    /// have died before it told.
    async fn register(&self, queue: &QueueName, about_to_make: bool) -> Result<(), Refusal> {
        let added = self.link.call(redis::cmd("ZADD").arg(keys::QUEUES).arg(0).arg(queue.as_str())).await?;
        if about_to_make || added != Value::Int(0) {
            let mut tell = redis::cmd("XADD");
            tell.arg(keys::NEW_QUEUES).arg("MAXLEN").arg("~").arg(100).arg("*").arg("queue").arg(queue.as_str());
            self.link.call(&tell).await?;
        }
        Ok(())
    }

    /// A queue was there, and was deleted not long ago (Q10).
    async fn was_deleted(&self, shard: &Shard) -> Result<bool, Refusal> {
        let mark = ShardKeys::new(shard).key("deleted");
        Ok(self.link.call(redis::cmd("EXISTS").arg(mark)).await? == Value::Int(1))
    }

    async fn view(&self, shard: &Shard) -> Result<Arc<View>, Refusal> {
        match self.believed(shard) {
            Some(view) => Ok(view),
            None => Ok(self.read(shard).await?.0),
        }
    }

    fn now_argument(&self) -> u64 {
        self.options.clock.argument()
    }

    /// EVALSHA with the head of arguments that `lib/shard.lua` reads.
    fn command(&self, script: Script, view: &View, more_keys: &[String], caller: Caller) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script.sha1()).arg(view.keys.len() + more_keys.len()).arg(&view.keys).arg(more_keys);
        command.arg(self.now_argument()).arg(view.revision).arg(view.parameters.as_slice());
        command.arg(if caller == Caller::Lane { self.server_id.as_str() } else { "" });
        command
    }

    /// Calls a script with the arguments that `fill` adds for the view it is given, again with the present view as
    /// often as the believed one turns out old.
    async fn run(
        &self,
        shard: &Shard,
        script: Script,
        caller: Caller,
        mut fill: impl FnMut(&View, &mut Cmd) -> Result<(), Refusal> + Send,
    ) -> Result<(Arc<View>, Reply), Refusal> {
        let mut view = self.view(shard).await?;
        loop {
            let mut command = self.command(script, &view, &[], caller);
            fill(&view, &mut command)?;
            match self.send(shard, script, &command).await? {
                Sent::Done(reply) => return Ok((view, reply)),
                Sent::Stale(present) => view = present,
            }
        }
    }

    async fn send(&self, shard: &Shard, script: Script, command: &Cmd) -> Result<Sent, Refusal> {
        let writes = !script.source().starts_with("#!lua flags=no-writes");
        let mut reply = Reply::read(self.link.eval(command, writes).await?, Answer::from_code)?;
        match reply.answer {
            Answer::NoQueue => Err(self.forget(shard)),
            Answer::Stale => {
                let (stored, state) = (reply.bytes()?, reply.bytes()?);
                Ok(Sent::Stale(self.believe(shard, &stored, &state)?))
            }
            _ => Ok(Sent::Done(reply)),
        }
    }
}

enum Sent {
    Done(Reply),
    Stale(Arc<View>),
}
