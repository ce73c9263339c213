//! kill -9 of Redis, of servers of counters, and of the workers that publish and merge, at random moments, while counters are
//! added to and cleared. `TALLYSTONE_CRASH_SEED` repeats the choices of a run; `TALLYSTONE_TEST_LONG` makes it ten times as long.

use super::stage::{Adder, Stage};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tallystone_client::CounterType;
use tallystone_tests::amount;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

const ROUNDS: usize = 12;
const COUNTERS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_every_region_has_the_exact_sum_whatever_is_killed() {
    let mut random = StdRng::seed_from_u64(crate::crash::seed());
    let mut stage = Stage::start(random.random()).await;
    stage.namespace(CounterType::Eventual).await;
    let (done, until) = watch::channel(false);
    let mut tasks = JoinSet::new();
    for region in 0..3 {
        tasks.spawn(load(stage.adder(), region, random.random(), until.clone()));
    }
    let rounds = amount(ROUNDS, 10 * ROUNDS);
    for round in 0..rounds {
        // Some moment of the work.
        sleep(Duration::from_millis(random.random_range(0..600))).await;
        let region = &mut stage.regions[round % 3];
        let pause = Duration::from_millis(random.random_range(0..300));
        region.start_missing_workers();
        match round % 6 {
            0 | 2 => {
                let worker = random.random_range(0..2);
                region.kill_worker(worker).await;
                sleep(pause).await;
                region.start_worker(worker);
            }
            // Also the one that has the lease.
            1 | 5 => {
                region.kill_worker(0).await;
                region.kill_worker(1).await;
                sleep(pause).await;
            }
            3 => {
                region.redis.kill().await;
                sleep(pause).await;
                region.redis.restart().await;
            }
            _ => {
                region.counters.kill().await;
                sleep(pause).await;
                region.counters.restart().await;
            }
        }
        region.start_missing_workers();
        if round == rounds / 2 {
            stage.mirror.pause(true);
        }
        if round == rounds / 2 + 2 {
            stage.mirror.pause(false);
        }
    }
    done.send_replace(true);
    while let Some(ended) = tasks.join_next().await {
        ended.expect("no panic");
    }
    stage.regions.iter_mut().for_each(super::stage::Installation::start_missing_workers);
    stage.assert_exact().await;
}

/// Adds and clears in one region, until the watch says true.
async fn load(adder: Adder, region: usize, seed: u64, until: watch::Receiver<bool>) {
    let mut random = StdRng::seed_from_u64(seed);
    while !*until.borrow() {
        let counter = format!("c{}", random.random_range(0..COUNTERS));
        match random.random_bool(0.02) {
            true => adder.clear(region, &counter).await,
            false => adder.add(region, &counter, random.random_range(-5..100)).await,
        }
        // Those who roll up need the machine too.
        sleep(Duration::from_millis(random.random_range(2..15))).await;
    }
}
