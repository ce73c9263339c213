//! Adds from a Kafka topic (N17), on a real Kafka, a real Redis, and processes that are killed, stopped and paused: each
//! record counts exactly once.
//!
//! What lives here: the processes (`stage`), what producers write and what is left on the topics (`topics`); records at their
//! time and members that come and go (`counted`), kills at random (`kills`) and at each step of the work (`steps`; the process
//! that dies there is in `life`), records that are late, replays and tokens that are no longer
//! known (`late`), topics that are created again (`recreated`), records that cannot be counted (`bad`), counters that have lost their data (`emptied`). What may not: the pure
//! decisions, which the crate tests.

mod bad;
mod counted;
mod emptied;
mod kills;
mod late;
mod life;
mod recreated;
mod stage;
mod steps;
pub(crate) mod topics;
