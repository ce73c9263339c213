//! Counters that are spread over regions (N12): each region counts its own adds in its own store, and publishes its checkpoints.
//! Every region keeps the latest record of each other one, and adds them up.
//!
//! What lives here: what a region publishes of a counter, which of two records is later, and the sum (`record`); how a counter
//! follows a clear of another region (`follow`). What may not: Kafka (tallystone-regions), and where records are kept
//! (`redis/regions`).

mod follow;
mod record;

pub use follow::{Followed, follow_clear};
pub use record::{GlobalCount, RegionCount, RegionRecord, global};
