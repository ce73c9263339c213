//! The store: its partitions, and their connections to Redis.

use super::copies::{self, Copies};
use super::marks::{self, Kept};
use super::options::RedisOptions;
use super::pace::Pace;
use super::partitions;
use super::shared::{Partition, Shared, script_texts};
use super::undeclared::Seen;
use super::wake::{self, Wakes};
use super::whole::Whole;
use futures::future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;
use tallystone_link::{
    ConnectError, Demands, Format, Identity, Link, LinkError, Node, Primary, RedisConfig, StoreStatus,
    agree_on_partitions,
};
use tallystone_lua::keys::{self, Keyspace};
use tallystone_model::store::{Depth, Page};
use tallystone_model::{Layout, QueueName, Refusal, Shard};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The store on Redis. It opens a lost connection again.
pub struct RedisStore {
    /// One on a single Redis, several on a Redis Cluster.
    partitions: Vec<Arc<Shared>>,
    /// Whether the first partition has answered the last call about a leader lease.
    first_answers: AtomicBool,
    wakes: Arc<Wakes>,
    /// End with the store.
    _tasks: JoinSet<()>,
}

/// The identity mark of a partition.
const MARK: &str = "ts:store";

/// The format of the data of a partition.
fn format(keyspace: &Keyspace) -> Format {
    Format { what: "queues", key: keyspace.key("ts:format"), used: keyspace.queues(), number: 2 }
}

impl RedisStore {
    /// Connects, checks version and durability, and loads the scripts.
    pub async fn connect(options: RedisOptions) -> Result<RedisStore, ConnectError> {
        let primary = options.access.first_primary(&options.url)?;
        let shown = tallystone_model::without_password(&options.url);
        let partitions = options.partitions.max(1);
        if partitions > 1 {
            let home = primary.with_slot(keys::slot_of(keys::PARTITIONS));
            agree_on_partitions(home, keys::PARTITIONS, partitions, &shown, options.allow_volatile).await?;
        }
        let keyspaces: Vec<Keyspace> = Keyspace::all(partitions).collect();
        let primaries: Vec<Primary> = keyspaces.iter().map(|keyspace| primary.with_slot(keyspace.slot())).collect();
        let (wakes, mut tasks) = (Arc::new(Wakes::default()), JoinSet::new());
        let server_id = uuid::Uuid::now_v7().to_string();
        let opened = (0..partitions).zip(keyspaces).zip(&primaries).map(|((number, keyspace), primary)| {
            let partition = Partition { number, partitions };
            open(partition, keyspace, primary.clone(), &options, server_id.clone(), wakes.clone())
        });
        let partitions = future::try_join_all(opened).await?;
        let subscription = wake::subscribe(&primaries[0]).await;
        let unreachable = |why: String| ConnectError::Unreachable { url: shown.clone(), why };
        let subscription = subscription.map_err(|error| unreachable(error.to_string()))?;
        for (partition, primary) in partitions.iter().zip(&primaries) {
            let mut clock = partition.options.clock.watch(primary);
            tasks.spawn(async move { while clock.join_next().await.is_some() {} });
            if let Some(identity) = &partition.identity {
                tasks.spawn(wake::wake_when_lost(identity.watch(), Arc::downgrade(&wakes)));
            }
            tasks.spawn(marks::check_often(partition.clone()));
        }
        tasks.spawn(options.room.clone().watch());
        let shard_check = Duration::from_millis(options.shard_check_ms);
        tasks.spawn(copies::follow_often(partitions.clone(), shard_check));
        tasks.spawn(wake::listen(primaries, subscription, Arc::downgrade(&wakes)));
        Ok(RedisStore { partitions, first_answers: AtomicBool::new(true), wakes, _tasks: tasks })
    }

    /// The partition with the keys of a shard.
    pub(super) fn of(&self, shard: &Shard) -> &Arc<Shared> {
        partitions::of(&self.partitions, shard)
    }

    /// The longest wait of a write for its replicas.
    pub(super) fn replica_wait(&self) -> Duration {
        self.partitions[0].options.replicas().longest()
    }

    /// Its queues, which may have shards in several partitions.
    pub(super) fn whole(&self) -> Whole<'_> {
        Whole::new(&self.partitions)
    }

    pub(super) fn partitions(&self) -> &[Arc<Shared>] {
        &self.partitions
    }

    /// Whether the first partition has answered the last call about a leader lease.
    pub(super) fn first_answers(&self) -> &AtomicBool {
        &self.first_answers
    }

    pub(super) fn wakes(&self) -> &Wakes {
        &self.wakes
    }

    /// The number of partitions.
    pub fn partition_count(&self) -> u16 {
        u16::try_from(self.partitions.len()).unwrap_or(u16::MAX)
    }

    /// What the last probe of each partition found, in their order.
    pub fn statuses(&self) -> Vec<watch::Receiver<StoreStatus>> {
        let identities = self.partitions.iter().filter_map(|partition| partition.identity.as_ref());
        identities.map(|identity| identity.watch()).collect()
    }

    /// A store over a Redis within the process (X8): without the checks of [`connect`](RedisStore::connect), without an
    /// identity mark and without background tasks. `server_id` names this server; no other has it.
    pub fn within_process(node: Arc<dyn Node>, options: RedisOptions, server_id: String) -> RedisStore {
        let link = Link::new(node, options.replicas(), script_texts());
        let wakes = Arc::new(Wakes::default());
        let (partition, keyspace) = (Partition::WHOLE, Keyspace::default());
        let whole = shared(link, partition, keyspace, None, options, server_id, wakes.clone());
        RedisStore { partitions: vec![whole], first_answers: AtomicBool::new(true), wakes, _tasks: JoinSet::new() }
    }

    /// Delivers to this server one message of the channel of wake-ups, which a Redis within the process has published.
    pub fn wake_ups(&self) -> impl Fn(&[u8]) + Send + Sync + use<> {
        let wakes = Arc::downgrade(&self.wakes);
        move |payload| {
            if let Some(wakes) = wakes.upgrade() {
                wake::deliver(payload, &wakes);
            }
        }
    }

    /// Takes a Redis over as it is, after its data was deleted or is older than it was (X7): running processes continue with
    /// it. Returns its new mark, of several partitions the last one; `None`: no process has noticed a loss.
    pub async fn accept(redis: &RedisConfig) -> Result<Option<String>, ConnectError> {
        let partitions = Keyspace::all(redis.partition_count());
        Identity::accept_each(redis, partitions.map(|keyspace| (keyspace.slot(), keyspace.key(MARK)))).await
    }

    /// The identity marks of the partitions, as far as they have any.
    pub async fn marks(redis: &RedisConfig) -> Result<Vec<String>, ConnectError> {
        let partitions = Keyspace::all(redis.partition_count());
        Identity::show_each(redis, partitions.map(|keyspace| (keyspace.slot(), keyspace.key(MARK)))).await
    }

    /// One page of the shards of a partition in which something falls due, each with the time until then.
    pub async fn sweep_times(&self, partition: u16, cursor: &str) -> Result<Page<(Shard, Duration)>, Refusal> {
        self.partitions[usize::from(partition)].sweep_times(cursor).await
    }

    /// One page of the shards of a partition, each with its queue and its messages.
    pub async fn queue_depths(&self, partition: u16, cursor: &str) -> Result<Page<(QueueName, Depth)>, Refusal> {
        let page = self.partitions[usize::from(partition)].queue_depths(cursor).await?;
        let mut items = Vec::with_capacity(page.items.len());
        for (shard, depth) in page.items {
            if shard.number > 0 {
                // So that `cached_shards` knows of this queue. While its first shard is unavailable, it has no series.
                drop(self.whole().layout(&shard.sibling(0)).await);
            }
            items.push((shard.queue, depth));
        }
        Ok(Page { items, next_cursor: page.next_cursor })
    }

    /// The shards of a queue, as far as this server knows.
    pub fn cached_shards(&self, queue: &QueueName) -> Vec<Shard> {
        let first = Shard::first(queue);
        let layout = self.of(&first).cached(&first).map_or_else(Layout::plain, |view| view.stored.layout());
        layout.shards(queue).collect()
    }

    /// What each partition keeps for the queues of this prefix. The bytes are an estimate of Redis, and 0 unless they are
    /// requested.
    pub async fn kept(&self, prefix: &str, with_bytes: bool) -> Vec<Result<Kept, Refusal>> {
        partitions::kept(&self.partitions, prefix, with_bytes).await
    }

    /// The messages of these shards, in their order, each with the record of its state, which changes with every
    /// transition; `None`: there is no such queue.
    pub async fn shard_states(&self, shards: &[Shard]) -> Result<Vec<Option<(Depth, Vec<u8>)>>, Refusal> {
        let shards: Vec<&Shard> = shards.iter().collect();
        let states = async |partition: Arc<Shared>, shards: Vec<Shard>| partition.shard_states(&shards).await;
        partitions::of_shards(&self.partitions, &shards, states).await
    }

    /// Wakes the waiting callers of shards that have lost the mark of this server: a script made something runnable and
    /// published it, and the publication was lost. A check runs every minute.
    pub async fn check_waiting(&self) -> Result<(), Refusal> {
        for partition in &self.partitions {
            partition.check_waiting().await?;
        }
        Ok(())
    }

    /// Brings the shards of the queues that this server uses up to date, and removes those that their queues do not have. Returns
    /// how many of these are left because they have messages. A check runs every minute.
    pub async fn check_shards(&self) -> Result<usize, Refusal> {
        Copies(&self.partitions).check().await
    }

    /// Corrects what is recorded of the entries of undeclared indexes. Returns of how many shards. A check runs every minute.
    pub async fn correct_entries(&self) -> Result<usize, Refusal> {
        let mut corrected = 0;
        for partition in &self.partitions {
            corrected += partition.correct_entries().await?;
        }
        Ok(corrected)
    }

    /// Removes deleted queues from the list of left outboxes whose outboxes no longer exist. Returns how many. A check runs
    /// every minute.
    pub async fn forget_left_outboxes(&self) -> Result<usize, Refusal> {
        let mut forgotten = 0;
        for partition in &self.partitions {
            forgotten += partition.forget_left_outboxes().await?;
        }
        Ok(forgotten)
    }
}

/// Connects one partition, and checks the Redis that has it.
async fn open(
    partition: Partition,
    keyspace: Keyspace,
    primary: Primary,
    options: &RedisOptions,
    server_id: String,
    wakes: Arc<Wakes>,
) -> Result<Arc<Shared>, ConnectError> {
    let replicas = options.replicas();
    let (shown, mark) = (tallystone_model::without_password(&options.url), keyspace.key(MARK));
    let checked = (mark.as_str(), &options.store_ids[..], format(&keyspace));
    let demands = Demands::open(primary.clone(), &shown, replicas, options.allow_volatile, checked).await?;
    let link = Link::new(primary.clone(), replicas, script_texts());
    let link = link.on(demands.condition());
    let identity = Identity::open(primary, &mark, &shown, options.allow_volatile).await?;
    let link = link.guarded_by(identity.state());
    let unreachable =
        |error: LinkError| ConnectError::Unreachable { url: shown.clone(), why: Refusal::from(error).to_string() };
    link.load_scripts().await.map_err(unreachable)?;
    let clock = if partition.number == 0 { options.clock.clone() } else { options.clock.of_another() };
    let options = RedisOptions { clock, ..options.clone() };
    Ok(shared(link, partition, keyspace, Some(identity), options, server_id, wakes))
}

fn shared(
    link: Link,
    partition: Partition,
    keyspace: Keyspace,
    identity: Option<Arc<Identity>>,
    options: RedisOptions,
    server_id: String,
    wakes: Arc<Wakes>,
) -> Arc<Shared> {
    let (views, builds, pace) = (RwLock::default(), Mutex::default(), Pace::new());
    let undeclared = Seen::default();
    Arc::new(Shared { link, partition, keyspace, identity, options, server_id, views, wakes, builds, pace, undeclared })
}
