//! The client against a real server with the in-memory store: every call, then the worker's guarantees. The client of
//! counters, and Enqueues on streams, run against scripted servers. All are one binary, because linking is the slow part.

mod calls;
mod counters;
mod enqueues;
mod harness;
mod queue_script;
mod script;
mod worker;
