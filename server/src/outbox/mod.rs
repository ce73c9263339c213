//! The relay: reads the outboxes in order, gives their events to a [`Sink`], and drops what the sink has (Q19).
//!
//! What lives here: the loop, its turn, its metrics and what it says of its health. What may not: Redis commands
//! (`store/outbox.rs`) and what a sink does with events (tallystone-indexer).
//!
//! One relay at a time reads all outboxes of a Redis: it holds a *turn*, as the sweeper does, and another server takes
//! over when it is not renewed. A relay that has lost its turn without noticing does no harm: what it delivers, others
//! deliver too, and a sink takes an event twice as once; what it drops, the sink had acknowledged to it.

mod fill;
mod metrics;

pub use fill::OutboxHealth;

use crate::store::{OutboxReader, Read, RedisStore};
use fill::Fill;
use metrics::RelayMetrics;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::{Refusal, Sink, SinkError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// How long one read waits for news; shorter for a while after there was some, so that the watermark keeps up.
const WAIT: Duration = Duration::from_millis(2_500);
const WAIT_AFTER_NEWS: Duration = Duration::from_secs(1);
const NEWS: Duration = Duration::from_secs(10);
/// The first read after there was news: the watermark that passes it is not long in coming.
const WAIT_AT_FIRST: Duration = Duration::from_millis(100);
/// Between two reads: many small entries travel together. A read of many shards costs Redis more, about a microsecond
/// each, and is followed by a longer pause, so that thousands of quiet queues cost little.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_PER_SHARD: Duration = Duration::from_micros(10);
/// How often the registry is looked through, whatever was told.
const WALK: Duration = Duration::from_secs(30);
/// Between two tries with a sink, or a Redis, that is away.
/// A delivery that takes longer is watched over; after so long the sink counts as away.
const SLOW: Duration = Duration::from_secs(1);
const SILENT: Duration = Duration::from_secs(5);
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// How a relay goes about it.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// How long its turn lasts.
    pub turn_ms: u64,
    /// The bound of each outbox, to say how full they are.
    pub events_max: u64,
    /// The least time between two watermarks.
    pub watermark_every: Duration,
}

/// The relay of one server.
pub struct Relay<K> {
    store: Arc<RedisStore>,
    sink: K,
    options: RelayOptions,
    owner: String,
    health: OutboxHealth,
    metrics: RelayMetrics,
}

impl<K: Sink> Relay<K> {
    /// A relay into this sink.
    ///
    /// Its metrics are made here: where there is a recorder, it must be there before.
    pub fn new(store: Arc<RedisStore>, sink: K, options: RelayOptions, health: OutboxHealth) -> Self {
        Relay { store, sink, options, owner: Uuid::new_v4().to_string(), health, metrics: RelayMetrics::new() }
    }

    /// Relays whenever it is this server's turn, until it is told to stop; then gives the turn back.
    pub async fn run(self, stopping: CancellationToken) {
        let _ = stopping.run_until_cancelled(self.turns()).await;
        // Not cancelled in the middle: what was delivered and not dropped is only delivered again.
        if let Err(refusal) = self.store.end_turn("relay", &self.owner).await {
            tracing::debug!(%refusal, "the relay's turn will end by itself");
        }
    }

    async fn turns(&self) {
        let mut retry = RETRY_MIN;
        loop {
            match self.relay().await {
                Ok(()) => {
                    retry = RETRY_MIN;
                    self.health.not_ours();
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
        Duration::from_millis(self.options.turn_ms / 3)
    }

    /// One turn, from taking it to its end. `Ok`: it is another's.
    async fn relay(&self) -> Result<(), Refusal> {
        let mut turn = Turn { renew_at: Instant::now() };
        if !self.renew(&mut turn).await? {
            return Ok(());
        }
        tracing::info!(owner = self.owner, "this server relays events now");
        self.metrics.active.set(1.0);
        let mut reader = self.store.outbox_reader();
        let mut fill = Fill::new(self.options.events_max);
        let (mut walk_at, mut news_at, mut marked_at) = (Instant::now(), Instant::now(), None::<Instant>);
        let (mut behind, mut busy) = (false, false);
        loop {
            if !self.renew(&mut turn).await? {
                return Ok(());
            }
            if walk_at <= Instant::now() {
                reader.discover().await?;
                walk_at = Instant::now() + WALK;
                fill.look(&self.store, reader.shards(), &self.health, &self.metrics).await?;
            }
            if behind {
                fill.look(&self.store, reader.shards(), &self.health, &self.metrics).await?;
            }
            let wait = match news_at.elapsed() {
                _ if busy => WAIT_AT_FIRST,
                since if since < NEWS => WAIT_AFTER_NEWS,
                _ => WAIT,
            };
            let read = reader.read(wait.min(turn.renew_at.saturating_duration_since(Instant::now()))).await?;
            behind = read.more;
            if read.new_queues {
                walk_at = Instant::now();
            }
            let lost = reader.take_lost();
            if lost > 0 {
                tracing::warn!(events = lost, "events were given up before they were relayed");
                self.metrics.lost.increment(lost);
            }
            busy = !read.shards.is_empty();
            if !self.pass_on(&mut turn, &mut reader, &mut fill, &read, &mut marked_at).await? {
                return Ok(());
            }
            if busy {
                news_at = Instant::now();
                if !behind {
                    let shards = u32::try_from(reader.shards().count()).unwrap_or(u32::MAX);
                    tokio::time::sleep(PAUSE.max((PAUSE_PER_SHARD * shards).min(WAIT_AFTER_NEWS))).await;
                }
            }
        }
    }

    /// Gives what was read to the sink until the sink has it. `false`: the turn was lost over it.
    async fn pass_on(
        &self,
        turn: &mut Turn,
        reader: &mut OutboxReader,
        fill: &mut Fill,
        read: &Read,
        marked_at: &mut Option<Instant>,
    ) -> Result<bool, Refusal> {
        let mut retry = RETRY_MIN;
        let mut delivered = read.shards.is_empty();
        loop {
            let mut result = Ok(());
            if !delivered {
                let Some(taken) = self.deliver(turn, reader, fill, read).await? else { return Ok(false) };
                result = taken;
                if result.is_ok() {
                    delivered = true;
                    reader.ack(&read.shards).await?;
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
                self.health.sink_answers(true);
                return Ok(true);
            };
            self.metrics.failures.increment(1);
            if self.health.sink_answers(false) {
                tracing::warn!(%error, "history does not take events; they wait in the outbox");
            }
            if delivered {
                // The next watermark says more than this one.
                return Ok(true);
            }
            tokio::time::sleep(retry).await;
            retry = (retry * 2).min(RETRY_MAX);
            if !self.renew(turn).await? {
                return Ok(false);
            }
            fill.look(&self.store, reader.shards(), &self.health, &self.metrics).await?;
        }
    }

    /// One try, however long the sink takes: the turn is kept meanwhile, and how full the outboxes are is looked at.
    /// `None`: the turn was lost over it.
    async fn deliver(
        &self,
        turn: &mut Turn,
        reader: &OutboxReader,
        fill: &mut Fill,
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
            if !self.renew(turn).await? {
                return Ok(None);
            }
            self.health.sink_answers(begin.elapsed() < SILENT);
            fill.look(&self.store, reader.shards(), &self.health, &self.metrics).await?;
        }
    }

    /// Keeps the turn; `false`: it is another's.
    async fn renew(&self, turn: &mut Turn) -> Result<bool, Refusal> {
        if turn.renew_at > Instant::now() {
            return Ok(true);
        }
        let asked_at = Instant::now();
        let mine = self.store.take_turn("relay", &self.owner, self.options.turn_ms).await?;
        turn.renew_at = asked_at + self.renew_every();
        Ok(mine)
    }
}

/// Whose turn it is, as far as this relay knows.
struct Turn {
    renew_at: Instant,
}
