//! How full the outboxes are: sampled by the relay, shown by the gRPC health service and the metrics.

use super::metrics::RelayMetrics;
use crate::store::RedisStore;
use std::time::Duration;
use tallystone_model::{Refusal, Shard};
use tallystone_serving::report_health;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic_health::server::HealthReporter;

/// The service of this status in the gRPC health protocol. The queue itself stays SERVING.
const HEALTH_SERVICE: &str = "tallystone.outbox";
/// The share of its bound from which an outbox counts as nearly full: the status is NOT_SERVING then.
const NEARLY_FULL: f64 = 0.8;
/// The least time between two samples.
const SAMPLE_EVERY: Duration = Duration::from_secs(2);

/// What decides the health status.
#[derive(Clone, Copy, Debug, PartialEq)]
struct RelayState {
    sink_answers: bool,
    /// The fullest outbox, as a share of its bound.
    fullest: f64,
}

impl RelayState {
    const GOOD: RelayState = RelayState { sink_answers: true, fullest: 0.0 };

    fn is_good(self) -> bool {
        self.sink_answers && self.fullest < NEARLY_FULL
    }
}

/// Whether history keeps up with the queue; reported to the gRPC health service.
#[derive(Clone, Debug)]
pub struct OutboxHealth(watch::Sender<RelayState>);

impl Default for OutboxHealth {
    fn default() -> Self {
        OutboxHealth(watch::Sender::new(RelayState::GOOD))
    }
}

impl OutboxHealth {
    /// Records whether the sink answers; `true`: this has changed.
    pub(super) fn set_sink_answers(&self, answers: bool) -> bool {
        self.0.send_if_modified(|state| std::mem::replace(&mut state.sink_answers, answers) != answers)
    }

    fn set_fullest(&self, ratio: f64) {
        self.0.send_if_modified(|state| std::mem::replace(&mut state.fullest, ratio) != ratio);
    }

    /// Another server relays, and reports the health.
    pub(super) fn reset(&self) {
        self.0.send_replace(RelayState::GOOD);
    }

    /// The sink accepts events, and no outbox is near its bound.
    pub fn is_good(&self) -> bool {
        self.0.borrow().is_good()
    }

    /// Sets the status in the health service, now and with every change, until the relay is dropped.
    pub(crate) async fn report(self, reporter: HealthReporter) {
        report_health(reporter, &[HEALTH_SERVICE], self.0.subscribe(), |state| state.is_good()).await;
    }
}

/// Samples the lengths of all outboxes, at most once every [`SAMPLE_EVERY`].
pub(super) struct FillSampler {
    events_max: u64,
    sampled_at: Option<Instant>,
}

impl FillSampler {
    pub(super) fn new(events_max: u64) -> Self {
        FillSampler { events_max, sampled_at: None }
    }

    /// Takes a sample if one is due.
    pub(super) async fn sample(
        &mut self,
        store: &RedisStore,
        shards: impl Iterator<Item = &Shard>,
        health: &OutboxHealth,
        metrics: &RelayMetrics,
    ) -> Result<(), Refusal> {
        if self.sampled_at.is_some_and(|at| at.elapsed() < SAMPLE_EVERY) {
            return Ok(());
        }
        let lengths = store.outbox_lengths(&shards.collect::<Vec<_>>()).await?;
        let lengths: Vec<u64> = lengths.into_iter().flatten().collect();
        let most = lengths.iter().max().copied().unwrap_or_default();
        let fullest = most as f64 / self.events_max as f64;
        metrics.waiting.set(lengths.iter().sum::<u64>() as f64);
        metrics.fullest.set(fullest);
        health.set_fullest(fullest);
        self.sampled_at = Some(Instant::now());
        Ok(())
    }
}
