//! The limits that callers can meet, units last in their names, with assertions of the relations between them.

/// Payload of one message (Q3).
pub const PAYLOAD_BYTES_MAX: usize = 32 * 1024;
/// Metadata pairs of one message (Q3).
pub const METADATA_PAIRS_MAX: usize = 4;
/// A metadata key name.
pub const METADATA_KEY_BYTES_MAX: usize = 64;
/// A metadata value.
pub const METADATA_VALUE_BYTES_MAX: usize = 255;
/// A queue name.
pub const QUEUE_NAME_BYTES_MAX: usize = 128;
/// A message id.
pub const MESSAGE_ID_BYTES_MAX: usize = 200;
/// A worker's name.
pub const WORKER_BYTES_MAX: usize = 128;
/// A request id.
pub const REQUEST_ID_BYTES_MAX: usize = 128;
/// The reason given with Release or Cancel.
pub const REASON_BYTES_MAX: usize = 255;
/// The result given with Complete.
pub const RESULT_BYTES_MAX: usize = 1_024;
/// Attempts of a message that can be read, the last ones.
pub const ATTEMPTS_KEPT: usize = 20;
/// Items of one batch.
pub const BATCH_ITEMS_MAX: usize = 1_000;
/// Encoded size of one request.
pub const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Payload bytes after which a Dequeue request gets no further lease: so a client that accepts messages of up to 4 MiB,
/// the common default, can read every response.
pub const DEQUEUE_PAYLOAD_BYTES: usize = 2 * 1024 * 1024;
/// Filters of one Dequeue (any of them may match).
pub const FILTERS_MAX: usize = 16;
/// Filter indexes of one queue: those declared, and those that filters created. All 15 sets of four metadata keys fit.
pub const INDEXES_MAX: usize = 16;
/// Messages of one queue, times its undeclared indexes, up to which a filter creates one more (S1). An entry takes about 143 bytes
/// of Redis, so this is 86 MB. The first undeclared index of a queue has no such bound.
pub const UNDECLARED_INDEX_ENTRIES_MAX: u64 = 600_000;
/// Shortest lease.
pub const LEASE_MS_MIN: u64 = 1_000;
/// Longest lease: twelve hours.
pub const LEASE_MS_MAX: u64 = 12 * 3_600 * 1_000;
/// Longest invisibility, release delay and terminal retention: a year.
pub const DELAY_MS_MAX: u64 = 365 * 86_400 * 1_000;
/// Longest wait of one Dequeue.
pub const WAIT_MS_MAX: u64 = 300_000;
/// Most attempts of one message.
pub const ATTEMPTS_MAX: u32 = 1_000;
/// The largest max_depth; max_depth 0 means no bound.
pub const DEPTH_MAX: u64 = 1_000_000_000;
/// The largest max_errored_bytes: 1 TiB.
pub const ERRORED_BYTES_MAX: u64 = 1 << 40;
/// Priority classes of one queue (Q28).
pub const PRIORITY_CLASSES_MAX: usize = 32;
/// The name of a priority class.
pub const PRIORITY_CLASS_BYTES_MAX: usize = 64;
/// How far the offset of a priority class may be from 0: a thousand years.
pub const PRIORITY_OFFSET_MS_MAX: u64 = 1_000 * DELAY_MS_MAX;
/// Shards of one queue (Q17). A Dequeue that finds nothing has called each of them.
pub const SHARDS_MAX: u16 = 64;
/// The highest number of a shard. Each change of the number of shards takes new ones (Q17).
pub const SHARD_NUMBER_MAX: u16 = 1_023;
/// Entries on one page of a list.
pub const PAGE_ITEMS_MAX: usize = 1_000;
/// The most urgent priorities among which the oldest runnable message is searched.
pub const AGE_PRIORITIES_MAX: usize = 32;
/// The leases that expire first, among which the oldest lease is searched.
pub const AGE_LEASES_MAX: usize = 128;
/// How far the next queue of a name begins behind the sequence of the deleted one. A revision may be ahead of the sequence by the number of
/// changes of the configuration; this is more.
pub const NUMBERS_LEFT_OUT: u64 = 1_000_000;
/// By how much the clock of the store and that of a process may differ, unless the configuration says otherwise (X6).
pub const CLOCK_SKEW_MAX_MS: u32 = 10_000;
/// The name of a counter, in bytes: it can also be a message's id and an exclusivity value.
pub const COUNTER_BYTES_MAX: usize = 128;
/// The name of a namespace of counters, in bytes.
pub const NAMESPACE_BYTES_MAX: usize = 64;
/// The source and the item key of an add to a counter, in bytes each.
pub const LABEL_BYTES_MAX: usize = 64;
/// Messages that one script call of the background work moves, of each kind.
pub const SWEEP_ITEMS_MAX: usize = 256;

const _: () = {
    assert!(PAYLOAD_BYTES_MAX * 100 < BATCH_BYTES_MAX, "a batch holds a hundred of the largest messages");
    let pairs_bytes = METADATA_PAIRS_MAX * (METADATA_KEY_BYTES_MAX + METADATA_VALUE_BYTES_MAX + 16);
    let leases_bytes = BATCH_ITEMS_MAX * (MESSAGE_ID_BYTES_MAX + pairs_bytes + 100);
    assert!(DEQUEUE_PAYLOAD_BYTES + PAYLOAD_BYTES_MAX + leases_bytes < 4 * 1024 * 1024);
    // Packed records have one byte for these lengths, two for attempts, four for leases, six for times.
    assert!(MESSAGE_ID_BYTES_MAX <= u8::MAX as usize);
    assert!(METADATA_KEY_BYTES_MAX <= u8::MAX as usize);
    assert!(METADATA_VALUE_BYTES_MAX <= u8::MAX as usize);
    assert!(WORKER_BYTES_MAX <= u8::MAX as usize);
    assert!(REASON_BYTES_MAX <= u8::MAX as usize);
    assert!(REQUEST_ID_BYTES_MAX <= u8::MAX as usize);
    assert!(BATCH_ITEMS_MAX <= u16::MAX as usize);
    // lua/lib/enqueue/kept.lua unpacks five fields for each item; Lua unpacks 8,000 values at most.
    assert!(5 * BATCH_ITEMS_MAX + 2 < 8_000);
    assert!(ATTEMPTS_MAX <= u16::MAX as u32 && LEASE_MS_MAX <= u32::MAX as u64);
    assert!(DELAY_MS_MAX < 1 << 46, "a due time fits six bytes");
    // A fencing token is a 64-bit number with sign in history, and has the number of its shard above 53 bits.
    assert!(SHARD_NUMBER_MAX < 1 << 10);
    // During a change: those before it and after it, which differ in number, and the first one.
    assert!(SHARDS_MAX as u32 * 2 <= u128::BITS, "a set of shards is a number of 128 bits");
    assert!(LEASE_MS_MIN < LEASE_MS_MAX && FILTERS_MAX <= BATCH_ITEMS_MAX);
};
