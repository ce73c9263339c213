//! Every process is killed and paused at random points, while records come, some of them late. `TALLYSTONE_CRASH_SEED`
//! repeats the choices of a run.

use super::stage::Stage;
use super::topics::{Written, now_ms};
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tokio::time::sleep;

const PARTITIONS: i32 = 3;
const KILLS: usize = 16;
const DAY_MS: i64 = 86_400_000;

pub(super) fn rng() -> StdRng {
    StdRng::seed_from_u64(crate::crash::seed())
}

/// Records of all ages: of now, late, older than any namespace accepts, and of the future.
pub(super) fn mixed(random: &mut StdRng, records: usize) -> Vec<Written> {
    let add = |_| {
        let now_ms = now_ms();
        let at_ms = match random.random_range(0..10) {
            0..5 => now_ms,
            5 | 6 => now_ms - random.random_range(0..600_000),
            7 => now_ms - random.random_range(0..2 * DAY_MS),
            8 => now_ms - 30 * DAY_MS,
            _ => now_ms + random.random_range(0..3_600_000),
        };
        let counter = format!("c{}", random.random_range(0..4));
        Written::add(random.random_range(0..PARTITIONS), at_ms, &counter, random.random_range(-5..100))
    };
    (0..records).map(add).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_records_count_once_although_everything_is_killed() {
    let mut random = rng();
    let mut stage = Stage::start("kills", PARTITIONS, 1_500).await;
    for instance in ["a", "b"] {
        stage.ingest(Some(instance)).await;
    }
    for round in 0..KILLS {
        let size = random.random_range(1..800);
        stage.write(&mixed(&mut random, size)).await;
        // A random point of the work.
        sleep(Duration::from_millis(random.random_range(0..400))).await;
        match round % 8 {
            3 => {
                stage.redis.kill().await;
                stage.redis.restart().await;
            }
            6 => {
                stage.counters.kill().await;
                stage.counters.restart().await;
            }
            _ => {
                let victim = random.random_range(0..2);
                stage.ingests[victim].kill().await;
                stage.ingests[victim].restart().await;
            }
        }
        if round % 6 == 5 {
            stage.assert_exact().await;
        }
    }
    stage.assert_exact().await;
    assert!(stage.topics.dead_letters().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_a_process_that_was_paused_counts_nothing_twice() {
    let mut random = rng();
    let mut stage = Stage::start("paused", PARTITIONS, 1_500).await;
    stage.ingest(None).await;
    stage.write(&mixed(&mut random, 300)).await;
    stage.assert_exact().await;
    stage.ingest(None).await;
    for process in 0..2 {
        stage.write(&mixed(&mut random, 2_000)).await;
        // A random point of the work.
        sleep(Duration::from_millis(random.random_range(0..300))).await;
        stage.ingests[process].signal(Signal::SIGSTOP);
        // The group gives its partitions to the other one.
        stage.assert_exact().await;
        stage.ingests[process].signal(Signal::SIGCONT);
        stage.write(&mixed(&mut random, 300)).await;
        stage.assert_exact().await;
    }
}
