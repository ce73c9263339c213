//! kill -9 at random moments under load, with fsync before each reply: nothing that was acknowledged is lost, nothing counts twice
//! (W4). Some kills come while the engine rewrites its log, or while tables move to files.

use super::load::{Load, SCHEMA, judge};
use super::{is_long, random};
use rand::Rng;
use std::time::Duration;
use tallystone_tests::compact::{Engine, Setup};

/// Of each engine, with and without cold tables: 52 in all.
const ROUNDS: u32 = 13;

fn kill_at_random_moments(name: &str, engine: Engine, options: &str) {
    let mut random = random(name);
    // Small, so that logs are rewritten between and during kills.
    let rewrites = "--auto-aof-rewrite-min-size 200kb --auto-aof-rewrite-percentage 50";
    let mut node = Setup::new(engine).args(rewrites).start();
    node.wire().done(&format!("CT.CREATE k {options} {SCHEMA}"));
    let load = Load::new(node.port());
    let rounds = if is_long() { 10 * ROUNDS } else { ROUNDS };
    let sums = load.run(4, &mut random, |random| {
        for _ in 0..rounds {
            load.progress(1);
            std::thread::sleep(Duration::from_micros(random.random_range(0..60_000)));
            node.kill();
            node.start_again();
        }
        load.progress(20);
    });
    let commands = load.done.into_inner();
    println!("{name}: {commands} commands, {} ids", sums.len());
    judge(&node, &sums);
    node.kill();
    node.start_again();
    judge(&node, &sums);
}

#[test]
fn w4_kills_lose_nothing_and_count_nothing_twice() {
    for engine in Engine::ALL {
        kill_at_random_moments(&format!("kills on {engine:?}"), engine, "TABLE_SLOTS 1024");
    }
}

#[test]
fn w4_kills_lose_nothing_while_tables_are_cold() {
    for engine in Engine::ALL {
        let name = format!("kills with cold tables on {engine:?}");
        kill_at_random_moments(&name, engine, "TABLE_SLOTS 256 MEMORY_MAX 1 CACHE_BYTES 100000");
    }
}
