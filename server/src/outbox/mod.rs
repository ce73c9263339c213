//! The relay: reads the outboxes in order, delivers their events to a [`Sink`], and removes the events that the sink has
//! acknowledged (Q19).
//!
//! What lives here: the loop, its leader lease, its metrics and its health status. What may not: Redis commands
//! (`store/outbox`) and the work of a sink (tallystone-indexer).
//!
//! One relay at a time reads all outboxes of a Redis: the holder of the leader lease. When it does not renew the lease,
//! another server takes over. A relay that has lost its lease without noticing does no harm. The new leader delivers
//! the same events again, and a sink treats a repeated event as one. And the old leader removes only events that its
//! own sink has acknowledged. So a relay waits for no answer about its lease, and continues while there is none.
//!
//! A partition that is unavailable, or does not answer, holds up the watermark, and no other partition (decision 0115).

mod fill;
mod metrics;

pub use fill::OutboxHealth;

use crate::store::{OutboxReader, Read, RedisStore};
use fill::FillSampler;
pub(crate) use metrics::DELIVER_SECONDS;
use metrics::RelayMetrics;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::{Refusal, Sink, SinkError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long one read waits for new events.
const WAIT: Duration = Duration::from_millis(2_500);
/// The same while events came within [`BUSY_FOR`]: a shorter wait keeps the watermark close to the present.
const WAIT_BUSY: Duration = Duration::from_secs(1);
const BUSY_FOR: Duration = Duration::from_secs(10);
/// The same for the first read after events came: the watermark soon passes them.
const WAIT_FIRST: Duration = Duration::from_millis(100);
/// The pause between two reads, in which small entries accumulate. A read costs Redis about a microsecond for each
/// shard, so the pause grows with their number: thousands of quiet queues cost little.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_PER_SHARD: Duration = Duration::from_micros(10);
/// Between two walks over the registry of queues, which find a queue whose notification was lost.
const WALK: Duration = Duration::from_secs(30);
/// While a delivery takes longer than this, the relay renews its lease and samples the outboxes meanwhile.
const SLOW: Duration = Duration::from_secs(1);
/// After a delivery has taken this long, the health status says that the sink does not answer.
const SILENT: Duration = Duration::from_secs(5);
/// The first and the longest pause before a retry, when the sink or Redis does not answer.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// The options of a relay.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The length of its leader lease.
    pub leader_lease_ms: u64,
    /// The bound of each outbox: how full they are is measured against it.
    pub events_max: u64,
    /// The least time between two watermarks.
    pub watermark_every: Duration,
}

/// The relay of one server, into a sink of type `K`.
pub struct Relay<K> {
    store: Arc<RedisStore>,
    sink: K,
    options: RelayOptions,
    owner: String,
    health: OutboxHealth,
    metrics: RelayMetrics,
}

impl<K: Sink> Relay<K> {
    /// A relay into this sink. It registers its metrics now: install a recorder before.
    pub fn new(store: Arc<RedisStore>, sink: K, options: RelayOptions, health: OutboxHealth) -> Self {
        Relay { store, sink, options, owner: Uuid::new_v4().to_string(), health, metrics: RelayMetrics::new() }
    }

    /// Relays while this server is the leader, until `stopping` is cancelled; then releases the leader lease.
    pub async fn run(self, stopping: CancellationToken) {
        let _ = stopping.run_until_cancelled(self.run_as_leader()).await;
        // Events that were delivered and not yet removed will be delivered again: the sink treats them as one.
        if let Err(refusal) = self.store.release_leader_lease("relay", &self.owner).await {
            tracing::debug!(%refusal, "the relay's leader lease was not released; it will run out");
        }
    }

    async fn run_as_leader(&self) {
        let mut retry = RETRY_MIN;
        loop {
            match self.relay().await {
                Ok(()) => {
                    retry = RETRY_MIN;
                    self.health.reset();
                    self.metrics.not_ours();
                    tokio::time::sleep(self.renew_every()).await;
                }
                Err(refusal) => {
                    tracing::debug!(%refusal, "the relay cannot read the outboxes");
                    tokio::time::sleep(retry).await;
                    retry = (retry * 2).min(RETRY_MAX);
                }
            }
            self.metrics.active.set(0.0);
        }
    }

    fn renew_every(&self) -> Duration {
        Duration::from_millis(self.options.leader_lease_ms / 3)
    }

    /// Relays from the acquisition of the leader lease to its loss. `Ok`: another server is the leader.
    async fn relay(&self) -> Result<(), Refusal> {
        let mut renewal = LeaseRenewal { due_at: Instant::now() + self.renew_every(), under_way: JoinSet::new() };
        let lease = self.store.acquire_leader_lease("relay", &self.owner, self.options.leader_lease_ms).await;
        if lease.granted_by()?.is_none() {
            return Ok(());
        }
        tracing::info!(owner = self.owner, "this server relays events now");
        self.metrics.active.set(1.0);
        let mut reader = self.store.outbox_reader();
        let mut sampler = FillSampler::new(self.options.events_max);
        let (mut walk_at, mut events_at, mut marked_at) = (Instant::now(), Instant::now(), None::<Instant>);
        let mut busy = false;
        loop {
            if !self.renew(&mut renewal)? {
                return Ok(());
            }
            if walk_at <= Instant::now() {
                reader.discover();
                walk_at = Instant::now() + WALK;
            }
            let wait = match events_at.elapsed() {
                _ if busy => WAIT_FIRST,
                since if since < BUSY_FOR => WAIT_BUSY,
                _ => WAIT,
            };
            let read = match reader.read(wait.min(renewal.due_at.saturating_duration_since(Instant::now()))).await {
                Ok(read) => read,
                Err(refusal) => {
                    tracing::debug!(%refusal, "the relay cannot read the outboxes of a partition");
                    reader.start_over();
                    continue;
                }
            };
            let behind = read.more;
            if behind || read.walked {
                sampler.sample(&self.store, &reader, &self.health, &self.metrics);
            }
            if read.new_queues {
                walk_at = Instant::now();
            }
            let lost = reader.take_lost();
            if lost > 0 {
                tracing::warn!(events = lost, "events were dropped from a full outbox before they were relayed");
                self.metrics.lost.increment(lost);
            }
            self.metrics.undone.increment(reader.take_undone());
            if !read.losses.is_empty() && !self.report_losses(&mut renewal, &read).await? {
                return Ok(());
            }
            busy = !read.shards.is_empty();
            if !self.pass_on(&mut renewal, &mut reader, &mut sampler, &read, &mut marked_at).await? {
                return Ok(());
            }
            if busy {
                events_at = Instant::now();
                if !behind {
                    let shards = u32::try_from(reader.shards().count()).unwrap_or(u32::MAX);
                    tokio::time::sleep(PAUSE.max((PAUSE_PER_SHARD * shards).min(WAIT_BUSY))).await;
                }
            }
        }
    }

    /// Reports the losses of a read, again until the sink has them: before the events behind them are acknowledged, because
    /// then nothing in Redis shows the gap any more. `false`: the leader lease was lost meanwhile.
    async fn report_losses(&self, renewal: &mut LeaseRenewal, read: &Read) -> Result<bool, Refusal> {
        let mut retry = RETRY_MIN;
        while let Err(error) = self.sink.lost(read.losses.clone()).await {
            self.metrics.failures.increment(1);
            if self.health.set_sink_answers(false) {
                tracing::warn!(%error, "the history sink refuses events; they wait in the outbox");
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
            if !self.renew(renewal)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Delivers what was read, again until the sink has it. `false`: the leader lease was lost meanwhile.
    async fn pass_on(
        &self,
        renewal: &mut LeaseRenewal,
        reader: &mut OutboxReader,
        sampler: &mut FillSampler,
        read: &Read,
        marked_at: &mut Option<Instant>,
    ) -> Result<bool, Refusal> {
        let mut retry = RETRY_MIN;
        let mut delivered = read.shards.is_empty();
        loop {
            let mut result = Ok(());
            if !delivered {
                let Some(taken) = self.deliver(renewal, reader, sampler, read).await? else { return Ok(false) };
                result = taken;
                if result.is_ok() {
                    delivered = true;
                    reader.begin_ack(read.shards.clone());
                }
            }
            let due = marked_at.is_none_or(|at| at.elapsed() >= self.options.watermark_every);
            if delivered && due && read.complete_to_ms > 0 {
                result = self.sink.delivered_to(read.complete_to_ms).await;
                *marked_at = Some(Instant::now());
                if result.is_ok() {
                    self.metrics.watermark.set(read.complete_to_ms as f64 / 1e3);
                }
            }
            let Err(error) = result else {
                self.health.set_sink_answers(true);
                return Ok(true);
            };
            self.metrics.failures.increment(1);
            if self.health.set_sink_answers(false) {
                tracing::warn!(%error, "the history sink refuses events; they wait in the outbox");
            }
            if delivered {
                // A watermark is not repeated: the next one will be later.
                return Ok(true);
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
            if !self.renew(renewal)? {
                return Ok(false);
            }
            sampler.sample(&self.store, reader, &self.health, &self.metrics);
        }
    }

    /// One delivery, however long the sink takes. Meanwhile it renews the leader lease and samples the outboxes. `None`:
    /// the lease was lost meanwhile.
    async fn deliver(
        &self,
        renewal: &mut LeaseRenewal,
        reader: &OutboxReader,
        sampler: &mut FillSampler,
        read: &Read,
    ) -> Result<Option<Result<(), SinkError>>, Refusal> {
        let begin = Instant::now();
        let mut delivery = std::pin::pin!(self.sink.deliver(read.events.clone()));
        loop {
            tokio::select! {
                taken = &mut delivery => {
                    if taken.is_ok() {
                        self.metrics.delivered(read.events.len(), begin.elapsed());
                    }
                    return Ok(Some(taken));
                }
                () = tokio::time::sleep(SLOW.min(self.renew_every())) => {}
            }
            if !self.renew(renewal)? {
                return Ok(None);
            }
            self.health.set_sink_answers(begin.elapsed() < SILENT);
            sampler.sample(&self.store, reader, &self.health, &self.metrics);
        }
    }

    /// Renews the leader lease if that is due. `false`: by the last answer, another server holds it.
    fn renew(&self, renewal: &mut LeaseRenewal) -> Result<bool, Refusal> {
        let ended = renewal.under_way.try_join_next();
        if renewal.due_at <= Instant::now() {
            renewal.due_at = Instant::now() + self.renew_every();
            if renewal.under_way.is_empty() {
                let (store, owner, lease_ms) = (self.store.clone(), self.owner.clone(), self.options.leader_lease_ms);
                renewal.under_way.spawn(async move {
                    let lease = store.acquire_leader_lease("relay", &owner, lease_ms).await;
                    Ok(lease.granted_by()?.is_some())
                });
            }
        }
        match ended {
            None => Ok(true),
            // Perhaps no other server reaches it either; and a second relay does no harm.
            Some(Ok(Err(refusal))) if refusal.is_unavailable() => Ok(true),
            Some(answer) => answer.map_err(|panic| Refusal::Internal(panic.to_string()))?,
        }
    }
}

/// When the leader lease is to be renewed, and the renewal that is under way: at most one.
struct LeaseRenewal {
    due_at: Instant,
    under_way: JoinSet<Result<bool, Refusal>>,
}
