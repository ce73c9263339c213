//! A deterministic simulator (X8): the real scripts, and the real store over them, on a Redis in the process, under virtual
//! time and one seed that decides everything. The models are the simulations of FoundationDB and TigerBeetle.
//!
//! What lives here: the data of a Redis (`keyspace/`), its commands (`commands/`), its scripts and what these cost (`scripting/`), and the Redis
//! itself (`node`); servers, callers and faults around it ([`episode`]), and the judge of what they saw ([`judge`]). What may
//! not: rules of the queue, which are in the scripts and the model, and anything that reads a clock, a network or a source
//! of chance of the machine.

// The future of a call over several shards, down to a connection, has more layers than the compiler follows by default.
#![recursion_limit = "256"]

mod commands;
pub mod episode;
pub mod judge;
mod keyspace;
mod node;
mod scripting;

pub use keyspace::Keyspace;
pub use node::{SimulatedRedis, Subscriber};
pub use scripting::{Metered, Work};
