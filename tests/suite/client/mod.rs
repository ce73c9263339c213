//! The client against a real server with the in-memory store: every call, then the worker's guarantees. The client of
//! counters runs against a scripted server. All are one binary, because linking is the slow part.

mod calls;
mod counters;
mod harness;
mod script;
mod worker;
