//! The read cache of the counter service (W6): counts that rollups publish into counter sets, in a Redis with the module.
//!
//! What lives here: a counter set and what the counters say of it (`board`); its tests in this process (`published`, `bindings`),
//! and with processes that are stopped and a store that is lost (`lost`). What may not: tests of the module (`compact`).

mod bindings;
mod board;
mod lost;
mod published;
