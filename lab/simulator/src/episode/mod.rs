//! Episodes: some callers, three servers, one Redis, and what goes wrong between them, all drawn from one seed.
//!
//! What lives here: the world around the servers (`world`), what goes wrong (`faults`), the way of a command (`wire`), the
//! servers (`servers`), the callers (`caller`, `call`), what Redis wrote (`journal`), traces (`names`), and an episode as a
//! whole (`run`). What may not: what is right (`judge/`).

mod call;
mod caller;
mod faults;
mod journal;
mod names;
mod run;
mod servers;
mod wire;
mod world;

pub use run::{Episode, run};
pub use world::Met;
