//! A partition of the store: one Redis or, on a Redis Cluster, the primary of one slot (decision 0084). A namespace has its
//! shards in partitions that follow each other.

use super::calls::{of_link, scripts};
use super::clock::StoreClock;
use super::shared_check::SharedCheck;
use crate::namespace::SHARDS;
use crate::refusal::Refusal;
use futures::future::try_join_all;
use std::sync::Arc;
use tallystone_link::{
    Clock, ConnectError, Demands, Format, Identity, Link, Primary, RedisConfig, ReplicaWait, Source, StoreStatus,
    agree_on_partitions,
};
use tallystone_lua::counter::{NAMESPACES, PARTITIONS};
use tallystone_lua::keys::{Keyspace, slot_of};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The identity mark of a partition.
pub(super) const MARK: &str = "tc:store";

/// The format of the keys and records of a partition. Only the first has the registry, which shows that it is in use.
fn format(keyspace: &Keyspace) -> Format {
    Format { what: "counters", key: keyspace.key("tc:format"), used: keyspace.key(NAMESPACES), number: 2 }
}

/// What this process knows of one partition.
pub(super) struct Partition {
    pub(super) keyspace: Keyspace,
    /// One for each shard of a namespace. Redis reads up to 16 KiB from each connection and then makes all of it durable with
    /// one fsync: over a single connection a large batch would cost several.
    links: Vec<Link>,
    /// For reads with large replies. Redis writes at most 64 KiB to a connection before it does something else, so adds on the
    /// same connection would wait for many rounds.
    bulk: Link,
    /// That of its Redis.
    pub(super) clock: Clock,
    /// Its time, as far as this process knows.
    pub(super) now: StoreClock,
    /// `None`: not connected, in tests.
    pub(super) identity: Option<Arc<Identity>>,
    verified: SharedCheck,
}

impl Partition {
    /// The only one of a store. It does not connect yet.
    pub(super) fn whole(source: impl Into<Source>, replicas: ReplicaWait, clock: Clock) -> Partition {
        let source = source.into();
        let link = || Link::new(source.clone(), replicas, scripts());
        let (links, bulk) = ((0..SHARDS).map(|_| link()).collect(), link());
        let now = StoreClock::new(clock.clone());
        Partition {
            keyspace: Keyspace::default(),
            links,
            bulk,
            clock,
            now,
            identity: None,
            verified: SharedCheck::default(),
        }
    }

    /// A connection for a shard of a namespace.
    pub(super) fn link(&self, shard: u16) -> &Link {
        &self.links[usize::from(shard) % self.links.len()]
    }

    /// A connection for reads with large replies.
    pub(super) fn bulk(&self) -> &Link {
        &self.bulk
    }

    /// A connection for what concerns no single shard.
    pub(super) fn any_link(&self) -> &Link {
        &self.links[0]
    }

    /// Verifies that it is what it was (X7): before an answer says that something is not there. Callers that wait
    /// for each other share an answer.
    ///
    /// # Errors
    /// [`Refusal::DataLoss`]; [`Refusal::Unavailable`]: it does not answer.
    pub(super) async fn verify(&self) -> Result<(), Refusal> {
        let Some(identity) = &self.identity else { return Ok(()) };
        self.verified.answer(|| async { identity.verify().await.map_err(of_link) }).await
    }

    /// Connects, checks version, durability and format, and loads the scripts.
    async fn connect(
        redis: &RedisConfig,
        shown: &str,
        keyspace: Keyspace,
        (primary, clock): (Primary, Clock),
        links: u16,
    ) -> Result<Partition, ConnectError> {
        let (replicas, allow_volatile, mark) = (redis.replicas(), redis.allow_volatile, keyspace.key(MARK));
        let checked = (mark.as_str(), &redis.store_ids[..], format(&keyspace));
        let demands = Demands::open(primary.clone(), shown, replicas, allow_volatile, checked).await?;
        let condition = demands.condition();
        let link = || Link::new(primary.clone(), replicas, scripts()).on(condition.clone());
        link().load_scripts().await.map_err(|failure| ConnectError::unreachable(shown, failure))?;
        let identity = Identity::open(primary.clone(), &mark, shown, allow_volatile).await?;
        let guarded = || link().guarded_by(identity.state());
        let (links, bulk) = ((0..links).map(|_| guarded()).collect(), guarded());
        let now = StoreClock::new(clock.clone());
        Ok(Partition { keyspace, links, bulk, clock, now, identity: Some(identity), verified: SharedCheck::default() })
    }
}

/// The partitions of a store: one, or several on a Redis Cluster.
#[derive(Clone)]
pub(super) struct Partitions(Arc<[Partition]>);

impl Partitions {
    pub(super) fn of_one(whole: Partition) -> Partitions {
        Partitions(Arc::new([whole]))
    }

    /// Connects all of them. The second value has the tasks that watch them.
    pub(super) async fn connect(redis: &RedisConfig, clock: Clock) -> Result<(Partitions, JoinSet<()>), ConnectError> {
        let (first, count) = (redis.access().first_primary(&redis.url)?, redis.partition_count());
        let shown = tallystone_model::without_password(&redis.url);
        if count > 1 {
            let home = first.with_slot(slot_of(PARTITIONS));
            agree_on_partitions(home, PARTITIONS, count, &shown, redis.allow_volatile).await?;
        }
        let mut tasks = JoinSet::new();
        let mut opened = Vec::new();
        for (number, keyspace) in Keyspace::all(count).enumerate() {
            let primary = first.with_slot(keyspace.slot());
            let clock = if number == 0 { clock.clone() } else { clock.of_another() };
            let mut watching = clock.watch(&primary);
            tasks.spawn(async move { while watching.join_next().await.is_some() {} });
            opened.push(Partition::connect(redis, &shown, keyspace, (primary, clock), SHARDS.div_ceil(count)));
        }
        Ok((Partitions(try_join_all(opened).await?.into()), tasks))
    }

    pub(super) fn all(&self) -> &[Partition] {
        &self.0
    }

    pub(super) fn count(&self) -> u16 {
        u16::try_from(self.0.len()).unwrap_or(u16::MAX)
    }

    /// The one with the registry of namespaces.
    pub(super) fn first(&self) -> &Partition {
        &self.0[0]
    }

    /// The key of the registry.
    pub(super) fn registry(&self) -> String {
        self.first().keyspace.key(NAMESPACES)
    }

    /// The number of the one with a shard of a namespace, given by its tag.
    pub(super) fn number_of(&self, tag: &str, shard: u16) -> usize {
        match self.0.len() {
            1 => 0,
            _ => Keyspace::number_of_counters(tag, shard, self.count()).into(),
        }
    }

    /// The one with a shard of a namespace, given by its tag.
    pub(super) fn of(&self, tag: &str, shard: u16) -> &Partition {
        &self.0[self.number_of(tag, shard)]
    }

    /// SERVING while a partition serves: the counters there are served. `None`: it is not probed.
    pub(super) fn watch(&self, tasks: &mut JoinSet<()>) -> Option<watch::Receiver<StoreStatus>> {
        let probed = self.0.iter().map(|partition| partition.identity.as_ref().map(|identity| identity.watch()));
        let probed: Vec<watch::Receiver<StoreStatus>> = probed.collect::<Option<_>>()?;
        let [first, ..] = probed.as_slice() else { return None };
        if probed.len() == 1 {
            return Some(first.clone());
        }
        let (all, status) = watch::channel(best(&probed));
        for mut one in probed.clone() {
            let (probed, all) = (probed.clone(), all.clone());
            tasks.spawn(async move {
                while one.changed().await.is_ok() {
                    let is = best(&probed);
                    all.send_if_modified(|was| std::mem::replace(was, is.clone()) != is);
                }
            });
        }
        Some(status)
    }
}

fn best(probed: &[watch::Receiver<StoreStatus>]) -> StoreStatus {
    let serves = probed.iter().any(|one| *one.borrow() == StoreStatus::Serving);
    if serves { StoreStatus::Serving } else { probed[0].borrow().clone() }
}
