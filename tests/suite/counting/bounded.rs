//! Conditional adds of many callers at once (N18): through several servers, while these and primaries die.

use super::cluster::CONFIG;
use super::house::{House, until};
use super::machines::Machines;
use crate::crash::cluster::{Cluster, Fault};
use crate::system::program::SOON;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_client::{Code, CounterClient, CounterType, Error, NamespaceConfig, NewAdd};
use tokio::task::JoinSet;
use tokio::time::timeout;

const NS: &str = "shop";
/// Counters, each in a partition, and how many items each has.
const COUNTERS: u64 = 12;
const ITEMS: u64 = 400;

fn bounded() -> NamespaceConfig {
    NamespaceConfig { counter_type: Some(CounterType::Accurate), buckets_per_id: Some(1), ..NamespaceConfig::default() }
}

/// Takes one item, if one is there.
async fn take(client: &CounterClient, counter: &str) -> Result<(), Error> {
    client.add(NS, NewAdd::new(counter, -1).min(0)).await.map(drop)
}

/// Whether an add was refused for this reason.
fn is_refused_as(error: &Error, reason: &str) -> bool {
    error.refused().is_some_and(|refused| refused.reason == reason)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n18_a_hundred_callers_take_the_last_item_once() {
    let house = House::without_rollups().await;
    house.put(NS, bounded()).await;
    for round in 0..20 {
        house.clients[round % 2].add(NS, NewAdd::new("stock", 1)).await.expect("an item");
        let mut callers = JoinSet::new();
        for via in 0..100 {
            let client = house.clients[via % 2].clone();
            callers.spawn(async move { take(&client, "stock").await });
        }
        let (taken, refused): (Vec<_>, Vec<_>) = callers.join_all().await.into_iter().partition(Result::is_ok);
        assert_eq!(taken.len(), 1, "in round {round}");
        for refused in refused {
            let error = refused.expect_err("nothing is left");
            let refused = error.refused().expect("an answer of the service");
            assert_eq!((refused.code, refused.reason.as_str()), (Code::FailedPrecondition, "BOUND_REACHED"));
            assert_eq!(refused.metadata.get("count").map(String::as_str), Some("0"));
        }
        assert_eq!(house.count(round % 2, NS, "stock").await.count, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n18_the_items_of_a_batch_are_held_against_those_before_them() {
    let house = House::without_rollups().await;
    house.put(NS, bounded()).await;
    house.clients[0].add(NS, NewAdd::new("stock", 3)).await.expect("items");
    let takes = (0..5).map(|_| NewAdd::new("stock", -1).min(0)).chain([NewAdd::new("other", 1)]).collect();
    let results = house.clients[0].add_many(NS, takes).await.expect("a call");
    let taken = results.iter().map(Result::is_ok).collect::<Vec<bool>>();
    assert_eq!(taken, [true, true, true, false, false, true]);
}

/// Takes items of all counters until none is left, and returns how many it got of each.
async fn buy(clients: Vec<CounterClient>, first: u64, sold: Arc<AtomicU64>) -> BTreeMap<u64, u64> {
    let (mut bought, mut left): (BTreeMap<u64, u64>, Vec<u64>) = (BTreeMap::new(), (0..COUNTERS).collect());
    for step in first.. {
        if left.is_empty() {
            break;
        }
        let number = left[step as usize % left.len()];
        match take(&clients[step as usize % clients.len()], &format!("stock/{number}")).await {
            Ok(()) => {
                *bought.entry(number).or_default() += 1;
                sold.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) if is_refused_as(&error, "BOUND_REACHED") => left.retain(|other| *other != number),
            // It came so late that it certainly has not counted.
            Err(error) if is_refused_as(&error, "TOO_OLD") => {}
            Err(error) => panic!("a call without an answer: {error:?}"),
        }
    }
    bought
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n18_x1_each_item_is_sold_once_though_servers_and_primaries_die() {
    let cluster = Cluster::start().await;
    let url = cluster.url();
    let mut machines = Machines::start_on(cluster, url, CONFIG, 1).await;
    machines.clients[0].put_namespace(NS, bounded()).await.expect("a new namespace");
    for number in 0..COUNTERS {
        let items = NewAdd::new(format!("stock/{number}"), ITEMS.cast_signed());
        machines.clients[0].add(NS, items).await.expect("items");
    }
    let (sold, mut buyers) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
    for number in 0..8 {
        buyers.spawn(buy(machines.clients.clone(), number * 7, sold.clone()));
    }
    for (round, fault) in [(0, Fault::Killed), (1, Fault::Frozen), (2, Fault::Killed)] {
        until(async || sold.load(Ordering::SeqCst), |sold| *sold >= (round + 1) * COUNTERS * ITEMS / 5).await;
        let server = &mut machines.counters[round as usize % 2];
        server.kill().await;
        server.restart().await;
        machines.redis.strike(round as usize, fault).await;
    }
    let mut bought: BTreeMap<u64, u64> = BTreeMap::new();
    for of_buyer in timeout(2 * SOON, buyers.join_all()).await.expect("every buyer ends") {
        for (number, items) in of_buyer {
            *bought.entry(number).or_default() += items;
        }
    }
    assert_eq!(bought, (0..COUNTERS).map(|number| (number, ITEMS)).collect());
    for number in 0..COUNTERS {
        let count = machines.clients[1].get(NS, &format!("stock/{number}")).await.expect("a count").count;
        assert_eq!(count, 0, "of stock/{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n18_every_server_allows_bounds_as_soon_as_the_namespace_does() {
    let house = House::without_rollups().await;
    for round in 1..=5 {
        house.put(NS, NamespaceConfig { counter_type: Some(CounterType::Eventual), ..bounded() }).await;
        house.clients[1].add(NS, NewAdd::new("c", 1)).await.expect("an add, so the server knows the namespace");
        let refused = house.clients[1].add(NS, NewAdd::new("c", 1).max(1_000)).await.expect_err("it is EVENTUAL");
        assert!(is_refused_as(&refused, "INVALID_ARGUMENT"), "{refused:?}");
        house.put(NS, bounded()).await;
        house.clients[1].add(NS, NewAdd::new("c", 1).max(1_000)).await.expect("it is ACCURATE now");
        assert_eq!(house.count(1, NS, "c").await.count, 2 * round);
    }
}
