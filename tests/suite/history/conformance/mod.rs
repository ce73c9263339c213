//! The conformance suite of history stores. A test's name begins with its row; each has queues of its own in the one
//! store of the process, but for what the whole store has one of: the watermark and the retention.

mod depth;
mod exact;
mod hostile;
mod paging;
mod prune;
mod search;
mod stats;
mod trace;
mod watermark;
