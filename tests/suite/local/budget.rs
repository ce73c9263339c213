//! Budgets of several processes on one counter (L4): kill -9 of processes that take, and of the service.
//! `TALLYSTONE_TEST_LONG` makes the random tests ten times as long.

use super::service::Service;
use super::spender::{self, GRANT_MAX, NS, client, options, units};
use super::{POLL, namespace};
use crate::counting::house::{House, until};
use crate::crash::seed;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_client::budget::{Budget, BudgetStats, TakeError};
use tallystone_client::local::{LocalCounters, LocalOptions};
use tallystone_client::{CounterClient, CounterType, NamespaceConfig, NewAdd};
use tallystone_tests::Network;
use tallystone_tests::amount;
use tempfile::TempDir;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

const COUNTER: &str = "campaign-7";
/// Longer than any outage here.
const WITHIN: Duration = Duration::from_secs(60);
const KILLS: u64 = 24;
/// Processes that take at the same time, and as many budgets in the process of the test.
const PROCESSES: u64 = 2;
const OUTAGES: u64 = 6;

fn bounded() -> NamespaceConfig {
    NamespaceConfig { buckets_per_id: Some(1), ..namespace(CounterType::Accurate) }
}

async fn service() -> Service {
    let service = Service::start().await;
    service.client.put_namespace(NS, bounded()).await.expect("a new namespace");
    service
}

async fn count(client: &CounterClient) -> i64 {
    client.get(NS, COUNTER).await.expect("a count").count
}

fn open(client: &CounterClient, limit: i64) -> Budget {
    Budget::open(client, NS, COUNTER, limit, options()).expect("good options")
}

/// Takes from a budget until it is over, then closes it. Returns what it has taken as it was answered.
async fn spend(budget: Budget, is_over: Arc<AtomicBool>) -> (u64, BudgetStats) {
    let mut taken = 0;
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let units = units(number);
        match budget.take(units, Duration::from_millis(100)).await {
            Ok(()) => taken += units.cast_unsigned(),
            Err(_) => sleep(Duration::from_millis(5)).await,
        }
        if number % 100 == 99 {
            sleep(Duration::from_millis(1)).await;
        }
    }
    budget.close(WITHIN).await.expect("the service is there again");
    (taken, budget.stats())
}

/// Compares the count with the limit until it is over. Returns the highest one.
fn watch(client: CounterClient, limit: i64, is_over: Arc<AtomicBool>) -> JoinHandle<i64> {
    tokio::spawn(async move {
        let mut highest = 0;
        while !is_over.load(Ordering::SeqCst) {
            highest = highest.max(count(&client).await);
            assert!(highest <= limit, "{highest} are granted of {limit}");
            sleep(Duration::from_millis(2)).await;
        }
        highest
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_n18_takes_of_processes_that_are_killed_never_pass_the_limit() {
    let (mut rng, kills) = (StdRng::seed_from_u64(seed()), amount(KILLS, 10 * KILLS));
    // So much that it is reached while processes are killed.
    let limit = 4_000 * kills.cast_signed();
    let (service, dir) = (service().await, TempDir::new().expect("a temporary folder"));
    let (url, is_over) = (service.counters.url(), Arc::new(AtomicBool::new(false)));
    let watched = watch(service.client.clone(), limit, is_over.clone());
    let mut here = JoinSet::new();
    for _ in 0..PROCESSES {
        here.spawn(spend(open(&client(&url), limit), is_over.clone()));
    }
    let start = |life| spender::start(&url, dir.path(), COUNTER, limit, life);
    let mut lives: Vec<_> = (0..PROCESSES).map(|life| (life, start(life))).collect();
    for next in PROCESSES..PROCESSES + kills {
        let (life, mut process) = lives.remove(0);
        let has_taken = async || spender::taken(dir.path(), life).0;
        if count(&service.client).await < limit / 2 {
            until(has_taken, |taken| *taken > 0).await;
        }
        sleep(Duration::from_micros(rng.random_range(0..150_000))).await;
        assert!(process.try_wait().expect("a child").is_none(), "it has ended, see above");
        process.kill().await.expect("a child");
        lives.push((next, start(next)));
    }
    // The rest is taken by those that live.
    until(async || count(&service.client).await, |count| *count >= limit - 3).await;
    for (_, process) in &mut lives {
        process.kill().await.expect("a child");
    }
    is_over.store(true, Ordering::SeqCst);
    let highest = watched.await.expect("the limit holds");
    let taken_here: u64 = here.join_all().await.into_iter().map(|(taken, _)| taken).sum();
    let killed = (0..PROCESSES + kills).map(|life| spender::taken(dir.path(), life));
    let (certain, possible) = killed.fold((0, 0), |sum, life| (sum.0 + life.0, sum.1 + life.1));
    let counted = count(&service.client).await.cast_unsigned();
    println!(
        "{taken_here} taken here, {certain} to {possible} by killed processes, {counted} counted, {highest} at most"
    );
    assert!(taken_here + certain <= counted, "more is taken than granted");
    // What a process holds and what it requests are together at most a largest grant.
    let lost_max = (PROCESSES + kills) * GRANT_MAX.cast_unsigned() + possible - certain;
    assert!(counted - taken_here - certain <= lost_max, "more is lost than was held");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_n18_after_all_have_closed_what_is_granted_is_what_was_taken_though_the_service_was_killed() {
    let (mut rng, outages) = (StdRng::seed_from_u64(seed()), amount(OUTAGES, 10 * OUTAGES));
    let limit = 1_000_000_000;
    let mut service = service().await;
    let (url, is_over) = (service.counters.url(), Arc::new(AtomicBool::new(false)));
    // Two of them reach the service through a network that loses answers.
    let network = Network::to(&url).await;
    let mut spenders = JoinSet::new();
    for url in [&url, &url, &network.url(), &network.url()] {
        spenders.spawn(spend(open(&client(url), limit), is_over.clone()));
    }
    for outage in 0..outages {
        sleep(Duration::from_micros(rng.random_range(100_000..300_000))).await;
        for _ in 0..5 {
            network.shut();
            sleep(Duration::from_micros(rng.random_range(0..20_000))).await;
            network.open();
            sleep(Duration::from_micros(rng.random_range(0..100_000))).await;
        }
        let pause = Duration::from_millis(rng.random_range(0..200));
        match outage % 3 {
            0 => {
                service.redis.kill().await;
                sleep(pause).await;
                service.redis.restart().await;
            }
            1 => {
                service.counters.kill().await;
                sleep(pause).await;
                service.counters.restart().await;
            }
            // So long that calls without an answer are too old, or are counted when the service continues.
            _ => {
                service.signal_counters(Signal::SIGSTOP);
                sleep(super::ACCEPT_LIMIT + Duration::from_millis(500)).await;
                service.signal_counters(Signal::SIGCONT);
            }
        }
        let before = count(&service.client).await;
        until(async || count(&service.client).await, |count| *count > before).await;
    }
    is_over.store(true, Ordering::SeqCst);
    let spent = spenders.join_all().await;
    println!("{spent:?}");
    for (taken, stats) in &spent {
        assert_eq!((*taken, 0, 0), (stats.taken, stats.left, stats.written_off));
    }
    let taken: u64 = spent.iter().map(|(taken, _)| taken).sum();
    assert_eq!(count(&service.client).await.cast_unsigned(), taken, "granted, and taken");
}

async fn house() -> House {
    let house = House::without_rollups().await;
    house.put(NS, bounded()).await;
    house
}

/// Takes one unit after the other until the budget is exhausted.
async fn take_all(budget: &Budget) -> i64 {
    let mut taken = 0;
    loop {
        match budget.take(1, WITHIN).await {
            Ok(()) => taken += 1,
            Err(TakeError::Exhausted) => return taken,
            Err(error) => panic!("{error:?} after {taken}: {:?}", budget.stats()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_n18_instances_take_exactly_the_limit_and_then_what_it_is_raised_by() {
    let house = house().await;
    let budgets: Vec<Budget> = (0..4).map(|number| open(&house.clients[number % 2], 10_000)).collect();
    for limit in [10_000, 10_500] {
        let before = count(&house.clients[0]).await;
        for budget in &budgets {
            budget.set_limit(limit).expect("a limit");
        }
        let taken: i64 = futures::future::join_all(budgets.iter().map(take_all)).await.into_iter().sum();
        assert_eq!((taken, count(&house.clients[1]).await), (limit - before, limit));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_n18_what_one_instance_gives_back_another_one_takes() {
    let house = house().await;
    let first = open(&house.clients[0], 100);
    first.take(80, WITHIN).await.expect("a grant");
    // It is at its low water, so it gets some more.
    until(async || first.stats().left, |left| *left > 0).await;
    let second = open(&house.clients[1], 100);
    let taken = take_all(&second).await;
    assert!(taken < 20, "{taken}: the first one holds something");
    first.close(WITHIN).await.expect("an answer");
    until(async || second.try_take(1).is_ok(), |is_taken| *is_taken).await;
    assert_eq!(taken + 1 + take_all(&second).await, 20);
    assert_eq!(count(&house.clients[0]).await, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_n18_a_clear_makes_room_and_a_namespace_without_bounds_is_reported() {
    let house = house().await;
    let budget = open(&house.clients[0], 50);
    assert_eq!(take_all(&budget).await, 50);
    house.clients[1].clear(NS, tallystone_client::NewClear::new(COUNTER)).await.expect("a clear");
    until(async || budget.try_take(1).is_ok(), |is_taken| *is_taken).await;
    assert_eq!(take_all(&budget).await, 49);
    house.put("spread", namespace(CounterType::Accurate)).await;
    house.put("eventual", namespace(CounterType::Eventual)).await;
    for (namespace, expected) in [("spread", "buckets_per_id"), ("eventual", "ACCURATE"), ("unknown", "unknown")] {
        let budget = Budget::open(&house.clients[0], namespace, COUNTER, 50, options()).expect("good options");
        let error = async || budget.stats().last_error.unwrap_or_default();
        until(error, |error| error.contains(expected)).await;
        assert_eq!(budget.try_take(1), Err(TakeError::NotGranted));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_a_reading_answers_whether_a_limit_is_passed_and_how_certain_that_is() {
    let (house, dir) = (house().await, TempDir::new().expect("a temporary folder"));
    let mut options = LocalOptions::default();
    (options.pull_interval_ms, options.others_per_s_max, options.slots_max) = (1_000_000, 1_000, 64);
    let counters = LocalCounters::open(dir.path(), house.clients[0].clone(), options).await.expect("a folder");
    let shown = counters.counter(NS, COUNTER).expect("room");
    assert!(!shown.get().check_limit(1, 10_000).is_certain, "never pulled");
    house.clients[1].add(NS, NewAdd::new(COUNTER, 5_000)).await.expect("an add");
    counters.pull().await.expect("a count");
    shown.add(10);
    // A thousand a second for the two seconds that an add may take: far from the limit it is certain.
    let check = |units: i64| shown.get().check_limit(units, 100_000);
    assert!(check(1).is_certain && !check(1).passes);
    assert!(!check(94_990).passes && !check(94_990).is_certain);
    assert!(check(94_991).passes && !check(94_991).is_certain);
    let far = shown.get().check_limit(1_000_000, 100_000);
    assert!(far.passes && far.is_certain && far.error_bound >= Some(2_000), "{far:?}");
    assert_eq!(count(&house.clients[1]).await, 5_000, "nothing is reserved");
    sleep(POLL).await;
    counters.close().await.expect("a push");
}
