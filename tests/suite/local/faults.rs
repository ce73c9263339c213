//! The service, its Redis and the process that adds, killed and stopped under pushes (L2). `TALLYSTONE_TEST_LONG` makes the random test ten
//! times as long.

use super::ACCEPT_LIMIT;
use super::adder;
use super::folder::{Folder, until_counted, until_pushed};
use super::service::Service;
use crate::crash::seed;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_client::local::{LocalCounters, Steps};
use tallystone_tests::amount;
use tokio::time::sleep;

const ROUNDS: u64 = 6;
/// Beyond the accept limit and what servers add to it.
const TOO_LONG: Duration = Duration::from_millis(ACCEPT_LIMIT.as_millis() as u64 + 500);

#[derive(Clone, Copy, Debug)]
enum Victim {
    Redis,
    Counters,
    /// The counters, for so long that what is being pushed is too old.
    Stopped,
    /// Redis, the counters, and the process that adds, which starts again while both are unavailable.
    All,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_nothing_is_lost_or_doubled_while_the_service_and_its_redis_are_killed() {
    let (mut rng, rounds) = (StdRng::seed_from_u64(seed()), amount(ROUNDS, 10 * ROUNDS));
    let mut service = Service::start().await;
    let url = service.counters.url();
    let mut folder = Folder::new("faults");
    for round in 0..rounds {
        let mut process = adder::start(&url, folder.dir.path(), &folder.prefix, 2 * round, None);
        adder::until_open(&mut process, folder.dir.path()).await;
        let victim = [Victim::Redis, Victim::Counters, Victim::Stopped, Victim::All][(round % 4) as usize];
        println!("round {round}: {victim:?}");
        sleep(Duration::from_micros(rng.random_range(0..150_000))).await;
        // Now and then so long that what was being pushed is too old.
        let pause = if rng.random_bool(0.3) { TOO_LONG } else { Duration::from_millis(rng.random_range(0..200)) };
        match victim {
            Victim::Redis => {
                service.redis.kill().await;
                sleep(pause).await;
                service.redis.restart().await;
            }
            Victim::Counters => {
                service.counters.kill().await;
                sleep(pause).await;
                service.counters.restart().await;
            }
            Victim::Stopped => {
                service.signal_counters(Signal::SIGSTOP);
                sleep(TOO_LONG).await;
                service.signal_counters(Signal::SIGCONT);
            }
            Victim::All => {
                service.redis.kill().await;
                service.counters.kill().await;
                process.kill().await.expect("a child");
                folder.ended(2 * round);
                process = adder::start(&url, folder.dir.path(), &folder.prefix, 2 * round + 1, None);
                sleep(pause).await;
                service.redis.restart().await;
                service.counters.restart().await;
            }
        }
        sleep(Duration::from_micros(rng.random_range(0..150_000))).await;
        process.kill().await.expect("a child");
        adder::has_opened(folder.dir.path());
        folder.ended(if matches!(victim, Victim::All) { 2 * round + 1 } else { 2 * round });
        folder.settle(&service.client).await;
    }
    folder.until_rolled_up(&service.client).await;
    println!("{} adds, {} in the middle of an add", folder.adds, folder.in_flight);
}

/// With observed steps, and a client that does not wait for the service.
async fn open(folder: &Folder, url: &str, renewed: &Arc<AtomicUsize>) -> LocalCounters {
    let builder = CounterClient::builder(url).call_timeout(Duration::from_millis(500));
    let mut options = adder::options();
    // Pushes happen when the test requests them.
    options.push_interval_ms = 1_000_000;
    let renewed = renewed.clone();
    options.steps = Steps::observed_by(move |step| {
        renewed.fetch_add(usize::from(step == "a push has a new time"), Ordering::SeqCst);
    });
    let client = builder.connect_lazy().expect("an address");
    LocalCounters::open(folder.path(), client, options).await.expect("a folder")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_a_push_that_has_become_too_old_gets_a_new_time_and_counts_once() {
    let mut service = Service::start().await;
    let (folder, renewed) = (Folder::new("old"), Arc::new(AtomicUsize::new(0)));
    let mut counters = open(&folder, &service.counters.url(), &renewed).await;
    let handles = ["accurate", "eventual"].map(|namespace| counters.counter(namespace, "old").expect("room"));
    for handle in &handles {
        handle.add(1);
    }
    until_pushed(&counters).await;
    // The push is written, and no call arrives.
    service.counters.kill().await;
    for handle in &handles {
        handle.add(10);
    }
    counters.push().await.expect_err("no service");
    for handle in &handles {
        handle.add(100);
    }
    sleep(TOO_LONG).await;
    service.counters.restart().await;
    until_pushed(&counters).await;
    assert_eq!(renewed.swap(0, Ordering::SeqCst), 2, "a push of each namespace");
    // The calls arrive, their answers come too late, and another process repeats them when they would be too old.
    service.signal_counters(Signal::SIGSTOP);
    for handle in &handles {
        handle.add(1_000);
    }
    counters.push().await.expect_err("no answer in time");
    service.signal_counters(Signal::SIGCONT);
    drop(handles);
    drop(counters.close().await);
    sleep(TOO_LONG).await;
    counters = open(&folder, &service.counters.url(), &renewed).await;
    until_pushed(&counters).await;
    println!("{} of 2 pushes were renewed after the stop", renewed.load(Ordering::SeqCst));
    counters.close().await.expect("nothing is left");
    assert_eq!(service.client.get("accurate", "old").await.expect("a count").count, 1_111);
    until_counted(&service.client, "eventual", "old", 1_111).await;
}
