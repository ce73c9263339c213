//! How a process is put together from parts. The command line, the demo, the bench and the tests all use it.
//!
//! What lives here: the whole configuration ([`Config`]), and one file per process: the queue's server with its relay and
//! history ([`queue`]), the counters ([`counters`]), the rollup worker ([`RollupWorker`]), the view counter ([`views`]), adds from a Kafka topic ([`ingest`]), the indexer ([`indexer`]), and
//! several of them in one process ([`AllInOne`]); the operator's word on a Redis ([`accept_store`]), and the
//! refill of counter sets ([`republish`]). What may not: command-line arguments, output for people, and the work
//! that a part does.

mod all_in_one;
mod buckets;
mod client;
mod config;
mod counter_sets;
mod counters;
mod error;
mod history;
mod indexer;
mod ingest;
mod queue;
mod rollup_worker;
mod store;
mod telemetry;
mod views;

pub use all_in_one::{AllInOne, Listeners, create_namespace};
pub use client::ClientConfig;
pub use config::Config;
pub use counter_sets::{counter_sets, republish};
pub use counters::{attach_counters, connect_namespaces, counters, queue_client};
pub use error::AssemblyError;
pub use history::History;
pub use indexer::{attach_indexer, indexer};
pub use ingest::ingest;
pub use queue::{queue, queue_over};
pub use rollup_worker::{RollupWorker, own_name, rollup_worker};
pub use store::{AcceptedStore, StoreMarks, accept_store, store_marks};
pub use telemetry::TelemetryConfig;
pub use views::views;
