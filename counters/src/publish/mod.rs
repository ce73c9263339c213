//! The publication of counts into counter sets (W6): one read of the set answers all counts of an object.
//!
//! What lives here: what is published of a counter (`count`), the Redis with the counter sets (`sets`), and the refill of a
//! set from the checkpoints (`republish`). What may not: when counts are published, which is the workers' to decide.

mod count;
mod republish;
mod sets;

pub use count::PublishedCount;
pub use republish::{RepublishError, Republished, republish};
pub use sets::{CounterSets, Published, Unpublished};
