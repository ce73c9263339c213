//! The core, without I/O: which views are the first of their pair in a window. What may not live here: anything that reads
//! a clock, or knows where views and counts are kept.

mod chunks;
mod filter;
mod hash;
mod pairs;
mod sealed;
mod sliding;
mod slot;
mod table;
mod window;

pub use hash::{PAIR_BYTES, Pair, PairHasher, SECRET_BYTES};
pub(crate) use pairs::Pairs;
pub use window::{SLIDING_MS_MAX, Window, day_at};
