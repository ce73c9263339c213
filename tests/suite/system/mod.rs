//! The program as its users meet it: one process, its arguments, its output, its signals.
//!
//! What lives here: runs of the built program, one file per part of it. What may not: what can be shown without a
//! process.

pub(crate) mod program;

mod configuration;
mod demo;
mod dev;
mod messages;
mod queues;
mod upgrade;
mod wire;
mod work;
