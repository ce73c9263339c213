//! What the bench has measured, as plans use it. docs/performance.md says by which commands, and on what machine. Two figures are
//! assumed: each says so.

/// Redis memory of a counter without pending events, whose name has [`NAME_BYTES`]. 200,000 BEST_EFFORT counters without a TTL took 91 B
/// each.
pub const COUNTER_BYTES: f64 = 93.0;
/// The length of the names in the bench.
pub const NAME_BYTES: u64 = 16;
/// Redis memory of the record of an event that no rollup has counted yet.
pub const PENDING_EVENT_BYTES: f64 = 46.0;
/// Redis memory of the pending state of a counter, for each shard in which it has pending events.
pub const PENDING_COUNTER_BYTES: f64 = 250.0;
/// Redis memory of an event that a rollup has counted.
pub const SETTLED_EVENT_BYTES: f64 = 53.0;
/// Bytes on disk of an archived event with a random token of 16 bytes. Assumed: the bench has tokens of one client that count up,
/// and measures 11.6 B.
pub const ARCHIVED_EVENT_BYTES: f64 = 25.0;
/// Bytes of the append-only file of the counters' Redis that an add takes until it is rolled up.
pub const LOG_BYTES_PER_ADD: f64 = 283.0;
/// The same of an add to a BEST_EFFORT counter.
pub const LOG_BYTES_PER_BEST_EFFORT_ADD: f64 = 38.0;
/// Bytes of the append-only file of the queue's Redis that a rollup takes.
pub const LOG_BYTES_PER_ROLLUP: f64 = 478.0;
/// How long a job waits for a worker, and how long its rollup takes, in seconds.
pub const ROLLUP_S: f64 = 1.0;
/// How long an archiver takes for a pass, in seconds. Events stay in Redis longer by this time. Assumed.
pub const ARCHIVE_PASS_S: f64 = 10.0;

/// Adds each second, in batches of 64, that one Redis and one server carry.
pub const ADDS_PER_S: f64 = 207_089.0;
/// The same to BEST_EFFORT counters.
pub const BEST_EFFORT_ADDS_PER_S: f64 = 968_046.0;
/// Rollups each second that one worker, one queue and their Redis servers carry.
pub const ROLLUPS_PER_S: f64 = 35_863.0;
