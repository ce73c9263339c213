//! What callers who mean harm can do to a running program (S1 to S7), and that others do not notice.
//!
//! What lives here: attacks against the built program. What may not: refusals of single calls, which each service tests.

mod bounds;
mod victim;
