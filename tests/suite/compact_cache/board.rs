//! Namespaces bound to the fields of one counter set, and what must be in it.

use crate::counting::house::House;
use crate::system::program::SOON;
use std::collections::BTreeMap;
use tallystone_assembly::RollupWorker;
use tallystone_client::{CounterClient, NamespaceConfig, PublishedTo};
use tallystone_counters::publish::CounterSets;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_link::{Clock, CompactConfig, RedisConfig};
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_tests::compact::{Engine, Node, Setup};
use tallystone_tests::{Polling, volatile};
use tallystone_workers::WorkerOptions;
use tokio::task::block_in_place;
use tokio::time::Instant;
use tonic::transport::Channel;

/// The key of the counter set.
pub(super) const KEY: &str = "objects";
/// Each is a namespace and a field.
pub(super) const FIELDS: [&str; 4] = ["likes", "reposts", "comments", "views"];

/// The counter set of four fields.
const CREATE: &str = "CT.CREATE objects TABLE_SLOTS 1024 SCHEMA likes 24 likes.exact_to 41 reposts 24 reposts.exact_to 41 \
                      comments i16 comments.exact_to 41 views 24 views.exact_to 41";

/// A namespace that is rolled up as soon as can be, and published.
pub(super) fn published_to(field: &str) -> NamespaceConfig {
    let published_to = Some(PublishedTo { key: KEY.to_owned(), field: field.to_owned() });
    NamespaceConfig { published_to, ..prompt() }
}

/// Rolled up as soon as can be.
pub(super) fn prompt() -> NamespaceConfig {
    NamespaceConfig { accept_limit_ms: Some(1_000), coalesce_ms: Some(0), ..NamespaceConfig::default() }
}

/// An engine with the module, and nothing in it.
pub(super) fn start_sets(engine: Engine) -> Node {
    block_in_place(|| Setup::new(engine).without_fsync().start())
}

/// Creates the counter set.
pub(super) fn create(sets: &Node) {
    block_in_place(|| drop(sets.wire().done(CREATE)));
}

/// Where it listens.
pub(super) fn url(sets: &Node) -> String {
    format!("redis://127.0.0.1:{}", sets.port())
}

/// Publishes into a Redis.
pub(super) fn publisher(url: &str) -> CounterSets {
    let config = CompactConfig { url: Some(url.to_owned()), ..CompactConfig::default() };
    CounterSets::new(config.primary(&RedisConfig::default()).expect("an address"), url)
}

/// A worker of a house that publishes into a Redis.
pub(super) async fn start_worker(house: &House, url: &str) -> RollupWorker {
    let namespaces = RedisNamespaces::connect(&volatile(&house.redis.url()), Clock::default()).await;
    let options =
        WorkerOptions { name: "publisher".to_owned(), counter_sets: Some(publisher(url)), ..WorkerOptions::default() };
    RollupWorker::start(namespaces.expect("a Redis"), house.queue.clone().expect("a queue"), options)
}

/// The values of a field and its time, of each id that has one.
pub(super) type Column = BTreeMap<u64, (i64, u64)>;

/// What the set has in a field.
pub(super) fn column(sets: &Node, field: &str) -> Column {
    let place = 2 * FIELDS.iter().position(|name| *name == field).expect("a field");
    let all = block_in_place(|| sets.scan(KEY));
    let column = all.into_iter().map(|(id, values)| (id, (values[place], values[place + 1].cast_unsigned())));
    column.filter(|(_, pair)| *pair != (0, 0)).collect()
}

/// What GetCounts answers for these counters: count and time.
pub(super) async fn counts(client: &CounterClient, namespace: &str, ids: impl Iterator<Item = u64>) -> Column {
    let ids: Vec<u64> = ids.collect();
    let names = ids.iter().map(u64::to_string).collect();
    let counts = client.get_many(namespace, names).await.expect("an answer");
    let pairs = ids.into_iter().zip(counts.into_iter().map(|counted| counted.expect("a count")));
    pairs.map(|(id, counted)| (id, (counted.count, counted.exact_to_ms))).collect()
}

/// Adds to counters without tokens: on a busy machine the time of a token may be too old when it arrives.
pub(super) async fn add_all(counters: &mut CountersClient<Channel>, namespace: &str, deltas: &[(impl ToString, i64)]) {
    for deltas in deltas.chunks(500) {
        let adds = deltas.iter().map(|(counter, delta)| wire::AddCount {
            counter: counter.to_string(),
            delta: *delta,
            ..Default::default()
        });
        let (namespace, adds) = (namespace.to_owned(), adds.collect());
        let results =
            counters.add_counts(wire::AddCountsRequest { namespace, adds }).await.expect("adds").into_inner().results;
        let refused =
            results.iter().find(|result| !matches!(result.outcome, Some(wire::add_count_result::Outcome::Ok(_))));
        assert!(refused.is_none() && results.len() == deltas.len(), "{refused:?}");
    }
}

/// Waits until a field has these counts. Ids that are not in the set have 0.
pub(super) async fn until_published(sets: &Node, field: &str, expected: &BTreeMap<u64, i64>) {
    let wrong = async || {
        let found = column(sets, field);
        let count = |id: &u64| found.get(id).map_or(0, |(count, _)| *count);
        let wrong = expected.iter().filter(|(id, expected)| count(id) != **expected);
        wrong.map(|(id, expected)| format!("{field} of {id} is {}, not {expected}", count(id))).collect()
    };
    until_none(wrong).await;
}

/// Waits until nothing is wrong. How long that takes depends on the machine, so only a standstill fails.
pub(super) async fn until_none(wrong: impl AsyncFn() -> Vec<String>) {
    let (mut give_up_at, mut fewest, polling) = (Instant::now() + SOON, usize::MAX, Polling::begin());
    loop {
        let found = wrong().await;
        if found.is_empty() {
            return;
        }
        if found.len() < fewest {
            (give_up_at, fewest) = (Instant::now() + SOON, found.len());
        }
        assert!(Instant::now() < give_up_at, "still {} are wrong: {}", found.len(), found[0]);
        polling.pause().await;
    }
}
