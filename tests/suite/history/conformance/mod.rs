//! The conformance suite of history stores. A test's name begins with its row. Each test has its own queues in the
//! store that the process shares. Tests of the watermark and of the retention, which a store has only one of, have
//! their own store.

mod depth;
mod exact;
mod hostile;
mod losses;
mod paging;
mod prune;
mod search;
mod stats;
mod trace;
mod watermark;
