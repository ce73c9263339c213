//! Redis's environment of scripts, over a keyspace.
//!
//! What lives here: the Lua state with its scripts (`engine`), the conversions between Lua and Redis (`replies`), the
//! library `struct` (`packing`), the count of what calls cost (`meter`). What may not: commands (`commands/`), connections (`node`).

mod engine;
mod meter;
mod packing;
mod replies;

pub(crate) use engine::{Alteration, Engine, locked};
pub use meter::{Metered, Work};
