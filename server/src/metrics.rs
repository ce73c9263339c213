//! The metrics of the queue. Every name is here, and every handle is made once, so that the hot path looks up no name.

use crate::outbox::DELIVER_SECONDS;
use metrics::{
    Counter, Gauge, Histogram, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use tallystone_serving::{Buckets, SECONDS};

const COMBINED_ITEMS: &str = "tallystone_combined_items";
const WAITING: &str = "tallystone_waiting_dequeues";
const WAITING_ITEMS: &str = "tallystone_waiting_messages";
const WAITING_BYTES: &str = "tallystone_waiting_messages_bytes";
const CALL_ITEMS: &str = "tallystone_waiting_call_items";
const CALL_BYTES: &str = "tallystone_waiting_call_bytes";
const ENQUEUES_REFUSED: &str = "tallystone_enqueues_refused_total";
const CALLS_REFUSED: &str = "tallystone_calls_overloaded_total";
const LANES: &str = "tallystone_lanes";
const WAITERS_REFUSED: &str = "tallystone_waiters_refused_total";
const STREAMS: &str = "tallystone_work_streams";
const ENQUEUE_STREAMS: &str = "tallystone_enqueue_streams";
const ENQUEUE_STREAM_PAUSES: &str = "tallystone_enqueue_stream_pauses_total";
const SWEEPS: &str = "tallystone_sweeps_total";
const SWEPT: &str = "tallystone_swept_messages_total";
const STORE_AVAILABLE: &str = "tallystone_store_available";
const PARTITION_UNAVAILABLE: &str = "tallystone_store_partition_unavailable";

/// The buckets of the queue's histograms, for the metrics listener.
pub const BUCKETS: &[Buckets] = &[
    Buckets { metric: COMBINED_ITEMS, bounds: &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_000.0] },
    Buckets { metric: DELIVER_SECONDS, bounds: SECONDS },
];

/// The handles of one server.
pub(crate) struct Metrics {
    /// Items per store call.
    pub(crate) combined: Combined,
    /// Dequeues and Work streams that wait for messages.
    pub(crate) waiting: Gauge,
    /// New messages that wait for the store.
    pub(crate) waiting_items: Gauge,
    /// Their memory.
    pub(crate) waiting_bytes: Gauge,
    /// Enqueues that found no room.
    pub(crate) enqueues_refused: Counter,
    /// Calls of Complete, Release and ExtendLease that wait for the store.
    pub(crate) waiting_leases: WaitingCalls,
    /// Calls of Cancel, Redrive and Dequeue that do.
    pub(crate) waiting_others: WaitingCalls,
    /// Calls of all these that found no room.
    pub(crate) calls_refused: Counter,
    /// Queue shards for which the server holds calls, or did until recently.
    pub(crate) lanes: Gauge,
    /// Dequeues and subscriptions that were not allowed to wait, because too many do.
    pub(crate) waiters_refused: WaitersRefused,
    /// Open Work streams.
    pub(crate) streams: Gauge,
    /// Open streams of Enqueues.
    pub(crate) enqueue_streams: Gauge,
    /// How often such a stream was not read, because too many of its calls had no answer.
    pub(crate) enqueue_stream_pauses: Counter,
    /// Sweeps of one shard.
    pub(crate) sweeps: Counter,
    /// Invisible messages made pending by sweeps.
    pub(crate) promoted: Counter,
    /// Expired leases ended by sweeps.
    pub(crate) expired: Counter,
    /// Terminal messages removed by sweeps.
    pub(crate) collected: Counter,
    /// Errored messages removed by sweeps because their queue had too many; they count as collected too.
    pub(crate) dropped: Counter,
    /// 1 while the store answers.
    pub(crate) store_available: Gauge,
}

/// The calls of one kind that wait for the store.
pub(crate) struct WaitingCalls {
    items: Gauge,
    bytes: Gauge,
}

impl WaitingCalls {
    fn new(kind: &'static str) -> Self {
        WaitingCalls { items: gauge!(CALL_ITEMS, "kind" => kind), bytes: gauge!(CALL_BYTES, "kind" => kind) }
    }

    pub(crate) fn set(&self, items: usize, bytes: usize) {
        self.items.set(items as f64);
        self.bytes.set(bytes as f64);
    }
}

/// Refused waiters, by the key of `[limits]` that has the bound.
pub(crate) struct WaitersRefused {
    pub(crate) subscriptions: Counter,
    pub(crate) dequeues: Counter,
    pub(crate) queue_waiters: Counter,
    pub(crate) queue_filters: Counter,
}

/// Items per combined store call, by verb.
pub(crate) struct Combined {
    pub(crate) complete: Histogram,
    pub(crate) release: Histogram,
    pub(crate) extend: Histogram,
    pub(crate) cancel: Histogram,
    pub(crate) enqueue: Histogram,
    pub(crate) dequeue: Histogram,
}

impl Metrics {
    /// Handles of the recorder that is installed now; without a recorder they do nothing.
    pub(crate) fn new() -> Self {
        describe_histogram!(COMBINED_ITEMS, "items per store call, by verb");
        describe_gauge!(WAITING, "Dequeues and Work streams that wait for messages");
        describe_gauge!(WAITING_ITEMS, "new messages that wait for Redis, in all queues together");
        describe_gauge!(WAITING_BYTES, "bytes of memory of new messages that wait for Redis");
        describe_counter!(ENQUEUES_REFUSED, "Enqueues that were refused because too much waited for Redis");
        describe_gauge!(CALL_ITEMS, "items of other calls that wait for Redis, by kind: leases, others");
        describe_gauge!(CALL_BYTES, "bytes of memory of these calls");
        describe_counter!(CALLS_REFUSED, "other calls that were refused because too much waited for Redis");
        describe_gauge!(LANES, "queue shards for which the server holds calls, or did within the last minute");
        describe_counter!(
            WAITERS_REFUSED,
            "calls and subscriptions that were not allowed to wait, by the limit that was reached"
        );
        describe_gauge!(STREAMS, "open Work streams");
        describe_gauge!(ENQUEUE_STREAMS, "open streams of Enqueues");
        describe_counter!(
            ENQUEUE_STREAM_PAUSES,
            "how often a stream of Enqueues was not read, because too many of its calls had no answer"
        );
        describe_counter!(SWEEPS, "sweeps of one queue shard");
        describe_counter!(SWEPT, "messages that sweeps have moved, by kind");
        describe_gauge!(STORE_AVAILABLE, "1 while Redis answers, has its data, and its clock is within the bound");
        let combined = |verb: &'static str| histogram!(COMBINED_ITEMS, "verb" => verb);
        let swept = |kind: &'static str| counter!(SWEPT, "kind" => kind);
        let waiters_refused = |limit: &'static str| counter!(WAITERS_REFUSED, "reason" => limit);
        Metrics {
            combined: Combined {
                complete: combined("complete"),
                release: combined("release"),
                extend: combined("extend_lease"),
                cancel: combined("cancel"),
                enqueue: combined("enqueue"),
                dequeue: combined("dequeue"),
            },
            waiting: gauge!(WAITING),
            waiting_items: gauge!(WAITING_ITEMS),
            waiting_bytes: gauge!(WAITING_BYTES),
            enqueues_refused: counter!(ENQUEUES_REFUSED),
            waiting_leases: WaitingCalls::new("leases"),
            waiting_others: WaitingCalls::new("others"),
            calls_refused: counter!(CALLS_REFUSED),
            lanes: gauge!(LANES),
            waiters_refused: WaitersRefused {
                subscriptions: waiters_refused("subscriptions_max"),
                dequeues: waiters_refused("waiting_dequeues_max"),
                queue_waiters: waiters_refused("queue_waiters_max"),
                queue_filters: waiters_refused("queue_filters_max"),
            },
            streams: gauge!(STREAMS),
            enqueue_streams: gauge!(ENQUEUE_STREAMS),
            enqueue_stream_pauses: counter!(ENQUEUE_STREAM_PAUSES),
            sweeps: counter!(SWEEPS),
            promoted: swept("promoted"),
            expired: swept("expired"),
            collected: swept("collected"),
            dropped: swept("dropped"),
            store_available: gauge!(STORE_AVAILABLE),
        }
    }
}

/// The handles that say of each partition of the store whether it is unavailable (1) or answers (0).
pub(crate) fn partitions_unavailable(partitions: u16) -> Vec<Gauge> {
    describe_gauge!(
        PARTITION_UNAVAILABLE,
        "1 while a partition of the store does not answer this server, or has lost its data; else 0"
    );
    let handle = |number: u16| gauge!(PARTITION_UNAVAILABLE, "partition" => number.to_string());
    (0..partitions).map(handle).collect()
}
