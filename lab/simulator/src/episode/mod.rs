//! Episodes: some callers, three servers, one Redis, and what goes wrong between them, all drawn from one seed. In some of them, the
//! numbers of shards of queues change.
//!
//! What lives here: what is drawn first (`plan`), the world around the servers (`world`), what goes wrong (`faults`), the way of a command (`wire`), the
//! servers (`servers`), the callers (`caller`, `call`), what Redis wrote (`journal`), traces (`names`), its end (`conclusion`), and an episode as a
//! whole (`run`). What may not: what is right (`judge/`).

mod call;
mod caller;
mod conclusion;
mod faults;
mod journal;
mod names;
mod plan;
mod run;
mod servers;
mod wire;
mod world;

pub use plan::changes_shards;
pub use run::{Episode, run};
pub use world::Met;
