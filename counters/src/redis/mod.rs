//! The stores of a namespace on Redis: every change of a shard is one script call, atomic, and durable before its reply.
//!
//! What lives here: the connections and clocks (`partition`); the registry (`namespace`, `namespaces`, `watcher`, `dirty`);
//! the end of a namespace (`deleted`); the repair of one that was written under a wrong clock (`reset`); the stores
//! (`append` with `late`, `log`, `events`, `prune`, `archive`, `expire`, `checkpoints`, `recounts`, `crossings`, `regions`, `list`, `cache`);
//! how far the topics of other regions are merged (`region_positions`); how
//! calls are spread over shards (`fan_out`, `calls`) and over time (`pace`); what this process has cached of a shard
//! (`clock`, `layout`), and what many calls verify together (`shared_check`); the packed records that the scripts share
//! (`record`, `token`). What may not: rules of counting, which are in the scripts and in [`rollup`](crate::rollup).

mod append;
mod archive;
mod cache;
mod calls;
mod checkpoints;
mod clock;
mod crossings;
mod deleted;
mod dirty;
mod events;
mod expire;
mod fan_out;
mod late;
mod layout;
mod list;
mod log;
mod namespace;
mod namespaces;
mod pace;
mod partition;
mod prune;
mod record;
mod recounts;
mod region_positions;
mod regions;
mod reset;
mod shared_check;
mod token;
mod watcher;

pub use archive::ArchivePass;
pub use deleted::DeletedNamespace;
pub(crate) use fan_out::in_order;
pub use list::{CounterPage, ListedCounter};
pub use namespace::Namespace;
pub use namespaces::RedisNamespaces;
pub use region_positions::{MergedNamespace, MergedTopics, SKIPPED, TopicPosition};
pub use regions::Lacking;
pub use reset::ClockAhead;
pub use watcher::NamespaceWatcher;
pub(crate) use watcher::POLL_EVERY;

use crate::config::EventArchive;
use crate::log::NewEvent;
use crate::names::{CounterName, NamespaceName, RegionName};
use crate::namespace::{NamespaceConfig, Placement, SHARDS};
use crate::refusal::Refusal;
use calls::{call, defect, of_link};
use futures::future::try_join_all;
use layout::LayoutCache;
use namespace::Origin;
use pace::Pace;
use partition::{Partition, Partitions};
use redis::{Cmd, FromRedisValue, Pipeline, Value, from_redis_value};
use std::sync::Arc;
use tallystone_link::{Link, Room, ScanPosition, ScriptReply};
use tallystone_lua::counter::{CounterAnswer, CounterScript, CounterShardKeys};

/// The stores of one namespace on a Redis, as one revision has it.
#[derive(Clone)]
pub struct RedisNamespace {
    partitions: Partitions,
    name: NamespaceName,
    /// What its keys and rollup queues are named after.
    tag: Arc<str>,
    config: Arc<NamespaceConfig>,
    revision: u64,
    /// That of its records in other regions (N12).
    record_incarnation: u64,
    /// No event of it is before this time, in Unix ms; 0: this is not known.
    first_ms: u64,
    /// That of [`Namespace`].
    kept_from_ms: u64,
    room: Room,
    /// `None`: this process has none.
    archive: Option<EventArchive>,
    /// That of this installation; `None`: it has none.
    region: Option<RegionName>,
    pace: Arc<Pace>,
    layouts: Arc<[LayoutCache; SHARDS as usize]>,
}

impl RedisNamespace {
    /// The namespace in this revision of its configuration; all its shards follow that from now on. It refuses adds while there
    /// is no room for more data.
    ///
    /// # Errors
    /// [`Refusal::Stale`]: there is a later revision.
    async fn open(
        partitions: Partitions,
        (namespace, origin): (Namespace, Origin),
        (room, archive, region): (Room, Option<EventArchive>, Option<RegionName>),
        pace: Arc<Pace>,
    ) -> Result<RedisNamespace, Refusal> {
        let tag = namespace.tag().into();
        let Namespace { name, config, revision, incarnation, kept_from_ms } = namespace;
        config.check()?;
        let (config, layouts) = (Arc::new(config), Arc::default());
        let (record_incarnation, first_ms) = (origin.record_incarnation(incarnation), origin.first_ms());
        let namespace = RedisNamespace {
            partitions,
            name,
            tag,
            config,
            revision,
            record_incarnation,
            first_ms,
            kept_from_ms,
            room,
            archive,
            region,
            pace,
            layouts,
        };
        let configured = (0..SHARDS).map(async |shard| {
            let keys = namespace.keys(shard).log();
            namespace.run(shard, &namespace.log_call(CounterScript::Configure, shard, &keys)).await
        });
        try_join_all(configured).await?;
        Ok(namespace)
    }

    /// Its configuration.
    pub fn config(&self) -> &NamespaceConfig {
        &self.config
    }

    /// The revision of the configuration.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Its name.
    pub fn name(&self) -> &NamespaceName {
        &self.name
    }

    /// Its [tag](Namespace::tag).
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The number of partitions in which its counters are at home.
    pub fn homes(&self) -> usize {
        self.partitions.all().len().min(SHARDS.into())
    }

    /// Which of them is the home of a counter.
    pub fn home_of(&self, counter: &CounterName) -> usize {
        self.home_of_shard(Placement::of(counter).home())
    }

    /// Which of them has the shard of an event.
    pub(crate) fn home_of_event(&self, event: &NewEvent) -> usize {
        self.home_of_shard(Placement::of(&event.counter).of_event(&event.token, &self.config).0)
    }

    /// Partitions follow each other as shards do.
    fn home_of_shard(&self, shard: u16) -> usize {
        usize::from(shard) % self.homes()
    }

    /// The store's time as far as this process knows, in Unix ms: never ahead of the clock of any shard.
    pub fn now_ms(&self) -> u64 {
        self.partitions.all().iter().map(|partition| partition.now.now_ms()).min().unwrap_or_default()
    }

    /// Checks the time of a lease: a checkpoint that has one of the future would refuse every rollup until then.
    ///
    /// # Errors
    /// [`Refusal::ClockSkew`]: it is ahead of this process's clock by more than the bound (X6). The clocks of the queue's
    /// Redis and of its server were wrong alike, so the queue has not noticed.
    pub fn check_lease(&self, lease: crate::LeaseOrder) -> Result<(), Refusal> {
        Ok(self.partitions.first().clock.check_past(lease.leased_at_ms)?)
    }

    fn partition(&self, shard: u16) -> &Partition {
        self.partitions.of(&self.tag, shard)
    }

    fn link(&self, shard: u16) -> &Link {
        self.partition(shard).link(shard)
    }

    fn keys(&self, shard: u16) -> CounterShardKeys {
        CounterShardKeys::within(&self.partition(shard).keyspace, &self.tag, shard)
    }

    /// KEYS of a script that writes checkpoints: in a namespace with regions, such a counter needs attention.
    fn commit_keys(&self, shard: u16) -> Vec<String> {
        let keys = self.keys(shard);
        match self.config.regions.is_empty() {
            true => keys.commit().to_vec(),
            false => keys.regions()[..8].to_vec(),
        }
    }

    /// A call of a script of a shard, with the arguments that `counter/lib/shard.lua` or `home.lua` reads.
    fn log_call(&self, script: CounterScript, shard: u16, keys: &[String]) -> Cmd {
        let mut command = call(script, keys);
        self.stamp(shard, &mut command);
        command.arg(self.revision);
        command
    }

    /// Adds the clock argument of a script of a shard.
    fn stamp(&self, shard: u16, command: &mut Cmd) {
        self.partition(shard).clock.stamp(command);
    }

    /// A command that only reads.
    ///
    /// # Errors
    /// As [`reads`](RedisNamespace::reads): what it does not find was never there, or is deleted.
    async fn query<T: FromRedisValue>(&self, shard: u16, command: &Cmd) -> Result<T, Refusal> {
        let commands = std::iter::once(command.clone());
        let value = self.reads(shard, self.link(shard), commands).await?.pop();
        let value = value.ok_or_else(|| defect("nothing"))?;
        from_redis_value(value).map_err(|error| Refusal::Internal(error.to_string()))
    }

    /// The replies to commands that only read a shard, over this link.
    ///
    /// # Errors
    /// [`Refusal::DataLoss`]: also if they have read an emptied store (X7). Each shard has a state until its namespace is deleted.
    /// It is checked in the same round trip, after what was read; only where there is none, the store is verified.
    async fn reads(&self, shard: u16, link: &Link, commands: impl Iterator<Item = Cmd>) -> Result<Vec<Value>, Refusal> {
        let mut together = Pipeline::new();
        for command in commands {
            together.add_command(command);
        }
        together.cmd("EXISTS").arg(self.keys(shard).key("state"));
        let replies = link.calls(&together, false).await.map_err(of_link)?;
        let replies = replies.into_iter().map(|reply| match reply {
            Value::ServerError(error) => Err(of_link(error.into())),
            reply => Ok(reply),
        });
        let mut replies = replies.collect::<Result<Vec<Value>, Refusal>>()?;
        if replies.pop() != Some(Value::Int(1)) {
            self.partition(shard).verify().await?;
        }
        Ok(replies)
    }

    /// Fails if one of these shards has no state because its store is not what it was (X7): after something that cannot be
    /// [a query](RedisNamespace::query) has found nothing there.
    async fn verify_shards(&self, shards: impl IntoIterator<Item = u16>) -> Result<(), Refusal> {
        let verify = async |shard| self.reads(shard, self.link(shard), std::iter::empty()).await.map(drop);
        try_join_all(shards.into_iter().map(verify)).await.map(drop)
    }

    /// One call of a walk over a set or a hash of a shard: some of its members, and where it continues; `None`: nowhere.
    async fn scan<T: FromRedisValue>(
        &self,
        shard: u16,
        command: &str,
        key: &str,
        position: ScanPosition,
        count: usize,
    ) -> Result<(T, Option<ScanPosition>), Refusal> {
        let scanned = self.link(shard).scan(position, &[command, key], &["COUNT", &count.to_string()]).await;
        let (found, next) = scanned.map_err(of_link)?;
        Ok((from_redis_value(found).map_err(|error| Refusal::Internal(error.to_string()))?, next))
    }

    /// Runs a script, whatever code it replies.
    ///
    /// # Errors
    /// [`Refusal::DataLoss`]: also if the shard is gone with the data of the store (X7).
    async fn run_any(&self, shard: u16, command: &Cmd) -> Result<ScriptReply<CounterAnswer>, Refusal> {
        let value = self.partition(shard).clock.eval(self.link(shard), command, true).await?;
        self.answered(shard, value).await
    }

    /// The same, once. `None`: the call has waited for longer than the clocks may differ, and nothing has changed.
    async fn run_once(&self, shard: u16, command: &Cmd) -> Result<Option<ScriptReply<CounterAnswer>>, Refusal> {
        match self.partition(shard).clock.eval_once(self.link(shard), command, true).await? {
            Some(value) => self.answered(shard, value).await.map(Some),
            None => Ok(None),
        }
    }

    /// The reply of a script of a shard. One without the shard has changed nothing.
    async fn answered(&self, shard: u16, value: Value) -> Result<ScriptReply<CounterAnswer>, Refusal> {
        let reply = ScriptReply::read(value, CounterAnswer::from_code)?;
        if reply.answer == CounterAnswer::NoShard {
            self.partition(shard).verify().await?;
        }
        Ok(reply)
    }

    /// Runs a script that replies OK.
    async fn run(&self, shard: u16, command: &Cmd) -> Result<ScriptReply<CounterAnswer>, Refusal> {
        let reply = self.run_any(shard, command).await?;
        match reply.answer {
            CounterAnswer::Ok => Ok(reply),
            CounterAnswer::Stale | CounterAnswer::NoShard => Err(Refusal::Stale),
            other => Err(defect(&format!("{other:?}"))),
        }
    }
}
