//! How full the outboxes are: sampled by the relay, shown by the gRPC health service and the metrics.

use super::metrics::RelayMetrics;
use crate::store::{OutboxReader, RedisStore};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tallystone_serving::report_health;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
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

/// Samples the lengths of the outboxes, of each partition at most once every [`SAMPLE_EVERY`]. It waits for no partition.
pub(super) struct FillSampler {
    events_max: u64,
    /// The last sample of each partition.
    fills: Arc<Mutex<Vec<Fill>>>,
    /// When the last sample of each partition began, and its task.
    begun: Vec<Option<(Instant, AbortHandle)>>,
    tasks: JoinSet<()>,
}

/// How many events wait in the outboxes of a partition, and in the fullest of them.
#[derive(Clone, Copy, Default)]
struct Fill {
    waiting: u64,
    fullest: u64,
}

impl FillSampler {
    pub(super) fn new(events_max: u64) -> Self {
        FillSampler { events_max, fills: Arc::default(), begun: Vec::new(), tasks: JoinSet::new() }
    }

    /// Begins the samples that are due. Each sets the metrics and the health when it is there.
    pub(super) fn sample(
        &mut self,
        store: &Arc<RedisStore>,
        reader: &OutboxReader,
        health: &OutboxHealth,
        metrics: &RelayMetrics,
    ) {
        while self.tasks.try_join_next().is_some() {}
        for (number, shards) in reader.partitions().enumerate() {
            if self.begun.len() == number {
                self.begun.push(None);
            }
            let is_due = |(at, task): &(Instant, AbortHandle)| at.elapsed() >= SAMPLE_EVERY && task.is_finished();
            // The shards of a partition that was not read yet are unknown.
            if !self.begun[number].as_ref().map_or(!shards.is_empty(), is_due) {
                continue;
            }
            let (store, shards, fills) = (store.clone(), shards.to_vec(), self.fills.clone());
            let (health, gauges, events_max) = (health.clone(), metrics.fill(), self.events_max);
            let task = self.tasks.spawn(async move {
                let Ok(lengths) = store.outbox_lengths(&shards.iter().collect::<Vec<_>>()).await else { return };
                let lengths = lengths.into_iter().flatten();
                let fill = lengths.fold(Fill::default(), |fill, length| Fill {
                    waiting: fill.waiting + length,
                    fullest: fill.fullest.max(length),
                });
                let mut fills = fills.lock().unwrap_or_else(PoisonError::into_inner);
                if fills.len() <= number {
                    fills.resize(number + 1, Fill::default());
                }
                fills[number] = fill;
                let fullest =
                    fills.iter().map(|fill| fill.fullest).max().unwrap_or_default() as f64 / events_max as f64;
                gauges.set(fills.iter().map(|fill| fill.waiting).sum(), fullest);
                health.set_fullest(fullest);
            });
            self.begun[number] = Some((Instant::now(), task));
        }
    }
}
