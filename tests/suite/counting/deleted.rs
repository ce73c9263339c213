//! Counters and namespaces that are deleted, through every server and while processes are killed (N14).

use super::house::{House, until};
use super::machines::Machines;
use super::{POLL, now_ms};
use std::time::Duration;
use tallystone_client::{
    Code, CounterClient, CounterType, Error, IdempotencyToken, Namespace, NamespaceConfig, NewAdd, NewClear, NewRecount,
};
use tallystone_lua::counter::{DELETED_FIELD, NAMESPACES};
use tallystone_tests::{TestRedis, http_client, patient_connection};
use tokio::time::{Instant, sleep};

/// Other servers follow within a second; the rest is for a loaded machine.
const FOLLOW: Duration = Duration::from_secs(3);
const COUNTERS: usize = 20_000;

fn quick(counter_type: CounterType) -> NamespaceConfig {
    NamespaceConfig {
        counter_type: Some(counter_type),
        coalesce_ms: Some(0),
        accept_limit_ms: Some(300),
        num_queues: Some(2),
        ..NamespaceConfig::default()
    }
}

fn reason(error: &Error) -> (Code, &str) {
    let refused = error.refused().unwrap_or_else(|| panic!("{error}"));
    (refused.code, refused.reason.as_str())
}

/// The keys of a namespace, of all its incarnations.
async fn keys(redis: &TestRedis, namespace: &str) -> Vec<String> {
    let mut connection = redis.connection().await;
    let pattern = format!("tc:{{{namespace}[/:]*");
    redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys")
}

#[tokio::test]
async fn n14_a_deleted_counter_is_gone_for_every_server_and_a_repeated_add_does_not_bring_it_back() {
    let house = House::with_rollups().await;
    let [one, other] = [&house.clients[0], &house.clients[1]];
    for (namespace, counter_type) in [("eventual", CounterType::Eventual), ("accurate", CounterType::Accurate)] {
        house.put(namespace, quick(counter_type)).await;
        let token = IdempotencyToken::now();
        let view = || NewAdd::new("c", 5).token(token.clone());
        assert!(!one.add(namespace, view()).await.expect("an add").duplicate);
        house.until_entry(namespace, "c", |entry| entry.count == 5).await;
        let deletion = NewClear::new("c").token(IdempotencyToken::now());
        let deleted = one.delete(namespace, deletion.clone()).await.expect("a deletion");
        assert!(!deleted.duplicate);
        for _ in 0..2 {
            let counted = other.get(namespace, "c").await.expect("a count");
            assert_eq!((counted.count, counted.exact_to_ms), (0, 0), "{namespace}");
            let from_ms = now_ms() - 3_600_000;
            let events = other.list_events(namespace, "c", from_ms, 0, 0, "").await.expect("events");
            assert!(events.items.is_empty(), "{events:?}");
            assert_eq!(house.entry(namespace, "c").await, None);
            assert!(other.add(namespace, view()).await.expect("an add").duplicate);
        }
        assert!(other.delete(namespace, deletion.clone()).await.expect("a repetition").duplicate);
        // Later adds count from 0, and a repetition of the deletion leaves them.
        let again = NewAdd::new("c", 2).token(IdempotencyToken::new("again", deleted.event_time_ms + 1));
        assert!(!other.add(namespace, again).await.expect("an add").duplicate);
        house.until_entry(namespace, "c", |entry| entry.count == 2).await;
        assert!(one.delete(namespace, deletion).await.expect("a repetition").duplicate);
        assert_eq!(house.count(1, namespace, "c").await.count, 2);
        let events = one.list_events(namespace, "c", now_ms() - 60_000, 0, 0, "").await.expect("events");
        assert_eq!(events.items.iter().map(|event| event.delta).collect::<Vec<i64>>(), [2]);
    }
    house.put("cached", quick(CounterType::BestEffort)).await;
    one.add("cached", NewAdd::new("c", 5)).await.expect("an add");
    one.delete("cached", NewClear::new("c")).await.expect("a deletion");
    assert_eq!(house.count(1, "cached", "c").await.count, 0);
    let unknown = one.delete("no such", NewClear::new("c")).await.expect_err("a refusal");
    assert_eq!(reason(&unknown), (Code::InvalidArgument, "INVALID_ARGUMENT"));
    let unknown = one.delete("unknown", NewClear::new("c")).await.expect_err("a refusal");
    assert_eq!(reason(&unknown), (Code::NotFound, "NAMESPACE_NOT_FOUND"));
}

/// Its shards refuse the revision that this server has.
#[tokio::test]
async fn n12_n14_a_server_that_has_not_read_a_change_recounts_and_deletes() {
    let house = House::with_rollups().await;
    let [one, other] = [&house.clients[0], &house.clients[1]];
    let config = |coalesce_ms| NamespaceConfig { coalesce_ms: Some(coalesce_ms), ..quick(CounterType::Eventual) };
    house.put("changed", config(0)).await;
    one.add("changed", NewAdd::new("c", 5)).await.expect("an add");
    house.until_entry("changed", "c", |entry| entry.count == 5).await;
    assert_eq!(other.get("changed", "c").await.expect("a count").count, 5);
    one.put_namespace("changed", config(1)).await.expect("changed");
    let recounted = other.recount("changed", "c", NewRecount::of_count(9, "a test")).await.expect("a recount");
    assert_eq!((recounted.old_count, recounted.new_count), (5, 14));
    one.put_namespace("changed", config(2)).await.expect("changed");
    other.delete("changed", NewClear::new("c")).await.expect("a deletion");
    assert_eq!(other.get("changed", "c").await.expect("a count").exact_to_ms, 0);
}

#[tokio::test]
async fn n14_a_deleted_namespace_refuses_adds_and_one_of_the_same_name_begins_empty() {
    let house = House::with_rollups().await;
    let [one, other] = [&house.clients[0], &house.clients[1]];
    house.put("ns", quick(CounterType::Accurate)).await;
    let token = IdempotencyToken::now();
    let view = || NewAdd::new("c", 5).token(token.clone());
    for client in [one, other] {
        client.add("ns", view()).await.expect("an add");
        client.add("ns", NewAdd::new("d", 1)).await.expect("an add");
    }
    house.until_entry("ns", "c", |entry| entry.count == 5).await;
    let first = one.get_namespace("ns").await.expect("a namespace");
    one.delete_namespace(&first).await.expect("deleted");
    // Through the other server, too, and at once.
    assert_eq!(reason(&other.add("ns", view()).await.expect_err("a refusal")), (Code::NotFound, "NAMESPACE_NOT_FOUND"));
    assert_eq!(reason(&one.get("ns", "c").await.expect_err("a refusal")), (Code::NotFound, "NAMESPACE_NOT_FOUND"));
    let give_up_at = Instant::now() + FOLLOW;
    while other.get("ns", "c").await.is_ok() {
        assert!(Instant::now() < give_up_at, "the other server still answers");
        sleep(POLL).await;
    }
    until(async || keys(&house.redis, "ns").await, |keys| keys.iter().all(|key| key.ends_with(":state"))).await;
    let queue = house.queue.as_ref().expect("a queue");
    until(async || queue.list_queues("rollup/ns", 100, "").await.expect("queues").items, Vec::is_empty).await;

    house.put("ns", quick(CounterType::Eventual)).await;
    let second = one.get_namespace("ns").await.expect("a namespace");
    assert!(second.incarnation > first.incarnation && second.revision == 1, "{second:?}");
    for via in [0, 1] {
        assert_eq!(house.count(via, "ns", "c").await.count, 0);
    }
    // A repetition of the deletion is one of the first namespace.
    other.delete_namespace(&first).await.expect("a repetition");
    // In another namespace the same event is another one.
    let late = IdempotencyToken::now();
    assert!(!other.add("ns", NewAdd::new("c", 7).token(late.clone())).await.expect("an add").duplicate);
    assert!(one.add("ns", NewAdd::new("c", 7).token(late)).await.expect("an add").duplicate);
    house.until_entry("ns", "c", |entry| entry.count == 7).await;
    assert_eq!(house.entry("ns", "d").await, None);
    let unknown = Namespace { incarnation: second.incarnation + 1, ..second };
    assert_eq!(
        reason(&one.delete_namespace(&unknown).await.expect_err("a refusal")),
        (Code::NotFound, "NAMESPACE_NOT_FOUND")
    );
}

/// The other server does not add to what was deleted, also where its adds do not check the revision.
#[tokio::test]
async fn n14_adds_through_every_server_count_once_a_namespace_was_created_again() {
    let house = House::with_rollups().await;
    let [one, other] = [&house.clients[0], &house.clients[1]];
    for (before, after) in
        [(CounterType::BestEffort, CounterType::Accurate), (CounterType::Accurate, CounterType::BestEffort)]
    {
        house.put("again", quick(before)).await;
        for client in [one, other] {
            client.add("again", NewAdd::new("c", 1)).await.expect("an add");
        }
        let first = one.get_namespace("again").await.expect("a namespace");
        one.delete_namespace(&first).await.expect("deleted");
        house.put("again", quick(after)).await;
        for _ in 0..3 {
            other.add("again", NewAdd::new("c", 10).token(IdempotencyToken::now())).await.expect("an add");
        }
        for via in [0, 1] {
            until(async || house.count(via, "again", "c").await.count, |count| *count == 30).await;
        }
        let second = one.get_namespace("again").await.expect("a namespace");
        one.delete_namespace(&second).await.expect("deleted");
    }
}

/// The server that deleted it has died before it closed the shards, and the caller repeats the call.
#[tokio::test]
async fn n14_a_repeated_deletion_returns_when_no_server_accepts_adds() {
    let house = House::without_rollups().await;
    house.put("half", quick(CounterType::Accurate)).await;
    for client in &house.clients {
        client.add("half", NewAdd::new("c", 1)).await.expect("an add");
    }
    let found = house.clients[0].get_namespace("half").await.expect("a namespace");
    let mut connection = house.redis.connection().await;
    let entry: Vec<u8> =
        redis::cmd("HGET").arg(NAMESPACES).arg("half").query_async(&mut connection).await.expect("an entry");
    let field = format!("{DELETED_FIELD}half:{}", found.incarnation);
    let deleted = [&now_ms().to_be_bytes()[2..], &[0], &entry[..]].concat();
    let mut script = redis::pipe();
    script.atomic().hset(NAMESPACES, field, deleted).hdel(NAMESPACES, "half");
    script.exec_async(&mut connection).await.expect("done");

    let http = http_client();
    let repeated = http.delete(format!("{}/v1/namespaces/half", house.urls[0])).send().await.expect("an answer");
    assert_eq!(repeated.status(), 404);
    for client in &house.clients {
        let refused = client.add("half", NewAdd::new("c", 1)).await.expect_err("deleted");
        assert_eq!(reason(&refused), (Code::NotFound, "NAMESPACE_NOT_FOUND"));
    }
}

/// Every server of counters is killed while a namespace of many counters is removed; those that follow continue.
#[tokio::test]
async fn n14_the_removal_of_a_namespace_goes_on_after_kill_9() {
    let mut machines = Machines::start(0).await;
    for (namespace, counter_type) in [("cached", CounterType::BestEffort), ("events", CounterType::Eventual)] {
        let config = NamespaceConfig { accept_limit_ms: Some(60_000), ..quick(counter_type) };
        machines.clients[0].put_namespace(namespace, config).await.expect("made");
        fill(&machines.clients[0], namespace).await;
        let found = machines.clients[0].get_namespace(namespace).await.expect("a namespace");
        let client = machines.clients[0].clone();
        let deleting = tokio::spawn(async move { client.delete_namespace(&found).await });
        sleep(Duration::from_millis(rand::random_range(0..60))).await;
        for server in &mut machines.counters {
            server.kill().await;
        }
        for server in &mut machines.counters {
            server.restart().await;
        }
        deleting.await.expect("no panic").expect("deleted");
        let redis = machines.redis.url();
        let left = async || {
            let client = redis::Client::open(redis.as_str()).expect("an address");
            let mut connection = patient_connection(&client).await.expect("a connection");
            let pattern = format!("tc:{{{namespace}[/:]*");
            let keys: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
            keys.into_iter().filter(|key| !key.ends_with(":state")).filter(|key| !key.ends_with(":layout")).count()
        };
        until(left, |left| *left == 0).await;
    }
}

async fn fill(client: &CounterClient, namespace: &str) {
    for batch in (0..COUNTERS).collect::<Vec<usize>>().chunks(1_000) {
        let adds = batch.iter().map(|number| NewAdd::new(format!("c{number}"), 1)).collect();
        for added in client.add_many(namespace, adds).await.expect("adds") {
            added.expect("an add");
        }
    }
}
