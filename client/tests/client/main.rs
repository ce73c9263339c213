//! The client against a real server over the in-memory oracle: every call once, then what the worker promises.
//! One binary: linking is the slow part.

mod calls;
mod harness;
mod worker;
