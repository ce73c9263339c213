//! The program from outside: its arguments, output, exit codes and signals.
//!
//! What lives here: tests that run the built program, one file per part of it. What may not: what can be tested without
//! a process.

pub(crate) mod program;

mod archived;
mod bench;
mod bucket;
mod cassandra;
mod closed_pipes;
mod compact;
mod configuration;
mod consent;
mod demo;
pub(crate) mod dev;
mod first_program;
mod history_check;
mod history_repair;
mod messages;
mod outages;
pub(crate) mod pages;
mod queue_depth;
mod queue_metrics;
mod queues;
mod readiness;
mod results;
mod rolling;
mod sections;
mod selection;
mod terminal;
mod traces;
mod upgrade;
mod views;
mod wire;
mod work;
mod work_ends;
