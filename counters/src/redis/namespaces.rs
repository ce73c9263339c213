//! The registry of namespaces: one hash, each entry its revision and its configuration (N1).

use super::RedisNamespace;
use super::calls::{call, defect, of_link};
use super::namespace::{Namespace, Origin};
use super::pace::Pace;
use super::partition::{MARK, Partition, Partitions};
use crate::config::EventArchive;
use crate::names::{NamespaceName, RegionName};
use crate::namespace::NamespaceConfig;
use crate::refusal::Refusal;
use futures::future::try_join_all;
use redis::{Value, from_redis_value};
use std::sync::Arc;
use tallystone_link::{
    Clock, ConnectError, Identity, Link, RedisConfig, ReplicaWait, Room, ScriptReply, Source, StoreStatus,
};
use tallystone_lua::counter::{CounterAnswer, CounterScript, DELETED_FIELD, INCARNATION_FIELD};
use tallystone_lua::keys::Keyspace;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How much later than a change of the retention events may be dropped by the earlier one, in ms: by a process that has read the
/// configuration before, or has another clock.
const DROP_LATE_MS: u64 = 60_000;

/// All namespaces of a Redis, or of a Redis Cluster.
#[derive(Clone)]
pub struct RedisNamespaces {
    partitions: Partitions,
    room: Room,
    archive: Option<EventArchive>,
    region: Option<RegionName>,
    pace: Arc<Pace>,
    /// `None`: the store is not probed, in tests.
    status: Option<watch::Receiver<StoreStatus>>,
    /// Dropped with the last of the clones, it ends them.
    _tasks: Arc<JoinSet<()>>,
}

impl RedisNamespaces {
    /// Does not connect yet.
    pub fn new(source: impl Into<Source>, replicas: ReplicaWait, clock: Clock) -> RedisNamespaces {
        let partitions = Partitions::of_one(Partition::whole(source, replicas, clock));
        let (room, pace) = (Room::default(), Arc::default());
        RedisNamespaces { partitions, room, archive: None, region: None, pace, status: None, _tasks: Arc::default() }
    }

    /// Connects, checks version, durability and format, and loads the scripts.
    pub async fn connect(redis: &RedisConfig, clock: Clock) -> Result<RedisNamespaces, ConnectError> {
        let room = redis.room("counters")?;
        let (partitions, mut tasks) = Partitions::connect(redis, clock).await?;
        let status = partitions.watch(&mut tasks);
        tasks.spawn(room.clone().watch());
        let (pace, tasks) = (Arc::default(), Arc::new(tasks));
        Ok(RedisNamespaces { partitions, room, archive: None, region: None, pace, status, _tasks: tasks })
    }

    /// With the region of this installation (N12).
    pub fn with_region(self, region: Option<RegionName>) -> RedisNamespaces {
        RedisNamespaces { region, ..self }
    }

    /// The region of this installation.
    pub fn region(&self) -> Option<&RegionName> {
        self.region.as_ref()
    }

    /// With the archive of this installation (N15).
    pub fn with_archive(self, archive: Option<EventArchive>) -> RedisNamespaces {
        RedisNamespaces { archive, ..self }
    }

    /// The archive of this process.
    pub fn archive(&self) -> Option<&EventArchive> {
        self.archive.as_ref()
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

    /// What the last probe of the store found, and every change of that. `None`: it is not probed.
    pub fn status(&self) -> Option<watch::Receiver<StoreStatus>> {
        self.status.clone()
    }

    /// Before a namespace is created: in an emptied store that would be a new beginning.
    async fn begin(&self) -> Result<(), Refusal> {
        let marks = self.partitions.all().iter().filter_map(|partition| partition.identity.as_ref());
        try_join_all(marks.map(|identity| identity.begin())).await.map(drop).map_err(of_link)
    }

    /// Before a namespace is changed or opened: the store may have been emptied.
    pub(super) async fn verify(&self) -> Result<(), Refusal> {
        try_join_all(self.partitions.all().iter().map(Partition::verify)).await.map(drop)
    }

    /// Verifies the partition with the registry: before an answer says that it has no such entry.
    pub(super) async fn verify_registry(&self) -> Result<(), Refusal> {
        self.partitions.first().verify().await
    }

    pub(super) fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// A connection to the registry.
    pub(super) fn link(&self) -> &Link {
        self.partitions.first().any_link()
    }

    /// The clock of the Redis that has the registry.
    pub(super) fn clock(&self) -> &Clock {
        &self.partitions.first().clock
    }

    /// The key of the registry.
    pub(super) fn registry(&self) -> String {
        self.partitions.registry()
    }

    /// A namespace; `None`: it does not exist.
    ///
    /// # Errors
    /// [`Refusal::DataLoss`]: also if it is not there because the store was emptied.
    pub async fn get(&self, name: &NamespaceName) -> Result<Option<Namespace>, Refusal> {
        match self.link().call(redis::cmd("HGET").arg(self.registry()).arg(name.as_str())).await.map_err(of_link)? {
            Value::Nil => self.verify_registry().await.map(|()| None),
            Value::BulkString(raw) => Ok(Some(Namespace::decode(name.clone(), &raw)?)),
            _ => Err(defect("no namespace")),
        }
    }

    /// All namespaces, in the order of their names.
    ///
    /// # Errors
    /// As [`get`](RedisNamespaces::get).
    pub async fn all(&self) -> Result<Vec<Namespace>, Refusal> {
        let entries = self.entries().await?.into_iter();
        let named = entries.filter(|(name, _)| !name.starts_with([INCARNATION_FIELD, DELETED_FIELD]));
        let decode = |(name, raw): (String, Vec<u8>)| Namespace::decode(NamespaceName::parse(name)?, &raw);
        let mut all: Vec<Namespace> = named.map(decode).collect::<Result<_, _>>()?;
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(all)
    }

    /// The fields of the registry.
    pub(super) async fn entries(&self) -> Result<Vec<(String, Vec<u8>)>, Refusal> {
        let value = self.link().call(redis::cmd("HGETALL").arg(self.registry())).await.map_err(of_link)?;
        let entries: Vec<(String, Vec<u8>)> =
            from_redis_value(value).map_err(|error| Refusal::Internal(error.to_string()))?;
        if entries.is_empty() {
            self.verify_registry().await?;
        }
        Ok(entries)
    }

    /// Creates or changes a namespace. When this returns, no shard appends an event of an earlier revision. Reads and
    /// BEST_EFFORT adds follow the new revision when their server has polled (a second).
    ///
    /// # Errors
    /// [`Refusal::Stale`]: another server was changing it. [`Refusal::Invalid`]: also for a parameter that cannot change.
    pub async fn put(&self, name: &NamespaceName, config: NamespaceConfig) -> Result<Namespace, Refusal> {
        let before = self.get(name).await?;
        self.replace(name, before.as_ref(), config).await
    }

    /// As [`put`](RedisNamespaces::put), by compare-and-set: only if the namespace still has the revision of `before`.
    ///
    /// # Errors
    /// As [`put`](RedisNamespaces::put).
    pub async fn replace(
        &self,
        name: &NamespaceName,
        before: Option<&Namespace>,
        config: NamespaceConfig,
    ) -> Result<Namespace, Refusal> {
        self.replace_at(name, before, config, 0).await
    }

    /// As [`replace`](RedisNamespaces::replace); the new revision is at least `revision_min`.
    pub(super) async fn replace_at(
        &self,
        name: &NamespaceName,
        before: Option<&Namespace>,
        config: NamespaceConfig,
        revision_min: u64,
    ) -> Result<Namespace, Refusal> {
        config.check()?;
        match before {
            Some(before) => {
                self.verify().await?;
                before.config.check_change(&config)?;
            }
            None => self.begin().await?,
        }
        let json = serde_json::to_vec(&config).map_err(|error| Refusal::Internal(error.to_string()))?;
        let mut command = call(CounterScript::PutNamespace, &[self.registry(), self.region_positions()]);
        self.clock().stamp(&mut command);
        command.arg(name.as_str()).arg(before.map_or(0, |before| before.revision)).arg(json);
        command.arg(revision_min).arg(before.map_or(0, |before| before.incarnation));
        let other_regions = before.filter(|before| before.config.regions != config.regions);
        command.arg(other_regions.map_or_else(String::new, Namespace::tag));
        let shorter = before.map(|before| before.config.delete_after_ms).filter(|ms| *ms < config.delete_after_ms);
        command.arg(shorter.map_or_else(String::new, |ms| ms.saturating_sub(DROP_LATE_MS).to_string()));
        let value = self.clock().eval(self.link(), &command, true).await?;
        let mut reply = ScriptReply::read(value, CounterAnswer::from_code)?;
        let revision = reply.number()?;
        if reply.answer != CounterAnswer::Ok {
            return Err(Refusal::Stale);
        }
        let (incarnation, kept_from_ms) = (reply.number()?, reply.number()?);
        let namespace = Namespace { name: name.clone(), config, revision, incarnation, kept_from_ms };
        match self.open(&namespace).await {
            // Stale: it was changed once more meanwhile, on top of this change.
            Ok(_) | Err(Refusal::Stale) => Ok(namespace),
            // The registry has the change: every server will open it.
            Err(refusal) => Err(refusal.after_a_change()),
        }
    }

    /// The stores of a namespace. All its shards follow this revision from now on: the server that made the change may have
    /// died before all of them did.
    pub async fn open(&self, namespace: &Namespace) -> Result<RedisNamespace, Refusal> {
        self.verify().await?;
        let origin = self.origin(namespace).await?;
        let RedisNamespaces { partitions, room, archive, region, pace, .. } = self.clone();
        RedisNamespace::open(partitions, (namespace.clone(), origin), (room, archive, region), pace).await
    }

    /// Where a namespace comes from: only one with regions needs to know it.
    async fn origin(&self, namespace: &Namespace) -> Result<Origin, Refusal> {
        if namespace.config.regions.is_empty() {
            return Ok(Origin::default());
        }
        let field = format!("{INCARNATION_FIELD}{}", namespace.name);
        match self.link().call(redis::cmd("HGET").arg(self.registry()).arg(field)).await.map_err(of_link)? {
            Value::BulkString(raw) => Ok(Origin::decode(&raw, namespace.incarnation)),
            _ => Ok(Origin::default()),
        }
    }
}
