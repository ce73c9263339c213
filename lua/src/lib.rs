//! The scripts of the queue and the counters, and what Rust and Lua must agree on.
//!
//! What lives here: `scripts/*.lua`, one for each verb of the queue, each on about a screen; `lib/*.lua`, their shared
//! parts, and `lib/VERB/*.lua`, the parts of one long verb; `counter/` ([`counter`]) and `views/` ([`views`]), the same for the
//! counters and the view counter; the [`loader`] that assembles them once, with constants as values (`inline`); the [`constants`] that Lua gets from the
//! model's tables; the Rust side of the packed [`record`]s. What may not: connections to Redis (infra/link), and rules that
//! only Rust has.

mod answer;
pub mod constants;
pub mod counter;
mod inline;
pub mod keys;
pub mod loader;
pub mod record;
pub mod script;
pub mod views;

pub use keys::{ShardKeys, shard_of_state_key};
pub use script::Script;
