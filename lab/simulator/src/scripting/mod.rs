//! Redis's environment of scripts, over a keyspace.
//!
//! What lives here: the Lua state with its scripts (`engine`), the conversions between Lua and Redis (`replies`), the
//! library `struct` (`packing`). What may not: commands (`commands/`), connections (`node`).

mod engine;
mod packing;
mod replies;

pub(crate) use engine::{Engine, locked};
