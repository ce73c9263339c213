//! Metrics of each queue (O1): counters of what this server did, gauges of what is in the store.
//!
//! What lives here: `tally` (the counters of one queue, which lanes and the sweeper add to), `board` (all queues, which of
//! them have separate series, and the sums of the rest), `source` and `reading` (depths and ages, read in the
//! background), `page` (the text for Prometheus). The number of series is bounded whatever names callers invent: see
//! docs/decisions/0066.

mod board;
mod page;
mod reading;
mod source;
mod tally;

#[cfg(test)]
mod tests;

pub(crate) use board::Board;
pub(crate) use page::write;
pub(crate) use reading::read_often;
pub(crate) use source::whole_depth;
pub use source::{QueueState, QueueStates};
pub(crate) use tally::{Counted, Tally};
