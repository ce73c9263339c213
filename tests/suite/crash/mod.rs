//! What survives when things are killed, when answers are lost, and when the store is unavailable or full (Q10, Q11, Q15, Q16).
//!
//! What lives here: real processes that are really killed, replies that a proxy really drops, and the load under which
//! that happens. What may not: a fault that is only pretended.

mod ahead;
mod away;
pub(crate) mod cluster;
pub(crate) mod cluster_failover;
mod cluster_slots;
pub(crate) mod conclude;
mod connections;
mod data_loss;
mod demoted;
mod emptied;
mod failover;
mod first_success;
mod frozen;
mod generations;
mod healing;
mod hung_shards;
mod index_builds;
pub(crate) mod judge;
pub(crate) mod life;
mod linear;
pub(crate) mod load;
mod lost_replies;
mod lost_writes;
pub(crate) mod machines;
mod objections;
mod overload;
pub(crate) mod proxy;
mod replicas;
mod replication;
mod replication_ids;
mod resharding;
mod retries;
mod rounds;
mod sentinels;
mod store_ids;
mod unloadable;
mod walks;

/// The seed of the choices of a run: `TALLYSTONE_CRASH_SEED`, else a random one. Prints it.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("TALLYSTONE_CRASH_SEED") {
        Ok(seed) => seed.parse().expect("TALLYSTONE_CRASH_SEED is a number"),
        Err(_) => rand::random::<u32>(),
    };
    println!("TALLYSTONE_CRASH_SEED={seed}");
    u64::from(seed)
}
