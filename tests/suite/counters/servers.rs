//! Several servers, and changes that they do not know yet (N1, N5).

use super::*;
use std::time::Duration;
use tallystone_counters::Cache;
use tallystone_counters::namespace::CounterType;
use tallystone_counters::read::accurate;
use tallystone_counters::service::{ChangeRequest, CounterService, WaitingBounds};

/// How long an answer may take: generous, for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Makes servers of the shared Redis, whose clock does not advance.
async fn servers() -> impl Fn() -> RedisNamespaces {
    let redis = TestRedis::shared().await;
    let client = redis::Client::open(redis.url()).expect("an address");
    let clock_ms = Arc::new(AtomicU64::new(NOON_MS));
    move || {
        let _kept = &redis;
        RedisNamespaces::new(client.clone(), ReplicaWait::default(), Clock::Test(clock_ms.clone()))
    }
}

#[tokio::test]
async fn n1_a_server_with_an_old_configuration_is_refused() {
    let ns = TestNamespace::new("revision", NamespaceConfig::default()).await;
    let config = NamespaceConfig { accept_limit_ms: 60_000, ..NamespaceConfig::default() };
    let newer = ns.server(&config, 2).await;
    let old = add("c", "t", NOON_MS - 30_000, 1);
    assert_eq!(ns.append_one(old.clone()).await, Err(Refusal::Stale));
    assert_eq!(newer.expect("the newer").append(&[old]).await, [counted(NOON_MS - 30_000)]);
    assert_eq!(ns.server(&config, 1).await.err(), Some(Refusal::Stale));
}

#[tokio::test]
async fn n1_a_change_of_a_namespace_reaches_every_server_before_it_is_answered() {
    let namespaces = servers().await;
    let (one, other) = (namespaces(), namespaces());
    let name = NamespaceName::parse(format!("registry-{:08x}", rand::random::<u32>())).expect("a name");
    assert_eq!(one.get(&name).await, Ok(None));
    let first = one.put(&name, NamespaceConfig::default()).await.expect("made");
    assert_eq!(other.get(&name).await, Ok(Some(first.clone())));
    let of_one = one.open(&first).await.expect("its stores");
    let longer = NamespaceConfig { accept_limit_ms: 60_000, ..NamespaceConfig::default() };
    let second = other.put(&name, longer.clone()).await.expect("changed");
    assert_eq!((second.revision, &second.config), (2, &longer));
    let old = add("c", "t", NOON_MS - 30_000, 1);
    assert_eq!(of_one.append(std::slice::from_ref(&old)).await, [Err(Refusal::Stale)]);
    let now = one.get(&name).await.expect("an answer").expect("the namespace");
    assert_eq!(one.open(&now).await.expect("its stores").append(&[old]).await, [counted(NOON_MS - 30_000)]);
    let moved = NamespaceConfig { buckets_per_id: 8, ..longer };
    assert!(matches!(one.put(&name, moved).await, Err(Refusal::Invalid { field: "buckets_per_id", .. })));
}

#[tokio::test]
async fn n5_an_event_that_happens_when_it_is_counted_has_the_time_of_its_shard() {
    let mut ns = TestNamespace::new("stamp", NamespaceConfig { buckets_per_id: 8, ..NamespaceConfig::default() }).await;
    // Some shards have shown a later time than what the server takes for the time, by some windows.
    let ahead_ms = NOON_MS + 1_700;
    let narrow = ns.narrow(3).await;
    ns.at(ahead_ms);
    narrow.tick(&[(counter("c"), 0)]).await.expect("an answer");
    ns.at(NOON_MS);
    let adds: Vec<NewEvent> = (0..64).map(|number| add_now("c", &format!("t{number}"), 1)).collect();
    let mut times: Vec<u64> = Vec::new();
    for answer in ns.store.append(&adds).await {
        let answer = answer.expect("counted");
        assert!(!answer.duplicate);
        times.push(answer.time_ms);
    }
    assert!(times.iter().all(|time_ms| [NOON_MS, ahead_ms].contains(time_ms)), "{times:?}");
    assert!(times.contains(&NOON_MS) && times.contains(&ahead_ms), "{times:?}");
    // Where it was counted it is found under the time that was answered.
    let again: Vec<NewEvent> =
        adds.iter().zip(&times).map(|(add, time_ms)| NewEvent { time_ms: Some(*time_ms), ..add.clone() }).collect();
    for (answer, time_ms) in ns.store.append(&again).await.into_iter().zip(times) {
        assert_eq!(answer, duplicate(time_ms));
    }
    assert_eq!(ns.settled("c").await, 64);
    let last_write_ms = ns.checkpoint("c").await.last_write_ms;
    assert_eq!(last_write_ms, ahead_ms);
}

#[tokio::test]
async fn n3_the_layout_of_a_shard_that_has_lost_a_change_replaces_the_cached_one() {
    let config = NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() };
    let ns = TestNamespace::new("replica", config).await;
    ns.append_one(add("c", "t", NOON_MS, 1)).await.expect("counted");
    let home = ns.pending("c").await[0].0;
    let mut connection = ns.redis.connection().await;
    let keys = ["state", "layout"].map(|key| format!("tc:{{{}/{home}}}:{key}", ns.name));
    let before: Vec<Vec<u8>> = redis::cmd("MGET").arg(&keys).query_async(&mut connection).await.expect("values");
    let burst: Vec<NewEvent> = (0..400).map(|number| add("c", &format!("t{number}"), NOON_MS, 1)).collect();
    assert!(ns.store.append(&burst).await.iter().all(Result::is_ok));
    // The server knows the new layout; then a replica takes over that did not know it.
    assert_eq!(ns.append_one(add("c", "u", NOON_MS + 1_000, 1)).await, counted(NOON_MS + 1_000));
    let mut set = redis::cmd("MSET");
    for (key, value) in keys.iter().zip(&before) {
        set.arg(key).arg(value);
    }
    set.exec_async(&mut connection).await.expect("set");
    // A server that kept its cached layout would repeat the call for ever.
    let answer = ns.append_one(add("c", "v", NOON_MS + 1_000, 1));
    assert_eq!(tokio::time::timeout(PATIENCE, answer).await, Ok(counted(NOON_MS + 1_000)));
    assert_eq!(ns.append_one(add("c", "t", NOON_MS, 1)).await, duplicate(NOON_MS));
}

/// A server that does not know of a deletion: its adds reach the namespace that has the name now, of whatever type (N14).
#[tokio::test]
async fn n14_adds_of_a_server_that_has_not_noticed_a_deletion_are_not_lost() {
    let namespaces = servers().await;
    // It follows nothing: no background work runs.
    let bounds = WaitingBounds { items_max: 1_000, bytes_max: 1 << 20 };
    let (one, other) = (namespaces(), CounterService::new(namespaces(), None, bounds));
    let name = NamespaceName::parse(format!("unnoticed-{:08x}", rand::random::<u32>())).expect("a name");
    let of_type = |counter_type| NamespaceConfig { counter_type, ..NamespaceConfig::default() };
    let of_c = |token: &str, change| ChangeRequest {
        counter: counter("c"),
        change,
        event: Some((Token::parse(token).expect("a token"), NOON_MS)),
        bounds: Bounds::default(),
        labels: Labels::default(),
    };
    let add = |token: &str, delta| vec![of_c(token, Change::Add(delta))];
    one.put(&name, of_type(CounterType::BestEffort)).await.expect("made");
    other.append(&name, add("t", 5)).await.expect("an answer")[0].as_ref().expect("an add");

    one.delete(&name, None).await.expect("deleted");
    for change in [Change::Add(7), Change::Clear] {
        let refused = other.append(&name, vec![of_c("t", change)]).await.expect("an answer").remove(0);
        assert_eq!(refused, Err(Refusal::NamespaceNotFound { namespace: name.to_string() }));
    }

    one.put(&name, of_type(CounterType::BestEffort)).await.expect("made again");
    other.append(&name, add("t", 11)).await.expect("an answer")[0].as_ref().expect("an add");
    let found = one.get(&name).await.expect("an answer").expect("the namespace");
    let stored = one.open(&found).await.expect("its stores");
    assert_eq!(stored.cache_get(&[counter("c")]).await, Ok(vec![11]));

    one.delete(&name, None).await.expect("deleted");
    one.put(&name, of_type(CounterType::Accurate)).await.expect("made again");
    for duplicate in [false, true] {
        let added = other.append(&name, add("t", 13)).await.expect("an answer").remove(0).expect("an add");
        assert_eq!((added.time_ms, added.duplicate), (NOON_MS, duplicate));
    }
    let found = one.get(&name).await.expect("an answer").expect("the namespace");
    let stored = one.open(&found).await.expect("its stores");
    assert_eq!(accurate(&stored, &stored, &[counter("c")]).await.expect("a count")[0].0, 13);

    one.delete(&name, None).await.expect("deleted");
    one.put(&name, of_type(CounterType::BestEffort)).await.expect("made again");
    // The log of the counters of before must not take it; the retry of the caller goes to those of now.
    assert_eq!(other.append(&name, add("u", 17)).await.expect("an answer"), [Err(Refusal::Stale)]);
    other.append(&name, add("u", 17)).await.expect("an answer")[0].as_ref().expect("an add");
    let found = one.get(&name).await.expect("an answer").expect("the namespace");
    let stored = one.open(&found).await.expect("its stores");
    assert_eq!(stored.cache_get(&[counter("c")]).await, Ok(vec![17]));
}
