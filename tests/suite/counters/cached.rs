//! BEST_EFFORT counters (N4): random programs of adds, reads and clears, whose every reply is the oracle's, too. Deltas
//! come near both ends of the range, so that some adds overflow together and fit alone, and some do not fit at all.
//!
//! `TALLYSTONE_PROPERTY_SEED` repeats a failure.

use super::draw::{any_counter, one, some_counters};
use super::*;
use crate::property::setting;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tallystone_counters::Cache;
use tallystone_counters::namespace::CounterType;

const PROGRAMS: u64 = 30;
/// On a Redis Cluster.
const CLUSTER_PROGRAMS: u64 = 8;
const STEPS: usize = 40;
/// More adds than one pipeline takes.
const LARGE_BATCH: usize = 900;

#[tokio::test]
async fn n4_random_programs_of_cached_counters_reply_as_the_oracle_does() {
    run_programs(TestRedis::shared().await, PROGRAMS).await;
}

#[tokio::test]
async fn q17_n4_random_programs_of_cached_counters_reply_as_the_oracle_does_on_a_cluster() {
    run_programs(TestRedis::shared_cluster().await, CLUSTER_PROGRAMS).await;
}

async fn run_programs(redis: Arc<TestRedis>, programs: u64) {
    let first_seed = setting("TALLYSTONE_PROPERTY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let (mut overflows, mut counted) = (0, 0);
    for seed in (first_seed..).take(programs as usize) {
        println!("TALLYSTONE_PROPERTY_SEED={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let config = NamespaceConfig { counter_type: CounterType::BestEffort, ..NamespaceConfig::default() };
        let ns = TestNamespace::on(redis.clone(), "cached", config).await;
        for _ in 0..STEPS {
            match random.random_range(0..10) {
                0 => assert!(ns.store.cache_clear(&some_counters(&mut random)).await.iter().all(Result::is_ok)),
                1..4 => drop(ns.store.cache_get(&some_counters(&mut random)).await.expect("counts")),
                _ => {
                    let results = ns.store.cache_add(&some_adds(&mut random)).await;
                    overflows += results.iter().filter(|result| **result == Err(Refusal::Overflow)).count();
                    counted += results.iter().filter(|result| result.is_ok()).count();
                }
            }
        }
        ns.store.cache_get(&draw::NAMES.map(counter)).await.expect("counts");
    }
    assert!(
        overflows > 0 && counted > 0,
        "{overflows} adds overflowed, {counted} counted: the programs reach too little"
    );
}

fn some_adds(random: &mut StdRng) -> Vec<(CounterName, i64)> {
    let count = one(random, &[1, 2, 7, LARGE_BATCH]);
    let is_wide = random.random_ratio(1, 4);
    let delta = |random: &mut StdRng| match is_wide {
        true => one(random, &[i64::MAX, i64::MIN, i64::MAX / 2, i64::MIN / 2, 1, -1]),
        false => random.random_range(-300..=300),
    };
    (0..count).map(|_| (any_counter(random), delta(random))).collect()
}
