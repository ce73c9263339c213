//! The error bound while programs add at declared rates, and one of them is cut off for a while (L1).

use super::namespace;
use crate::counting::house::{House, until};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tallystone_client::local::{Handle, LocalCounters, LocalOptions};
use tallystone_client::{CounterClient, CounterType};
use tallystone_tests::Network;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const NS: &str = "ns";
const COUNTER: &str = "c";
/// Others that add.
const OTHERS: usize = 2;
/// Each of them adds this, and then pauses for so long: a busy machine makes the pause longer by a small part.
const DELTA: i64 = 70;
const PAUSE: Duration = Duration::from_millis(10);
/// What is declared.
const OTHERS_PER_S: u64 = OTHERS as u64 * 100 * DELTA as u64;
const OTHERS_DELAY_MS: u64 = 1_500;
const INTERVAL_MS: u64 = 100;
/// An error of this share of its bound is near it. The rest of the bound is the declared delay of the others: the longer the reader is
/// cut off, the smaller is its part. On a quiet machine the share is there after about 5 s.
const NEAR: f64 = 0.7;
const NEAR_LIMIT: Duration = Duration::from_secs(40);
/// Attempts on a machine that hangs for longer than is declared.
const ATTEMPTS: usize = 3;

/// What all programs together have added.
#[derive(Default)]
struct Truth {
    begun: AtomicI64,
    ended: AtomicI64,
    is_over: AtomicBool,
}

async fn open(dir: &Path, url: &str) -> LocalCounters {
    let client = CounterClient::builder(url).call_timeout(Duration::from_millis(500)).connect_lazy();
    let mut options = LocalOptions::default();
    (options.push_interval_ms, options.pull_interval_ms) = (INTERVAL_MS, INTERVAL_MS);
    (options.others_per_s_max, options.others_delay_ms) = (OTHERS_PER_S, OTHERS_DELAY_MS);
    options.slots_max = 64;
    LocalCounters::open(dir, client.expect("an address"), options).await.expect("a folder")
}

/// A thread that adds at no more than its rate, whatever the machine does.
fn add(handle: Handle, truth: Arc<Truth>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        while !truth.is_over.load(Ordering::SeqCst) {
            truth.begun.fetch_add(DELTA, Ordering::SeqCst);
            handle.add(DELTA);
            truth.ended.fetch_add(DELTA, Ordering::SeqCst);
            std::thread::sleep(PAUSE);
        }
    })
}

/// What the readings have shown.
#[derive(Debug, Default)]
struct Seen {
    readings: u64,
    /// The largest error, and the largest share of its bound that one has used.
    error_max: u64,
    share_max: f64,
    bound_max: u64,
    wrong: Option<String>,
}

impl Seen {
    /// Reads for so long, now and then.
    async fn watch(&mut self, handle: &Handle, truth: &Truth, time: Duration) {
        self.watch_until(handle, truth, time, f64::INFINITY).await;
    }

    /// The same, or until an error has used this share of its bound.
    async fn watch_until(&mut self, handle: &Handle, truth: &Truth, time: Duration, share: f64) {
        let end = Instant::now() + time;
        while Instant::now() < end && self.share_max < share {
            let least = truth.ended.load(Ordering::SeqCst);
            let reading = handle.get();
            let most = truth.begun.load(Ordering::SeqCst);
            if let Some(bound) = reading.error_bound {
                // What is certainly wrong: the truth was between the two.
                let error = (least - reading.value).max(reading.value - most).max(0).cast_unsigned();
                self.readings += 1;
                self.error_max = self.error_max.max(error);
                self.bound_max = self.bound_max.max(bound);
                self.share_max = self.share_max.max(error as f64 / bound.max(1) as f64);
                if error > bound {
                    self.wrong.get_or_insert(format!("{least} to {most} were added: {reading:?}"));
                }
            }
            sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Returns what was seen, and the longest time that an add of the others took to the service, in ms.
async fn attempt(counter_type: CounterType) -> (Seen, u64) {
    let house = House::with_rollups().await;
    house.put(NS, namespace(counter_type)).await;
    let dir = TempDir::new().expect("a temporary folder");
    let (network, reader_network) = (Network::to(&house.urls[0]).await, Network::to(&house.urls[1]).await);
    let urls = [network.url(), house.urls[1].clone()];
    let (truth, mut others, mut adders) = (Arc::new(Truth::default()), Vec::new(), Vec::new());
    for (number, url) in urls.iter().enumerate() {
        let counters = open(&dir.path().join(number.to_string()), url).await;
        adders.push(add(counters.counter(NS, COUNTER).expect("room"), truth.clone()));
        others.push(counters);
    }
    let reader = open(&dir.path().join("reader"), &reader_network.url()).await;
    let handle = reader.counter(NS, COUNTER).expect("room");
    // Its own adds are always in its value, however many they are.
    adders.push(add(handle.clone(), truth.clone()));
    let (mut seen, delay_ms) = (Seen::default(), Arc::new(AtomicU64::new(0)));
    let watched = {
        let (delay_ms, truth) = (delay_ms.clone(), truth.clone());
        async move {
            while !truth.is_over.load(Ordering::SeqCst) {
                let longest = others.iter().map(|other| other.stats().unpushed_age_ms).max().unwrap_or(0);
                delay_ms.fetch_max(longest, Ordering::SeqCst);
                sleep(Duration::from_millis(2)).await;
            }
            others
        }
    };
    let watched = tokio::spawn(watched);
    until(async || handle.get(), |reading| reading.error_bound.is_some()).await;
    seen.watch(&handle, &truth, Duration::from_millis(1_000)).await;
    // The reader: its bound grows, and its error with it.
    reader_network.shut();
    seen.watch_until(&handle, &truth, NEAR_LIMIT, NEAR).await;
    reader_network.open();
    seen.watch(&handle, &truth, Duration::from_millis(1_000)).await;
    // One of the others, for less than is declared.
    network.shut();
    seen.watch(&handle, &truth, Duration::from_millis(OTHERS_DELAY_MS - 700)).await;
    network.open();
    seen.watch(&handle, &truth, Duration::from_millis(1_000)).await;
    truth.is_over.store(true, Ordering::SeqCst);
    adders.into_iter().for_each(|adder| adder.join().expect("no panic"));
    for other in watched.await.expect("no panic") {
        other.close().await.expect("a service that answers");
    }
    // When nothing is added any more, the value is exact.
    let all = truth.ended.load(Ordering::SeqCst);
    until(async || handle.get(), |reading| reading.value == all).await;
    (seen, delay_ms.load(Ordering::SeqCst))
}

async fn holds(counter_type: CounterType) {
    for _ in 0..ATTEMPTS {
        let (seen, delay_ms) = attempt(counter_type).await;
        println!("{counter_type:?}: {seen:?}, adds took at most {delay_ms} ms to the service");
        if seen.wrong.is_some() && delay_ms >= OTHERS_DELAY_MS {
            println!("the machine hung for longer than is declared");
            continue;
        }
        assert!(seen.wrong.is_none(), "the bound does not hold: {seen:?}");
        assert!(seen.readings > 100, "only {} readings", seen.readings);
        assert!(seen.share_max >= NEAR, "the bound is larger than it has to be: {seen:?}");
        return;
    }
    panic!("the machine is too slow for what is declared");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_the_bound_holds_and_is_approached_while_programs_are_cut_off_from_accurate_counters() {
    holds(CounterType::Accurate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_the_bound_holds_and_is_approached_while_programs_are_cut_off_from_eventual_counters() {
    holds(CounterType::Eventual).await;
}
