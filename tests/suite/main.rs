//! The whole-system tests, one binary. What lives here: one folder per kind of test. What may not: the harness that
//! they share (the library of this crate), or anything the product uses.

mod client;
mod clocks;
mod compact;
mod compact_cache;
mod conformance;
mod containers;
mod counters;
mod counting;
mod crash;
mod deploy;
mod elastic;
mod histories;
mod history;
mod history_api;
mod house;
mod ingest;
mod kafka;
mod local;
mod pipeline;
mod property;
mod regions;
mod relay;
mod scripts;
mod security;
mod simulator;
mod system;
mod views;
