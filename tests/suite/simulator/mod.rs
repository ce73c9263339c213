//! The simulated Redis does what a real one does (X8): the tables of every script, what scripts see, and random commands.
//!
//! What lives here: comparisons of the simulator with a Redis, and what the simulator says of each script's cost (`bounds`). What
//! may not: the meaning of the queue, which is the conformance suite's.

mod bounds;
mod commands;
mod environment;
mod tables;
