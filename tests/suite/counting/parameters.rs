//! Every parameter of a namespace takes effect, and a change of it reaches the other server and the worker while they run
//! (N1). Where events are and when they go: `retention`.

use super::house::{House, until};
use super::machines::listed;
use super::now_ms;
use std::collections::BTreeMap;
use std::time::Duration;
use tallystone_client::{
    Applied, Cardinality, Client, CounterType, Dequeue, Error, IdempotencyToken, NamespaceConfig, NewAdd, NewClear,
    NewMessage, QueueConfig,
};
use tallystone_workers::RollupStage;
use tokio::time::sleep;

const NS: &str = "ns";

/// Rolled up as soon as can be.
fn prompt() -> NamespaceConfig {
    NamespaceConfig { accept_limit_ms: Some(500), coalesce_ms: Some(0), ..NamespaceConfig::default() }
}

fn committed(house: &House, namespace: &str) -> usize {
    house.records(namespace).iter().filter(|record| record.stage == RollupStage::Committed).count()
}

async fn add(house: &House, namespace: &str, counter: &str, delta: i64) {
    house.clients[0].add(namespace, NewAdd::new(counter, delta)).await.expect("an add");
}

#[tokio::test]
async fn n4_what_a_full_store_refuses_is_unavailable_and_certainly_not_counted() {
    let house = House::without_rollups().await;
    house.put(NS, NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() }).await;
    let mut connection = house.redis.connection().await;
    let mut limit = async |bytes: u64| {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET").arg("maxmemory").arg(bytes).query_async::<()>(&mut connection).await.expect("a setting");
    };
    add(&house, NS, "c", 5).await;
    limit(1).await;
    let refused = house.clients[0].add(NS, NewAdd::new("c", 1)).await.expect_err("there is no room");
    assert!(matches!(refused, Error::Unavailable { applied: Applied::No, .. }), "{refused:?}");
    house.clients[0].clear(NS, NewClear::new("c")).await.expect("a clear needs none");
    limit(0).await;
    add(&house, NS, "c", 2).await;
    assert_eq!(house.count(0, NS, "c").await.count, 2);
}

/// More counters than go into one pipeline, some of them met twice, some that cannot take it.
#[tokio::test]
async fn n4_of_a_batch_each_item_has_its_own_answer() {
    const COUNTERS: i64 = 900;
    let house = House::without_rollups().await;
    for (namespace, ttl_ms) in [("kept", 0), ("brief", 3_600_000)] {
        let counter_type = Some(CounterType::BestEffort);
        house
            .put(namespace, NamespaceConfig { counter_type, ttl_ms: Some(ttl_ms), ..NamespaceConfig::default() })
            .await;
        let client = &house.clients[0];
        let name = |number: i64| format!("c{number:03}");
        let is_full = |number: i64| number % 100 == 50;
        for number in (0..COUNTERS).filter(|number| is_full(*number)) {
            client.add(namespace, NewAdd::new(name(number), i64::MAX - 1)).await.expect("an add");
        }
        // The first hundred again, by 1 each: that still fits a full one, what it got before does not.
        let numbers: Vec<i64> = (0..COUNTERS).chain(0..100).collect();
        let delta = |at: usize| if at < COUNTERS as usize { numbers[at] + 1 } else { 1 };
        let adds = numbers.iter().enumerate().map(|(at, number)| NewAdd::new(name(*number), delta(at)));
        let answers = client.add_many(namespace, adds.collect()).await.expect("answers");
        assert_eq!(answers.len(), numbers.len());
        for (at, answer) in answers.iter().enumerate() {
            // Together they are too much; one by one, in their order, what fits counts.
            let fits = !is_full(numbers[at]) || delta(at) == 1;
            let reason = answer.as_ref().err().map(|error| error.reason.clone());
            assert_eq!(reason, (!fits).then(|| "OVERFLOW".to_owned()), "{namespace} {at}");
        }
        let names: Vec<String> = (0..COUNTERS).map(name).collect();
        for (number, counted) in (0..).zip(client.get_many(namespace, names).await.expect("counts")) {
            let added = number + 1 + i64::from(number < 100);
            let count = if is_full(number) { i64::MAX - 1 + i64::from(number < 100) } else { added };
            assert_eq!(counted.expect("a count").count, count, "{namespace} {number}");
        }
    }
}

#[tokio::test]
async fn n4_best_effort_has_no_tokens_and_is_gone_after_its_ttl() {
    let house = House::without_rollups().await;
    let best_effort = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    house.put(NS, best_effort.clone()).await;
    let token = IdempotencyToken::new("t", now_ms());
    for (via, expected) in [(0, 5), (1, 10)] {
        let answer =
            house.clients[via].add_and_get(NS, NewAdd::new("c", 5).token(token.clone())).await.expect("an add");
        assert_eq!((answer.count, answer.added.duplicate, answer.added.event_time_ms), (expected, false, 0));
    }
    let counted = house.count(1, NS, "c").await;
    assert_eq!((counted.count, counted.exact_to_ms, counted.counter_type), (10, 0, CounterType::BestEffort));
    let over = house.clients[0].add(NS, NewAdd::new("c", i64::MAX)).await.expect_err("too much");
    assert_eq!(over.refused().expect("a refusal").reason, "OVERFLOW");
    assert_eq!(house.count(0, NS, "c").await.count, 10);
    // A clear deletes it.
    assert!(listed(&house.clients[1], NS).await.contains_key("c"));
    house.clients[1].clear(NS, NewClear::new("c")).await.expect("a clear");
    assert!(listed(&house.clients[0], NS).await.is_empty());
    assert_eq!(house.count(0, NS, "c").await.count, 0);

    // Without a TTL it stays; with one that the other server knows, it is removed.
    add(&house, NS, "kept", 1).await;
    house.put(NS, NamespaceConfig { ttl_ms: Some(300), ..best_effort }).await;
    let read = async || {
        house.clients[1].add(NS, NewAdd::new("brief", 1)).await.expect("an add");
        let mut connection = house.redis.connection().await;
        let found: Vec<String> = redis::cmd("KEYS").arg("*:cached:brief").query_async(&mut connection).await.unwrap();
        redis::cmd("PTTL").arg(&found[0]).query_async::<i64>(&mut connection).await.unwrap()
    };
    until(read, |ttl_ms| (1..=300).contains(ttl_ms)).await;
    until(async || house.count(1, NS, "brief").await.count, |count| *count == 0).await;
    assert_eq!(house.count(1, NS, "kept").await.count, 1);

    // And back: what was to go stays, with its next add through a server that knows it.
    let best_effort = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    house.put(NS, NamespaceConfig { ttl_ms: Some(3_600_000), ..best_effort.clone() }).await;
    add(&house, NS, "long", 1).await;
    house.put(NS, NamespaceConfig { ttl_ms: Some(0), ..best_effort }).await;
    add(&house, NS, "long", 1).await;
    let mut connection = house.redis.connection().await;
    let found: Vec<String> = redis::cmd("KEYS").arg("*:cached:long").query_async(&mut connection).await.unwrap();
    let ttl_ms: i64 = redis::cmd("PTTL").arg(&found[0]).query_async(&mut connection).await.unwrap();
    assert_eq!((ttl_ms, house.count(0, NS, "long").await.count), (-1, 2));
}

#[tokio::test]
async fn n5_n11_eventual_is_behind_and_accurate_is_not_and_one_can_become_the_other() {
    let house = House::with_rollups().await;
    house.put(NS, NamespaceConfig { counter_type: Some(CounterType::Eventual), ..prompt() }).await;
    let add_and_get = async |delta| {
        let answer = house.clients[0].add_and_get(NS, NewAdd::new("c", delta)).await;
        answer.expect("an add").count
    };
    assert_eq!(add_and_get(1).await, 0, "it is not rolled up yet");
    let counted = until(async || house.count(1, NS, "c").await, |counted| counted.count == 1).await;
    assert!(counted.exact_to_ms > 0 && counted.exact_to_ms <= now_ms(), "{counted:?}");
    assert_eq!(counted.counter_type, CounterType::Eventual);

    house.put(NS, NamespaceConfig { counter_type: Some(CounterType::Accurate), ..prompt() }).await;
    assert_eq!(add_and_get(10).await, 11);
    until(async || house.count(1, NS, "c").await.counter_type, |found| *found == CounterType::Accurate).await;
    for count in 12..40 {
        add(&house, NS, "c", 1).await;
        assert_eq!(house.count(1, NS, "c").await.count, count, "with everything that was acknowledged");
    }

    house.put(NS, NamespaceConfig { counter_type: Some(CounterType::Eventual), ..prompt() }).await;
    until(async || house.count(1, NS, "c").await.counter_type, |found| *found == CounterType::Eventual).await;
    until(async || house.count(1, NS, "c").await.count, |count| *count == 39).await;
}

#[tokio::test]
async fn n10_low_and_medium_cardinality_stay_in_circulation_and_high_does_not() {
    let house = House::with_rollups().await;
    let of = |cardinality| NamespaceConfig { cardinality: Some(cardinality), ..prompt() };
    for (namespace, cardinality) in
        [("low", Cardinality::Low), ("medium", Cardinality::Medium), ("high", Cardinality::High)]
    {
        house.put(namespace, of(cardinality)).await;
        add(&house, namespace, "c", 1).await;
    }
    let still = house.until_entry("high", "c", |entry| entry.count == 1).await;
    // Without adds and without reads it continues.
    for namespace in ["low", "medium"] {
        let mut exact_to_ms = 0;
        for _ in 0..4 {
            exact_to_ms = house.until_entry(namespace, "c", |entry| entry.exact_to_ms > exact_to_ms).await.exact_to_ms;
        }
        assert!(still.exact_to_ms < exact_to_ms);
        assert_eq!(house.entry("high", "c").await.as_ref(), Some(&still), "{namespace}");
    }
    // Changed at run time, from the next add on.
    house.put("high", of(Cardinality::Low)).await;
    add(&house, "high", "c", 1).await;
    let mut exact_to_ms = house.until_entry("high", "c", |entry| entry.count == 2).await.exact_to_ms;
    for _ in 0..2 {
        exact_to_ms = house.until_entry("high", "c", |entry| entry.exact_to_ms > exact_to_ms).await.exact_to_ms;
    }
}

#[tokio::test]
async fn n8_all_that_comes_within_coalesce_ms_is_one_rollup() {
    let house = House::with_rollups().await;
    house.put("eager", prompt()).await;
    house.put("lazy", NamespaceConfig { coalesce_ms: Some(3_000), ..prompt() }).await;
    let mut adds = 0;
    while committed(&house, "eager") < 10 {
        for namespace in ["eager", "lazy"] {
            add(&house, namespace, "c", 1).await;
        }
        adds += 1;
        sleep(Duration::from_millis(5)).await;
    }
    let (eager, lazy) = (committed(&house, "eager"), committed(&house, "lazy"));
    println!("{adds} adds: {eager} rollups at once, {lazy} of those that coalesce");
    assert!(lazy * 3 <= eager, "{lazy} of {eager}");
    // The change reaches the server that does not make it.
    let change = NamespaceConfig { coalesce_ms: Some(0), ..NamespaceConfig::default() };
    house.clients[1].put_namespace("lazy", change).await.expect("a change");
    for wanted in 1..=8 {
        add(&house, "lazy", "c", 1).await;
        let wanted = lazy + wanted;
        until(async || committed(&house, "lazy"), |committed| *committed >= wanted).await;
    }
}

/// The largest number of counters that the worker has begun with at once.
fn largest_batch(house: &House, from: usize) -> usize {
    let (mut largest, mut run) = (0, 0);
    for record in &house.records(NS)[from..] {
        run = if record.stage == RollupStage::Begin { run + 1 } else { 0 };
        largest = largest.max(run);
    }
    largest
}

#[tokio::test]
async fn n10_a_worker_rolls_up_rollup_batch_count_counters_at_once() {
    let house = House::with_rollups().await;
    for (batch_count, least) in [(4, 3), (64, 5)] {
        let config = NamespaceConfig { rollup_batch_count: Some(batch_count), num_queues: Some(1), ..prompt() };
        house.put(NS, config).await;
        let before = house.records(NS).len();
        let adds = |_| (0..500).map(|number| NewAdd::new(format!("c{number}"), 1)).collect::<Vec<_>>();
        // The worker reads it within about a second, and then takes more.
        let read = async || {
            house.clients[0].add_many(NS, adds(())).await.expect("adds");
            sleep(Duration::from_millis(200)).await;
            largest_batch(&house, before)
        };
        let largest = until(read, |largest| *largest >= least).await;
        println!("{largest} at once, of at most {batch_count}");
        if batch_count == 4 {
            assert!(largest <= 4);
        }
    }
}

#[tokio::test]
async fn n8_another_number_of_queues_takes_the_place_of_the_one_before() {
    let house = House::with_rollups().await;
    let queue = house.queue.clone().expect("a queue");
    let names = async || {
        let page = queue.list_queues("rollup/ns/", 1_000, "").await.expect("queues");
        page.items.into_iter().map(|found| found.queue.name).collect::<Vec<String>>()
    };
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for (via, num_queues) in [(0, 8_u32), (1, 2), (0, 3)] {
        let config = NamespaceConfig { num_queues: Some(num_queues), ..prompt() };
        house.clients[via].put_namespace(NS, config).await.expect("a change");
        let rollup_queues: Vec<String> =
            (0..num_queues).map(|number| format!("rollup/ns/{number}of{num_queues}")).collect();
        // Adds continue meanwhile: those whose jobs were in old queues are counted, too.
        let read = async || {
            let adds = (0..200).map(|number| NewAdd::new(format!("c{number}"), 1)).collect();
            let results = house.clients[1 - via].add_many(NS, adds).await.expect("adds");
            assert!(results.iter().all(Result::is_ok), "{results:?}");
            names().await
        };
        let adds = std::sync::atomic::AtomicI64::new(0);
        let counting = async || {
            adds.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            read().await
        };
        until(counting, |names| *names == rollup_queues).await;
        for number in 0..200 {
            *expected.entry(format!("c{number}")).or_default() += adds.load(std::sync::atomic::Ordering::Relaxed);
        }
        for (counter, count) in &expected {
            house.until_entry(NS, counter, |entry| entry.count == *count).await;
        }
    }
}

#[tokio::test]
async fn n8_a_number_of_queues_that_is_taken_back_takes_its_queues_up_again() {
    let house = House::without_worker().await;
    let queue = house.queue.clone().expect("a queue");
    let config = |num_queues| NamespaceConfig { num_queues: Some(num_queues), ..prompt() };
    let blocked = async |name: &str| queue.get_queue(name).await.ok().and_then(|found| found.config.dequeue_blocked);
    house.put(NS, config(2)).await;
    until(async || blocked("rollup/ns/1of2").await, |blocked| *blocked == Some(false)).await;
    // What is leased keeps the old queue from going.
    queue.enqueue("rollup/ns/0of2", vec![NewMessage::new("c", "").metadata("counter", "c")]).await.expect("a job");
    let leased = queue.dequeue(Dequeue::new("rollup/ns/0of2").lease_ms(600_000)).await.expect("a lease");
    assert_eq!(leased.len(), 1);
    house.put(NS, config(4)).await;
    until(async || blocked("rollup/ns/0of2").await, |blocked| *blocked == Some(true)).await;
    house.put(NS, config(2)).await;
    until(async || blocked("rollup/ns/0of2").await, |blocked| *blocked == Some(false)).await;
    // What an operator has paused stays paused.
    let pause = QueueConfig { dequeue_blocked: Some(true), ..QueueConfig::default() };
    queue.update_queue("rollup/ns/1of2", pause).await.expect("a change");
    house.put(NS, NamespaceConfig { capacity_bytes: Some(1_024_000), ..config(2) }).await;
    let reply = async || queue.get_queue("rollup/ns/1of2").await.expect("a queue").config;
    let reply = until(reply, |config| config.max_depth == Some(2_000)).await;
    assert_eq!(reply.dequeue_blocked, Some(true));
}

/// What a rollup queue may hold.
async fn max_depth(queue: &Client) -> Option<u64> {
    queue.get_queue("rollup/ns/0of1").await.ok().and_then(|found| found.config.max_depth)
}

#[tokio::test]
async fn n1_capacity_bytes_bounds_what_waits_in_a_queue() {
    let house = House::with_rollups().await;
    let queue = house.queue.clone().expect("a queue");
    let config = NamespaceConfig { num_queues: Some(1), capacity_bytes: Some(1_024), ..prompt() };
    house.put(NS, config).await;
    until(async || max_depth(&queue).await, |found| *found == Some(2)).await;
    // So little room costs time, and loses nothing.
    let adds = (0..20).map(|number| NewAdd::new(format!("c{number}"), 7)).collect();
    house.clients[0].add_many(NS, adds).await.expect("adds");
    for number in 0..20 {
        house.until_entry(NS, &format!("c{number}"), |entry| entry.count == 7).await;
    }
    let more = NamespaceConfig { capacity_bytes: Some(1_024_000), ..NamespaceConfig::default() };
    house.clients[1].put_namespace(NS, more).await.expect("a change");
    until(async || max_depth(&queue).await, |found| *found == Some(2_000)).await;
}

#[tokio::test]
async fn n6_accept_limit_ms_holds_at_once_for_every_server() {
    let house = House::without_rollups().await;
    let reply = async |via: usize, token: &str, time_ms: u64| {
        let add = NewAdd::new("c", 1).token(IdempotencyToken::new(token, time_ms));
        match house.clients[via].add(NS, add).await {
            Ok(added) => format!("{}", added.duplicate),
            Err(error) => error.refused().unwrap_or_else(|| panic!("{error}")).reason.clone(),
        }
    };
    let mut closed = Vec::new();
    for (round, accept_limit_ms) in [60_000_u64, 20_000, 6_000].into_iter().enumerate() {
        let config = NamespaceConfig { accept_limit_ms: Some(accept_limit_ms), ..NamespaceConfig::default() };
        house.clients[round % 2].put_namespace(NS, config).await.expect("a change");
        for via in [1 - round % 2, round % 2] {
            // Some seconds are left to a machine that has much to do.
            let (token, open_ms) = (format!("{round} {via}"), now_ms() - accept_limit_ms + 5_000);
            assert_eq!(reply(via, &token, open_ms).await, "false", "{accept_limit_ms}");
            let (token, closed_ms) = (format!("{round} {via} late"), now_ms() - accept_limit_ms - 1);
            assert_eq!(reply(via, &token, closed_ms).await, "TOO_OLD", "{accept_limit_ms}");
            closed.push((token, closed_ms));
        }
    }
    // A longer limit counts no event that was refused as certainly not counted.
    house.put(NS, NamespaceConfig { accept_limit_ms: Some(600_000), ..NamespaceConfig::default() }).await;
    for (token, closed_ms) in closed {
        assert_eq!(reply(1, &token, closed_ms).await, "TOO_OLD", "{token}");
    }
}

#[tokio::test]
async fn n3_close_after_ms_ends_what_is_known_of_a_token() {
    let house = House::without_rollups().await;
    let reply = async |via: usize, behind_ms: u64| {
        let add = NewAdd::new("c", 1).token(IdempotencyToken::new("t", now_ms() - behind_ms));
        let error = house.clients[via].add(NS, add).await.expect_err("an old one");
        error.refused().unwrap_or_else(|| panic!("{error}")).reason.clone()
    };
    house.put(NS, NamespaceConfig { accept_limit_ms: Some(1_000), ..NamespaceConfig::default() }).await;
    assert_eq!(reply(1, 61_000).await, "TOO_OLD");
    house.put(NS, NamespaceConfig { close_after_ms: Some(60_000), ..NamespaceConfig::default() }).await;
    for via in [1, 0] {
        assert_eq!(reply(via, 61_000).await, "TOKEN_EXPIRED");
        assert_eq!(reply(via, 30_000).await, "TOO_OLD");
    }
}
