//! The compact counter store in real engines (W1 to W6): the module in a Redis and in a Valkey, killed, restarted, replicated,
//! failed over, moved, filled, damaged. `TALLYSTONE_COMPACT_SEED` repeats the choices of a run; each random test prints its own.
//! `TALLYSTONE_TEST_LONG` makes the random tests much longer.
//!
//! What lives here: tests of the module with an engine around it. What may not: tests of the tables alone, which are in the crate
//! `tallystone-compact`.

mod cluster;
mod cold;
mod commands;
mod crash;
mod damage;
mod defrag;
mod drivers;
mod engine;
mod failover;
mod full_disk;
mod fuzz;
mod limits;
mod load;
mod longest;
mod longest_cold;
mod longest_wide;
mod manifest;
mod meddler;
mod memory;
mod model;
mod packed;
mod pieces;
mod program;
mod replica_disks;
mod replicas;
mod snapshots;
mod tokens;
mod waits;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::{SystemTime, UNIX_EPOCH};

/// Random numbers of a test. Its seed is printed, and repeated by `TALLYSTONE_COMPACT_SEED`.
fn random(test: &str) -> StdRng {
    let given = std::env::var("TALLYSTONE_COMPACT_SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed: u64 = given.unwrap_or_else(|| rand::rng().random());
    println!("{test}: TALLYSTONE_COMPACT_SEED={seed}");
    StdRng::seed_from_u64(seed)
}

/// Unix milliseconds.
fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis()).expect("a time")
}
