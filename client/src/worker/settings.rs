//! What a worker is configured with, and what it counts.

use super::outcome::{Outcome, RunningStats};
use crate::client::Client;
use crate::lease::LeaseRef;
use crate::message::Filter;
use crate::wire::{new_id, wire_ms};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_proto::queue::v1 as wire;

/// The setters of [`Worker`](super::Worker) explain the fields.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) client: Client,
    pub(super) queue: String,
    pub(super) name: String,
    pub(super) concurrency: u32,
    pub(super) lease_ms: Option<u64>,
    pub(super) filters: Vec<Filter>,
    pub(super) release_on_close: bool,
    pub(super) shared_stream: bool,
    pub(super) grace: Duration,
    /// Clones of a worker share them.
    pub(super) stats: Arc<RunningStats>,
    pub(super) on_outcome: Option<Arc<OnOutcome>>,
}

pub(super) type OnOutcome = dyn Fn(&LeaseRef, &Outcome) + Send + Sync;

impl Settings {
    pub(super) fn new(client: Client, queue: String) -> Settings {
        Settings {
            client,
            queue,
            name: format!("worker-{}", new_id()),
            concurrency: 1,
            lease_ms: None,
            filters: Vec::new(),
            release_on_close: false,
            shared_stream: false,
            grace: Duration::from_secs(30),
            stats: Arc::default(),
            on_outcome: None,
        }
    }

    /// What the first request of a stream or subscription says.
    pub(super) fn start(&self) -> wire::WorkStart {
        wire::WorkStart {
            queue: self.queue.clone(),
            worker: self.name.clone(),
            lease_ms: self.lease_ms.map(wire_ms),
            filters: self.filters.iter().cloned().map(Filter::into_wire).collect(),
            release_on_close: self.release_on_close,
        }
    }

    /// Counts an outcome and reports it.
    pub(super) fn settle(&self, lease: &LeaseRef, outcome: Outcome) {
        if let Outcome::Lost(cause) = &outcome {
            match self.client.outage.lost(Instant::now()) {
                Some(count) => tracing::warn!(worker = self.name, id = lease.id, ?cause, count, "leases were lost"),
                None => tracing::debug!(worker = self.name, id = lease.id, ?cause, "a lease was lost"),
            }
        }
        self.stats.count(&outcome);
        if let Some(on_outcome) = &self.on_outcome {
            on_outcome(lease, &outcome);
        }
    }
}
