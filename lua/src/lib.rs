//! The scripts that change the queue and the counters, and what both sides must agree on.
//!
//! What lives here: `scripts/*.lua`, one per verb of the queue, each on about a screen; `lib/*.lua`, their shared parts;
//! `counter/*.lua` ([`counter`]), the same of the counters; the
//! [`loader`] that puts them together once; the [`constants`] that Lua gets from the model's tables; the Rust side
//! of the packed [`record`]s. What may not: connections to Redis (server `store/`), or rules that only Rust knows.

pub mod constants;
pub mod counter;
pub mod keys;
pub mod loader;
pub mod record;
pub mod script;

pub use keys::{ShardKeys, shard_of_state_key};
pub use script::Script;
