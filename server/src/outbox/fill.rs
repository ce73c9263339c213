//! How full the outboxes are, and who is told.

use super::metrics::RelayMetrics;
use crate::store::RedisStore;
use std::time::Duration;
use tallystone_model::{Refusal, Shard};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// What the gRPC health service calls it. The queue itself goes on serving.
const HEALTH_SERVICE: &str = "tallystone.outbox";
/// A part of the bound at which the health answer says so.
const NEARLY_FULL: f64 = 0.8;
/// How often all shards are asked, at most.
const EVERY: Duration = Duration::from_secs(2);

/// What is known of the way to history.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    sink_answers: bool,
    fullest: f64,
}

impl Known {
    fn is_good(self) -> bool {
        self.sink_answers && self.fullest < NEARLY_FULL
    }
}

/// Whether history keeps up; shown by the gRPC health service.
#[derive(Clone, Debug)]
pub struct OutboxHealth(watch::Sender<Known>);

impl Default for OutboxHealth {
    fn default() -> Self {
        OutboxHealth(watch::Sender::new(Known { sink_answers: true, fullest: 0.0 }))
    }
}

impl OutboxHealth {
    /// Takes notice of how the sink answered; `true`: that is news.
    pub(super) fn sink_answers(&self, answers: bool) -> bool {
        self.0.send_if_modified(|known| std::mem::replace(&mut known.sink_answers, answers) != answers)
    }

    fn fullest(&self, ratio: f64) {
        self.0.send_if_modified(|known| std::mem::replace(&mut known.fullest, ratio) != ratio);
    }

    /// Another server relays, and knows.
    pub(super) fn not_ours(&self) {
        self.0.send_replace(Known { sink_answers: true, fullest: 0.0 });
    }

    /// History takes events, and no outbox is near its bound.
    pub fn is_good(&self) -> bool {
        self.0.borrow().is_good()
    }

    /// Tells the health service of every change, for as long as there is one.
    pub(crate) async fn report(self, reporter: HealthReporter) {
        let mut known = self.0.subscribe();
        loop {
            let good = known.borrow_and_update().is_good();
            let status = if good { ServingStatus::Serving } else { ServingStatus::NotServing };
            reporter.set_service_status(HEALTH_SERVICE, status).await;
            if known.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Looks now and then.
pub(super) struct Fill {
    events_max: u64,
    looked_at: Option<Instant>,
}

impl Fill {
    pub(super) fn new(events_max: u64) -> Self {
        Fill { events_max, looked_at: None }
    }

    pub(super) async fn look(
        &mut self,
        store: &RedisStore,
        shards: impl Iterator<Item = &Shard>,
        health: &OutboxHealth,
        metrics: &RelayMetrics,
    ) -> Result<(), Refusal> {
        if self.looked_at.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        let (mut waiting, mut most) = (0, 0);
        for shard in shards {
            let length = store.outbox_length(shard).await?.unwrap_or(0);
            waiting += length;
            most = most.max(length);
        }
        let fullest = most as f64 / self.events_max as f64;
        metrics.waiting.set(waiting as f64);
        metrics.fullest.set(fullest);
        health.fullest(fullest);
        self.looked_at = Some(Instant::now());
        Ok(())
    }
}
