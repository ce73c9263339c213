//! What `/metrics` says of the relay.

use ::metrics::{Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram};
use ::metrics::{gauge, histogram};
use std::time::Duration;

/// Events that a sink has acknowledged.
const RELAYED: &str = "tallystone_relay_events_total";
pub(crate) const DELIVER_SECONDS: &str = "tallystone_relay_deliver_seconds";
const FAILURES: &str = "tallystone_relay_failures_total";
const LOST: &str = "tallystone_outbox_lost_events_total";
const UNDONE: &str = "tallystone_relay_undone_events_total";
const ACTIVE: &str = "tallystone_relay_active";
const WAITING: &str = "tallystone_outbox_events";
const WATERMARK: &str = "tallystone_relay_watermark_seconds";
const FULLEST: &str = "tallystone_outbox_fullest_ratio";

/// Handles made once.
pub(super) struct RelayMetrics {
    relayed: Counter,
    deliver_seconds: Histogram,
    pub(super) failures: Counter,
    pub(super) lost: Counter,
    pub(super) undone: Counter,
    pub(super) active: Gauge,
    fill: FillGauges,
    pub(super) watermark: Gauge,
}

/// How full the outboxes are.
#[derive(Clone)]
pub(super) struct FillGauges {
    waiting: Gauge,
    fullest: Gauge,
}

impl FillGauges {
    /// `waiting`: events. `fullest`: a part of the bound.
    pub(super) fn set(&self, waiting: u64, fullest: f64) {
        self.waiting.set(waiting as f64);
        self.fullest.set(fullest);
    }
}

impl RelayMetrics {
    pub(super) fn new() -> Self {
        describe_counter!(RELAYED, "events that history has taken");
        describe_histogram!(DELIVER_SECONDS, Unit::Seconds, "from giving events to history to its acknowledgement");
        describe_counter!(FAILURES, "tries that history did not take");
        describe_counter!(LOST, "events given up at the outbox's bound before they were relayed");
        describe_counter!(UNDONE, "events in history whose writes Redis has lost since");
        describe_gauge!(ACTIVE, "1 where this server relays");
        describe_gauge!(WAITING, "events that wait in all outboxes");
        describe_gauge!(WATERMARK, Unit::Seconds, "Unix time up to which history has everything, by the store's clock");
        describe_gauge!(FULLEST, "the fullest outbox, as a part of its bound");
        RelayMetrics {
            relayed: counter!(RELAYED),
            deliver_seconds: histogram!(DELIVER_SECONDS),
            failures: counter!(FAILURES),
            lost: counter!(LOST),
            undone: counter!(UNDONE),
            active: gauge!(ACTIVE),
            fill: FillGauges { waiting: gauge!(WAITING), fullest: gauge!(FULLEST) },
            watermark: gauge!(WATERMARK),
        }
    }

    /// Another server relays: what was said here is of the past.
    pub(super) fn not_ours(&self) {
        self.fill.set(0, 0.0);
    }

    pub(super) fn fill(&self) -> FillGauges {
        self.fill.clone()
    }

    pub(super) fn delivered(&self, events: usize, took: Duration) {
        self.relayed.increment(events as u64);
        self.deliver_seconds.record(took.as_secs_f64());
    }
}
