//! The property test: random programs over several queues run on the oracle and through two servers on a real
//! Redis or a simulated one, on one clock, and every answer is the same; so is all that can be seen of the queues every few steps.
//!
//! A failure is shrunk and printed with its seed. `TALLYSTONE_PROPERTY_SEED` repeats it, `TALLYSTONE_PROPERTY_STEPS`
//! sets more steps, `TALLYSTONE_TEST_LONG` many more.

pub(crate) mod call;
mod compare;
mod index_build;
pub(crate) mod program;
mod shrink;
mod sides;
mod wakes;
mod whole;
mod world;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_model::state::ARROWS;
use tallystone_tests::{TestRedis, amount};
use tokio::task::JoinSet;
use world::{PATIENCE, World};

const STEPS: u64 = 25_000;
const STEPS_SIMULATED: u64 = 15_000;
const STEPS_OF_SHARDS: u64 = 4_000;
const STEPS_LONG: u64 = 2_000_000;
/// Steps between two comparisons of everything.
const STEPS_BETWEEN_COMPARISONS: usize = 50;
/// Programs at the same time: while one waits for Redis another thinks.
const WORKERS: usize = 3;

/// A number from the environment.
pub(crate) fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is '{text}', not a number")))
}

#[tokio::test]
async fn q15_random_programs_answer_alike_on_the_oracle_and_on_redis() {
    let redis = Arc::new(TestRedis::start().await);
    run_programs(|| redis.clone(), steps(STEPS, STEPS_LONG), 1).await;
}

/// Both sides divide their calls among shards in the same way, so that every answer is the same; what several shards promise
/// together is tested in `shards`.
#[tokio::test]
async fn q17_random_programs_answer_alike_where_queues_have_shards() {
    let redis = Arc::new(TestRedis::start().await);
    for shards in [4, 7] {
        run_programs(|| redis.clone(), steps(STEPS_OF_SHARDS, STEPS_LONG), shards).await;
    }
}

#[tokio::test]
async fn x8_random_programs_answer_alike_on_the_oracle_and_on_the_simulator() {
    run_programs(|| Arc::new(TestRedis::simulated()), steps(STEPS_SIMULATED, STEPS_LONG), 1).await;
}

fn steps(default_steps: u64, long_steps: u64) -> u64 {
    setting("TALLYSTONE_PROPERTY_STEPS").unwrap_or(amount(default_steps, long_steps))
}

async fn run_programs(redis: impl Fn() -> Arc<TestRedis>, steps: u64, shards: u16) {
    let first_seed = setting("TALLYSTONE_PROPERTY_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let programs = steps.div_ceil(program::STEPS as u64);
    let drawn = Arc::new(AtomicU64::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let (redis, drawn) = (redis(), drawn.clone());
        workers.spawn(async move {
            let mut world = World::new(redis, format!("w{worker}-{shards}"), shards).await;
            loop {
                let number = drawn.fetch_add(1, Ordering::SeqCst);
                if number >= programs {
                    return Ok(world.arrows);
                }
                let seed = Seed(first_seed.wrapping_add(number));
                let program = if shards > 1 { program::draw_with_changes(seed.0) } else { program::draw(seed.0) };
                let run = world.run(&program, STEPS_BETWEEN_COMPARISONS, PATIENCE).await;
                if let Err(difference) = run.outcome {
                    let call = run.calls.last().map(String::as_str).unwrap_or_default();
                    eprintln!("TALLYSTONE_PROPERTY_SEED={} repeats this; shrinking it …\n{call}\n{difference}", seed.0);
                    return Err(shrink::report(&mut world, seed.0, program).await);
                }
            }
        });
    }
    // The first failure ends the test.
    let mut arrows = BTreeSet::new();
    while let Some(worker) = workers.join_next().await {
        match worker.expect("no panic in a program") {
            Ok(met) => arrows.extend(met),
            Err(report) => {
                workers.shutdown().await;
                panic!("{report}");
            }
        }
    }
    let missed: Vec<_> = ARROWS.iter().filter(|arrow| !arrows.contains(&(arrow.from, arrow.to, arrow.by))).collect();
    assert!(missed.is_empty() || steps < STEPS, "programs that never go this way prove nothing about it: {missed:?}");
}

/// Says which program it was when one side panics.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("TALLYSTONE_PROPERTY_SEED={} repeats the panic", self.0);
        }
    }
}
