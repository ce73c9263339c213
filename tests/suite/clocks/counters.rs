//! The counters on a Redis whose clock is wrong (X6, N3, N6).

use super::{FOR_GOOD, MOMENT, POLL, RECOVERY, WRONG, wrong_for};
use crate::counting::house::{House, until};
use crate::system::program::SOON;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tallystone_client::{Applied, CounterType, Error, IdempotencyToken, NamespaceConfig, NewAdd, QueueConfig};
use tallystone_proto::counter::v1 as wire;
use tallystone_server::store::Clock;
use tallystone_tests::{ClockShift, TestRedis};
use tokio::time::{Instant, sleep};
use tonic::Code;
use tonic_types::StatusExt;

const NS: &str = "ns";
const COUNTERS: usize = 8;
const ADDERS: usize = 8;
const ACCEPT_MS: u64 = 5_000;
/// Within which every waiting rollup is made once the clocks are right: pauses of workers and of the trigger.
const ROLLED_UP: Duration = Duration::from_secs(20);

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set").as_millis() as u64
}

/// Adds through two servers, and what they know.
struct Load<'a> {
    house: &'a House,
    sums: [AtomicI64; COUNTERS],
    adds: AtomicUsize,
    is_over: AtomicBool,
}

impl Load<'_> {
    fn counted(&self, counter: usize, delta: i64) {
        self.sums[counter].fetch_add(delta, Ordering::SeqCst);
        self.adds.fetch_add(1, Ordering::SeqCst);
    }

    /// Adds with tokens: each is repeated until it is known whether it has counted.
    async fn add(&self, number: usize) {
        for round in 0.. {
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let (counter, token) = ((number + round) % COUNTERS, IdempotencyToken::now());
            let begun_ms = token.generation_time_ms;
            loop {
                let add = NewAdd::new(format!("c{counter}"), 3).token(token.clone());
                match self.house.clients[(number + round) % 2].add(NS, add).await {
                    Ok(_) => break self.counted(counter, 3),
                    Err(error) if error.is_unavailable() => sleep(POLL).await,
                    Err(Error::Refused(refused)) if refused.reason == "TOO_OLD" => {
                        assert!(now_ms() - begun_ms >= ACCEPT_MS, "{refused} after {} ms", now_ms() - begun_ms);
                        break;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    /// Adds without tokens: the store stamps them. And clears of a counter that is not compared.
    async fn add_now(&self, via: usize) {
        let mut wire_client = self.house.wire(via).await;
        while !self.is_over.load(Ordering::SeqCst) {
            let request =
                wire::AddCountRequest { namespace: NS.into(), counter: "c0".into(), delta: 1, ..Default::default() };
            match wire_client.counters.add_count(request).await {
                Ok(_) => self.counted(0, 1),
                Err(status) => assert_refused_for_the_clock(&status),
            }
            let request = wire::ClearCountRequest { namespace: NS.into(), counter: "cleared".into(), token: None };
            if let Err(status) = wire_client.counters.clear_count(request).await {
                assert_eq!(status.code(), Code::Unavailable, "{status:?}");
            }
            sleep(POLL).await;
        }
    }

    fn adds(&self) -> usize {
        self.adds.load(Ordering::SeqCst)
    }

    async fn until_adds(&self, count: usize, by: Instant) {
        while self.adds() < count {
            assert!(Instant::now() < by, "{} of {count} adds", self.adds());
            sleep(POLL).await;
        }
    }

    async fn refused(&self) {
        for client in &self.house.clients {
            match client.add(NS, NewAdd::new("refused", 1)).await {
                Err(Error::Unavailable { applied: Applied::No, message }) => {
                    assert!(message.contains("clock_skew_max_ms"), "{message}");
                }
                other => panic!("{other:?} under a wrong clock"),
            }
            client.get(NS, "c0").await.expect("reads go on");
        }
    }
}

fn assert_refused_for_the_clock(status: &tonic::Status) {
    let info = status.get_error_details().error_info().expect("a reason").clone();
    assert_eq!((status.code(), info.reason.as_str()), (Code::Unavailable, "CLOCK_SKEW"), "{status:?}");
    assert_eq!(info.metadata["applied"], "no");
    assert!(info.metadata["offset_ms"].parse::<i64>().expect("a number").abs() > 500_000, "{info:?}");
}

async fn stays_exact(time: Duration) {
    let shift = ClockShift::new();
    let house = House::on(TestRedis::shifted(&shift).await, true, true).await;
    let config = NamespaceConfig {
        counter_type: Some(CounterType::Eventual),
        accept_limit_ms: Some(ACCEPT_MS),
        coalesce_ms: Some(0),
        ..NamespaceConfig::default()
    };
    house.put(NS, config).await;
    let load =
        Load { house: &house, sums: Default::default(), adds: AtomicUsize::new(0), is_over: AtomicBool::new(false) };
    let adders = futures::future::join_all((0..ADDERS).map(|number| load.add(number)));
    let script = async {
        for ahead_ms in WRONG {
            load.until_adds(load.adds() + 200, Instant::now() + SOON).await;
            let right_at = wrong_for(&shift, ahead_ms, time, async || load.refused().await).await;
            load.until_adds(load.adds() + 50, right_at + RECOVERY).await;
            // In every shard, through every server: an add of now is neither too old nor too early.
            for number in 0..100 {
                let counter = number % COUNTERS;
                house.clients[number % 2].add(NS, NewAdd::new(format!("c{counter}"), 5)).await.expect("it counts");
                load.counted(counter, 5);
            }
            assert!(right_at.elapsed() < 2 * RECOVERY, "{:?}", right_at.elapsed());
        }
        load.is_over.store(true, Ordering::SeqCst);
    };
    tokio::join!(adders, load.add_now(0), load.add_now(1), script);
    for (counter, sum) in load.sums.iter().enumerate() {
        let sum = sum.load(Ordering::SeqCst);
        for via in [0, 1] {
            until(async || house.count(via, NS, &format!("c{counter}")).await.count, |count| *count == sum).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x6_n6_a_clock_that_is_wrong_for_a_moment_refuses_no_add_afterwards() {
    stays_exact(MOMENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x6_n6_a_clock_that_stays_wrong_refuses_no_add_afterwards() {
    stays_exact(FOR_GOOD).await;
}

/// The clocks of the queue's Redis and of its server are wrong alike, as on one machine: neither notices, but the rollup
/// workers do. `is_shared`: the counters are in the same Redis.
async fn rollups_recover(is_shared: bool, ahead_ms: i64) {
    let shift = ClockShift::new();
    let queue_redis = TestRedis::shifted(&shift).await;
    let queue = queue_redis.store(Clock::redis("queues", 0)).await;
    let (redis, _queue_redis) =
        if is_shared { (queue_redis, None) } else { (TestRedis::start().await, Some(queue_redis)) };
    let house = House::driven_by(redis, Some(queue), true).await;
    let config = NamespaceConfig {
        accept_limit_ms: Some(200),
        coalesce_ms: Some(0),
        num_queues: Some(1),
        ..NamespaceConfig::default()
    };
    house.put(NS, config).await;
    let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    let add = async || {
        let adds = names.iter().map(|name| NewAdd::new(name.clone(), 1)).collect();
        let added = house.clients[0].add_many(NS, adds).await;
        added.is_ok_and(|added| added.iter().all(Result::is_ok))
    };
    let queue = house.queue.as_ref().expect("a queue");
    let name = format!("rollup/{NS}/0of1");
    assert!(add().await);
    until(async || queue.get_queue(&name).await.is_ok(), |exists| *exists).await;
    let blocked = |blocked| QueueConfig { dequeue_blocked: Some(blocked), ..QueueConfig::default() };
    queue.update_queue(&name, blocked(true)).await.expect("paused");
    assert!(add().await);
    until(async || queue.depth(&name, None).await.expect("a depth").pending, |pending| *pending == 100).await;
    shift.set_ms(ahead_ms);
    queue.update_queue(&name, blocked(false)).await.expect("resumed");
    sleep(MOMENT).await;
    shift.set_ms(0);
    let right_at = Instant::now();
    assert!(add().await);
    for name in &names {
        until(async || house.count(0, NS, name).await.count, |count| *count == 3).await;
    }
    assert!(right_at.elapsed() < ROLLED_UP, "{:?}", right_at.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x6_n8_a_wrong_clock_of_the_queue_alone_holds_up_no_rollup() {
    for ahead_ms in WRONG {
        rollups_recover(false, ahead_ms).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x6_n8_a_wrong_clock_of_queue_and_counters_that_only_workers_notice_holds_up_no_rollup() {
    for ahead_ms in WRONG {
        rollups_recover(true, ahead_ms).await;
    }
}
