//! The background sweeps (Q5): they promote messages whose invisibility has ended, end leases that ran out, and collect
//! terminal messages past their retention.
//!
//! Of many servers one sweeps at a time: the holder of the leader lease. It renews the lease; when it dies, the lease
//! runs out and another server takes over. The sweeper does not poll the shards. It sleeps until the earliest due time
//! in its [`Schedule`]. Four sources fill the schedule: the last sweep of each shard, the replies that this server's
//! lanes get, the store's notifications, and a walk over the times that the store has recorded for all queues
//! ([`SweepTimes`]), once when this server becomes the leader and then every [`WALK`]. A quiet queue is not swept.
//!
//! Each partition of the store has a loop that makes one call at a time: a partition that does not answer holds up only
//! its own shards (decision 0116).

use crate::engine::Lanes;
use crate::health::StoreHealth;
use crate::metrics::Metrics;
use crate::queue_metrics::{Board, Counted};
use crate::schedule::Schedule;
use crate::store::{LeaseAnswers, RedisStore};
use futures::future;
use rand::Rng;
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::StoreStatus;
use tallystone_model::limits::{PAGE_ITEMS_MAX, SWEEP_ITEMS_MAX};
use tallystone_model::store::{Page, Swept};
use tallystone_model::{Refusal, Shard, Store};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Between two walks over all queues.
const WALK: Duration = Duration::from_secs(30);
/// Before the next try after the store did not answer.
const AWAY: Duration = Duration::from_secs(1);

/// The leader lease of the sweeper: its holder is the one server that sweeps.
pub trait LeaderLease {
    /// Acquires or renews the lease for `lease_ms`. A store for one server only, such as the oracle, always grants it.
    fn acquire_leader_lease(&self, owner: &str, lease_ms: u64) -> impl Future<Output = LeaseAnswers> + Send {
        let _ = (owner, lease_ms);
        async { LeaseAnswers::of_whole(Ok(true)) }
    }
}

/// When a shard is to be swept, from now on.
pub struct SweepTime {
    /// The shard.
    pub shard: Shard,
    /// `None`: the store does not record it.
    pub due_in: Option<Duration>,
}

/// When the shards of all queues are to be swept, as the store has recorded it.
pub trait SweepTimes: Store {
    /// The number of partitions, at least 1. Each may be away alone.
    fn partition_count(&self) -> u16 {
        1
    }

    /// What the last probe of each partition found, in their order. A store that is not probed has none.
    fn statuses(&self) -> Vec<watch::Receiver<StoreStatus>> {
        Vec::new()
    }

    /// One page of the shards of a partition in which something falls due. A store that records no times returns every
    /// shard.
    fn sweep_times(
        &self,
        partition: u16,
        cursor: &str,
    ) -> impl Future<Output = Result<Page<SweepTime>, Refusal>> + Send {
        let _ = partition;
        async move {
            let page = self.list_queues("", cursor, PAGE_ITEMS_MAX).await?;
            let shards = page.items.into_iter().flat_map(|queue| queue.shards());
            let items = shards.map(|shard| SweepTime { shard, due_in: None }).collect();
            Ok(Page { items, next_cursor: page.next_cursor })
        }
    }
}

impl LeaderLease for tallystone_model::oracle::Oracle {}

impl SweepTimes for tallystone_model::oracle::Oracle {}

impl SweepTimes for RedisStore {
    fn partition_count(&self) -> u16 {
        RedisStore::partition_count(self)
    }

    fn statuses(&self) -> Vec<watch::Receiver<StoreStatus>> {
        RedisStore::statuses(self)
    }

    async fn sweep_times(&self, partition: u16, cursor: &str) -> Result<Page<SweepTime>, Refusal> {
        let page = RedisStore::sweep_times(self, partition, cursor).await?;
        let time = |(shard, due_in)| SweepTime { shard, due_in: Some(due_in) };
        Ok(Page { items: page.items.into_iter().map(time).collect(), next_cursor: page.next_cursor })
    }
}

impl LeaderLease for RedisStore {
    async fn acquire_leader_lease(&self, owner: &str, lease_ms: u64) -> LeaseAnswers {
        RedisStore::acquire_leader_lease(self, "sweep", owner, lease_ms).await
    }
}

/// The sweeper of one server.
pub(crate) struct Sweeper<S> {
    pub(crate) store: Arc<S>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) lanes: Arc<Lanes>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) queues: Arc<Board>,
    pub(crate) health: StoreHealth,
    /// The name of this server in the leader lease, unlike that of any other.
    pub(crate) owner: String,
    pub(crate) leader_lease_ms: u64,
}

impl<S: SweepTimes + LeaderLease> Sweeper<S> {
    /// Sweeps while this server is the leader, until the server stops.
    pub(crate) async fn run(self, stopping: CancellationToken) {
        let _ = stopping.run_until_cancelled(self.run_as_leader()).await;
    }

    async fn run_as_leader(&self) {
        let renew = Duration::from_millis(self.leader_lease_ms / 3);
        loop {
            let Ok(Some(granted_by)) = self.acquire().await else {
                tokio::time::sleep(renew).await;
                continue;
            };
            tracing::debug!(owner = self.owner, granted_by, "this server sweeps now");
            self.schedule.set_leader(true);
            let partitions = (0..self.store.partition_count()).map(|partition| self.sweep_partition(partition));
            tokio::select! {
                () = self.hold_lease(renew, granted_by) => {}
                _ = future::join_all(partitions) => {}
            }
            self.schedule.set_leader(false);
        }
    }

    /// The partition that has granted the leader lease; `None`: another server holds it.
    async fn acquire(&self) -> Result<Option<u16>, Refusal> {
        let lease = self.store.acquire_leader_lease(&self.owner, self.leader_lease_ms).await;
        for (partition, answer) in lease.by_partition() {
            self.health.saw_partition(partition, answer);
        }
        lease.granted_by()
    }

    /// Renews the leader lease, and returns when this server is to acquire it again. While no partition answers, it is
    /// unknown who has the lease, and this server continues: two sweepers do no harm. When another partition than before
    /// grants the lease, or the store answers again, the leader acquires the lease again and walks over all queues,
    /// because notifications may have been lost.
    async fn hold_lease(&self, renew: Duration, granted_by: u16) {
        let mut is_known = true;
        loop {
            tokio::time::sleep(renew).await;
            match self.acquire().await {
                Ok(Some(partition)) if is_known && partition == granted_by => {}
                Err(refusal) if refusal.is_unavailable() => is_known = false,
                _ => return,
            }
        }
    }

    /// Sweeps the shards of one partition when they are due.
    async fn sweep_partition(&self, partition: u16) {
        // A new leader sweeps every shard at once; later walks spread the sweeps over their period.
        let (mut walk_at, mut spread) = (Instant::now(), Duration::ZERO);
        loop {
            let now = Instant::now();
            if walk_at <= now {
                walk_at = now + AWAY;
                let walked = self.walk(partition, spread).await;
                self.health.saw_partition(partition, &walked);
                if walked.is_ok() {
                    (walk_at, spread) = (now + WALK, WALK);
                }
            }
            match self.schedule.next(partition, Instant::now()) {
                Ok(shard) => self.sweep(&shard).await,
                Err(due_at) => tokio::select! {
                    () = tokio::time::sleep_until(due_at.map_or(walk_at, |due_at| due_at.min(walk_at))) => {}
                    () = self.schedule.changed(partition) => {}
                },
            }
        }
    }

    /// Puts the shards of a partition on the schedule; one whose time is not known, at a time drawn from `spread`.
    async fn walk(&self, partition: u16, spread: Duration) -> Result<(), Refusal> {
        let mut cursor = String::new();
        loop {
            let page = self.store.sweep_times(partition, &cursor).await?;
            for SweepTime { shard, due_in } in page.items {
                let drawn = || spread.mul_f64(rand::rng().random_range(0.0..1.0));
                self.schedule.due(&shard, due_in.unwrap_or_else(drawn));
            }
            if page.next_cursor.is_empty() {
                return Ok(());
            }
            cursor = page.next_cursor;
        }
    }

    /// One bounded sweep of a shard, and when the next is due.
    async fn sweep(&self, shard: &Shard) {
        let swept = self.store.sweep(shard).await;
        self.health.saw(shard, &swept);
        match swept {
            Ok(swept) => {
                self.count(shard, &swept);
                if swept.promoted + swept.expired > 0 {
                    self.lanes.wake_queue(shard);
                }
                if is_full(&swept) {
                    self.schedule.hurry(shard);
                }
                if let Some(next_ms) = swept.next_ms {
                    self.schedule.due(shard, Duration::from_millis(next_ms.saturating_sub(swept.now_ms)));
                }
            }
            Err(Refusal::QueueNotFound { .. }) => self.schedule.forget(shard),
            Err(refusal) => {
                tracing::debug!(shard = shard.tag(), %refusal, "sweep refused");
                self.schedule.due(shard, AWAY);
            }
        }
    }

    fn count(&self, shard: &Shard, swept: &Swept) {
        self.metrics.sweeps.increment(1);
        self.metrics.promoted.increment(swept.promoted);
        self.metrics.expired.increment(swept.expired);
        self.metrics.collected.increment(swept.collected);
        self.metrics.dropped.increment(swept.dropped);
        if swept.expired > 0 {
            let tally = self.queues.tally(&shard.queue);
            tally.add(Counted::Lapsed, swept.expired);
            tally.add(Counted::Errored, swept.errored);
        }
    }
}

/// The sweep did as much as one sweep may: more work is likely.
fn is_full(swept: &Swept) -> bool {
    [swept.promoted, swept.expired, swept.collected].into_iter().any(|moved| moved >= SWEEP_ITEMS_MAX as u64)
}
