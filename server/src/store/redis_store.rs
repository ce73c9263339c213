//! The store: its connection to Redis, and the leader leases.

use super::marks::{self, Kept};
use super::options::RedisOptions;
use super::pace::Pace;
use super::shared::Shared;
use super::wake::{self, Wakes};
use redis::Value;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tallystone_link::{ConnectError, Demands, Format, Identity, Link, Node, RedisConfig, ReplicaWait};
use tallystone_lua::{Script, keys};
use tallystone_model::store::{Depth, Page};
use tallystone_model::{QueueName, Refusal, Shard};
use tokio::task::JoinSet;

/// The store on Redis. It opens a lost connection again.
pub struct RedisStore {
    pub(super) shared: Arc<Shared>,
    /// End with the store.
    _tasks: JoinSet<()>,
}

/// The identity mark of the queues' store.
const MARK: &str = "ts:store";
/// The format of the queues' data.
static FORMAT: Format = Format { what: "queues", key: "ts:format", used: keys::QUEUES, number: 2 };

impl RedisStore {
    /// Connects, checks version and durability, and loads the scripts.
    pub async fn connect(options: RedisOptions) -> Result<RedisStore, ConnectError> {
        let primary = options.access.primary(&options.url)?;
        let replicas = ReplicaWait { replicas_min: options.replicas_min, wait_ms: options.replica_wait_ms };
        let shown = tallystone_model::without_password(&options.url);
        let demands = Demands::open(primary.clone(), &shown, replicas, options.allow_volatile, (MARK, &FORMAT)).await?;
        let link = Link::new(primary.clone(), replicas, Script::ALL.iter().map(|script| script.source()));
        let link = link.on(demands.condition());
        let identity = Identity::open(primary.clone(), MARK, &shown, options.allow_volatile).await?;
        let link = link.guarded_by(identity.state());
        let unreachable = |why: String| ConnectError::Unreachable { url: shown.clone(), why };
        link.load_scripts().await.map_err(|failure| unreachable(Refusal::from(failure).to_string()))?;
        let subscription = wake::subscribe(&primary).await.map_err(|error| unreachable(error.to_string()))?;
        let wakes = Arc::new(Wakes::default());
        let mut tasks = options.clock.watch(&primary);
        tasks.spawn(options.room.clone().watch());
        tasks.spawn(wake::listen(primary, subscription, Arc::downgrade(&wakes)));
        tasks.spawn(wake::wake_when_lost(identity.watch(), Arc::downgrade(&wakes)));
        let server_id = uuid::Uuid::now_v7().to_string();
        let (views, builds, pace) = (RwLock::default(), Mutex::default(), Pace::new());
        let shared = Shared { link, identity: Some(identity), options, server_id, views, wakes, builds, pace };
        let shared = Arc::new(shared);
        tasks.spawn(marks::check_often(shared.clone()));
        Ok(RedisStore { shared, _tasks: tasks })
    }

    /// A store over a Redis within the process (X8): without the checks of [`connect`](RedisStore::connect), without an
    /// identity mark and without background tasks. `server_id` names this server; no other has it.
    pub fn within_process(node: Arc<dyn Node>, options: RedisOptions, server_id: String) -> RedisStore {
        let replicas = ReplicaWait { replicas_min: options.replicas_min, wait_ms: options.replica_wait_ms };
        let link = Link::new(node, replicas, Script::ALL.iter().map(|script| script.source()));
        let (views, builds, pace) = (RwLock::default(), Mutex::default(), Pace::new());
        let shared = Shared { link, identity: None, options, server_id, views, wakes: Arc::default(), builds, pace };
        RedisStore { shared: Arc::new(shared), _tasks: JoinSet::new() }
    }

    /// Delivers to this server one message of the channel of wake-ups, which a Redis within the process has published.
    pub fn wake_ups(&self) -> impl Fn(&[u8]) + Send + Sync + use<> {
        let wakes = Arc::downgrade(&self.shared.wakes);
        move |payload| {
            if let Some(wakes) = wakes.upgrade() {
                wake::deliver(payload, &wakes);
            }
        }
    }

    /// Takes a Redis over as it is, after its data was deleted or is older than it was (X7): running processes go on with
    /// it. Returns its new mark; `None`: no process has noticed a loss.
    pub async fn accept(redis: &RedisConfig) -> Result<Option<String>, ConnectError> {
        let shown = tallystone_model::without_password(&redis.url);
        Identity::accept(redis.access().primary(&redis.url)?, MARK, &shown).await
    }

    /// Acquires or renews the leader lease of a background job, for `lease_ms`. `false`: another server holds it.
    pub async fn acquire_leader_lease(&self, job: &str, owner: &str, lease_ms: u64) -> Result<bool, Refusal> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(Script::AcquireLeaderLease.sha1()).arg(1).arg(keys::leader_lease(job));
        let clock = &self.shared.options.clock;
        clock.stamp(&mut command);
        command.arg(owner).arg(lease_ms);
        Ok(clock.eval(&self.shared.link, &command, false).await? == Value::Int(1))
    }

    /// One page of the shards in which something falls due, each with the time until then.
    pub async fn sweep_times(&self, cursor: &str) -> Result<Page<(Shard, Duration)>, Refusal> {
        self.shared.sweep_times(cursor).await
    }

    /// One page of all queues with their messages, in order of name.
    pub async fn queue_depths(&self, cursor: &str) -> Result<Page<(QueueName, Depth)>, Refusal> {
        self.shared.queue_depths(cursor).await
    }

    /// What is kept for the queues of this prefix. The bytes are an estimate of Redis, and 0 unless they are requested.
    pub async fn kept(&self, prefix: &str, with_bytes: bool) -> Result<Kept, Refusal> {
        self.shared.kept(prefix, with_bytes).await
    }

    /// The messages of these shards, in their order, each with the record of its state, which changes with every
    /// transition; `None`: there is no such queue.
    pub async fn shard_states(&self, shards: &[Shard]) -> Result<Vec<Option<(Depth, Vec<u8>)>>, Refusal> {
        self.shared.shard_states(shards).await
    }

    /// Wakes the waiting callers of shards that have lost the mark of this server: a script made something runnable and
    /// published it, and the publication was lost. A check runs every minute.
    pub async fn check_waiting(&self) -> Result<(), Refusal> {
        self.shared.check_waiting().await
    }

    /// Removes deleted queues from the list of left outboxes whose outboxes no longer exist. Returns how many. A check runs
    /// every minute.
    pub async fn forget_left_outboxes(&self) -> Result<usize, Refusal> {
        self.shared.forget_left_outboxes().await
    }

    /// Ends the leader lease, so that another server need not wait until it runs out.
    pub async fn release_leader_lease(&self, job: &str, owner: &str) -> Result<(), Refusal> {
        // The shortest lease there is: so a release needs no other script.
        self.acquire_leader_lease(job, owner, 1).await.map(drop)
    }
}
