//! S1: the documentation has the fixed bounds, with the values of the code, and each key with its metric.

use crate::house::workspace::Workspace;
use tallystone_serving::Limits;

/// A source, a constant as it is defined there, and the begin of its row in the documentation, up to the value.
const FIXED: &[(&str, &str, &str)] = &[
    (
        "infra/serving/src/bounds/limits.rs",
        "MESSAGE_BYTES_MAX: usize = 8 * 1024 * 1024;",
        "a message of gRPC | 8 MiB; counters: 4 MiB |",
    ),
    (
        "counters/src/api/mod.rs",
        "REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;",
        "a message of gRPC | 8 MiB; counters: 4 MiB |",
    ),
    (
        "infra/serving/src/bounds/elements.rs",
        "ELEMENTS_MAX: usize = 100_000;",
        "the elements in the lists of a message | 100,000, in 100 levels |",
    ),
    (
        "infra/serving/src/bounds/elements.rs",
        "DEPTH_MAX: usize = 100;",
        "the elements in the lists of a message | 100,000, in 100 levels |",
    ),
    ("infra/serving/src/http/list.rs", "ITEMS_MAX: usize = 1_000;", "a batch; a page of a list | 1,000 items |"),
    (
        "counters/src/namespace/seed/mod.rs",
        "BRACKETS_MAX: usize = 256;",
        "the brackets of a configuration of a namespace | 256 |",
    ),
    (
        "infra/serving/src/bounds/head.rs",
        "HEAD_BYTES_MAX: usize = 16 * 1024;",
        "a head over HTTP/1 | 16 KiB and one more read, 100 fields |",
    ),
    (
        "infra/serving/src/transport.rs",
        "KEEPALIVE: Duration = Duration::from_secs(20);",
        "the answer to a ping over HTTP/2, also while a head is missing | 20 s after 20 s of silence |",
    ),
    (
        "infra/serving/src/transport.rs",
        "CANCELLED_PER_CONNECTION: usize = 1_000;",
        "calls over HTTP/2 that were cancelled before the server accepted them | 1,000 of a connection |",
    ),
    (
        "infra/serving/src/transport.rs",
        "STREAM_WINDOW_BYTES: u32 = 1024 * 1024;",
        "bytes of requests over HTTP/2 that no call reads | 1 MiB of a call, 2 MiB of a connection |",
    ),
    (
        "infra/serving/src/bounds/arrived.rs",
        "CONNECTION_WINDOW_BYTES: u32 = 2 * 1024 * 1024;",
        "bytes of requests over HTTP/2 that no call reads | 1 MiB of a call, 2 MiB of a connection |",
    ),
    (
        "server/src/api/work/mod.rs",
        "SUBSCRIPTIONS_MAX: usize = 10_000;",
        "subscriptions of a Work stream; results that it has not got | 10,000; 4,000 |",
    ),
    (
        "server/src/api/work/mod.rs",
        "PENDING_MAX: usize = 4 * BATCH_ITEMS_MAX;",
        "subscriptions of a Work stream; results that it has not got | 10,000; 4,000 |",
    ),
    (
        "server/src/api/enqueue_stream.rs",
        "BYTES_MAX: usize = 16 * 1024 * 1024;",
        "requests of a stream of Enqueues without an answer | 16 MiB |",
    ),
    ("model/src/limits.rs", "INDEXES_MAX: usize = 16;", "filter indexes of a queue | 16;"),
    (
        "model/src/limits.rs",
        "UNDECLARED_INDEX_ENTRIES_MAX: u64 = 600_000;",
        "messages of a queue, in all states, times its undeclared filter indexes | 600,000;",
    ),
    (
        "server/src/engine/waiting/revoked.rs",
        "REVOKED_MAX: usize = 1_024;",
        "revoked leases of a queue that a server remembers while a Dequeue is under way | 1,024 |",
    ),
    (
        "server/src/engine/fair_queue/known.rs",
        "NAMES_MAX: usize = 8_192;",
        "names of queues that a server knows to exist | 2 × 8,192 |",
    ),
    (
        "counters/src/service/read_room.rs",
        "COUNTERS_MAX: usize = 50_000;",
        "counters for which reads wait, in a server | 50,000 |",
    ),
    (
        "counters/src/service/top.rs",
        "const LISTS_MAX: usize = 64;",
        "lists of highest counts, in a server | 64; 8 of a namespace |",
    ),
    (
        "counters/src/service/top.rs",
        "NAMESPACE_LISTS_MAX: usize = 8;",
        "lists of highest counts, in a server | 64; 8 of a namespace |",
    ),
    (
        "counters/src/service/touches.rs",
        "REMEMBERED_MAX: usize = 100_000;",
        "counters of which a server remembers that they were read | 100,000 |",
    ),
    (
        "views/src/reads/queue.rs",
        "WAITING_MAX: usize = 8 * CALL_MAX;",
        "counts of videos that wait to be read, of a namespace | 8,000; 4,000 if never read before |",
    ),
    (
        "views/src/reads/queue.rs",
        "NEW_WAITING_MAX: usize = WAITING_MAX / 2;",
        "counts of videos that wait to be read, of a namespace | 8,000; 4,000 if never read before |",
    ),
    (
        "infra/serving/src/access/jwt/verifier.rs",
        "TOKEN_BYTES_MAX: usize = 16 * 1024;",
        "a JSON Web Token; verified tokens that a server remembers | 16 KiB; 10,000 |",
    ),
    (
        "infra/serving/src/access/jwt/verifier.rs",
        "VERIFIED_MAX: usize = 10_000;",
        "a JSON Web Token; verified tokens that a server remembers | 16 KiB; 10,000 |",
    ),
    ("infra/serving/src/access/jwt/keys.rs", "KEYS_MAX: usize = 100;", "the keys of a provider | 100, in 1 MiB |"),
    (
        "infra/serving/src/access/jwt/source.rs",
        "BYTES_MAX: usize = 1024 * 1024;",
        "the keys of a provider | 100, in 1 MiB |",
    ),
    (
        "infra/serving/src/access/audit/log.rs",
        "DENIALS_MAX: usize = 100;",
        "lines of the audit log about refused callers | 100 a second |",
    ),
];

#[test]
fn s1_the_documents_fixed_bounds_are_the_programs() {
    let workspace = Workspace::read();
    let page = workspace.text("docs/operations/fixed-bounds.md");
    for (source, constant, row) in FIXED {
        let has_constant = workspace.text(source).contains(constant);
        assert!(has_constant, "the documentation has {row:?}, but {source} has no {constant:?}");
        assert!(page.contains(&format!("\n| {row}")), "no row {row:?}");
    }
}

#[test]
fn s1_the_documents_have_each_limit_with_its_metric() {
    let workspace = Workspace::read();
    let limits = serde_json::to_value(Limits::default()).expect("a table");
    let [keys, metrics] =
        ["configuration", "metrics"].map(|page| workspace.text(&format!("docs/operations/{page}.md")));
    for key in limits.as_object().expect("a table").keys() {
        assert!(keys.contains(&format!("\n| `{key}` |")), "configuration.md has no row of {key}");
        let is_named = [format!("`{key}`"), format!("`limits.{key}`")].iter().any(|name| metrics.contains(name));
        assert!(is_named, "metrics.md does not say which metric shows {key}");
    }
}
