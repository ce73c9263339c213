//! What survives when things are killed, when answers are lost, and when the store is unavailable or full (Q10, Q11, Q15, Q16).
//!
//! What lives here: real processes that are really killed, replies that a proxy really drops, and the load under which
//! that happens. What may not: a fault that is only pretended.

mod away;
pub(crate) mod cluster;
pub(crate) mod cluster_failover;
mod cluster_slots;
pub(crate) mod conclude;
mod connections;
mod data_loss;
mod demoted;
mod failover;
mod first_success;
mod frozen;
mod healing;
mod index_builds;
mod judge;
pub(crate) mod life;
pub(crate) mod load;
mod lost_replies;
mod lost_writes;
pub(crate) mod machines;
mod overload;
pub(crate) mod proxy;
mod replicas;
mod replication;
mod retries;
mod rounds;
mod sentinels;
mod store_ids;
mod unloadable;
mod walks;
