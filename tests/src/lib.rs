//! The harness of the whole-system tests: a clock that only tests move, a private Redis, Kafka and Elasticsearch, a stage on which one test
//! plays against one store, and builders for what goes into a queue.
//!
//! Services come from the first of these that is there: addresses in the environment (`TALLYSTONE_TEST_KAFKA`,
//! `TALLYSTONE_TEST_ELASTICSEARCH`), containers (`TALLYSTONE_TEST_PROVIDER=containers`), local processes. A service that a
//! test kills, or whose clock or environment it sets, is a local process in any case.
//!
//! What lives here: what more than one test module needs. What may not: a test, or anything the product uses.

pub mod build;
pub mod clock;
pub mod compact;
pub mod connection;
pub mod container;
pub mod events;
pub mod history;
pub mod http;
pub mod long;
pub mod network;
pub mod polling;
pub mod ports;
pub mod probe;
pub mod program;
pub mod queue;
pub mod redis;
pub mod service;
pub mod shift;
pub mod small_disk;
pub mod stage;

pub use build::*;
pub use clock::Clock;
pub use connection::{TestConnection, patient_connection};
pub use events::{BEGIN_MS, Life, events_of};
pub use history::{HeldStore, HistoryFixture, HistoryUnderTest};
pub use http::{http_builder, http_client};
pub use long::{amount, is_long};
pub use network::Network;
pub use polling::Polling;
pub use ports::lasting_port;
pub use probe::{Probe, SHARD_NUMBERS};
pub use program::cargo_build;
pub use queue::TestQueue;
pub use redis::{TestRedis, volatile};
pub use service::{TestElasticsearch, TestKafka};
pub use shift::ClockShift;
pub use small_disk::SmallDisk;
pub use stage::Stage;
