//! The client against a real server over the in-memory oracle: every call once, then what the worker promises; and what
//! the client of counters sends.
//! One binary: linking is the slow part.

mod calls;
mod counters;
mod harness;
mod script;
mod worker;
