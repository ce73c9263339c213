//! History: every transition of every message, searchable (Q19 to Q21).
//!
//! What lives here: the contract of a history store ([`HistoryStore`]) and its two implementations, Elasticsearch
//! (`elastic`) and SQLite (`embedded`); the relay's Kafka sink and the consumer that fills Elasticsearch (`kafka`);
//! the records on the topic (`wire`); the fold of events into documents (`fold`); the gRPC service `History` (`api`).
//! What may not: Redis, the setup of Kafka clients, and the rules of the queue. An event contains everything that
//! history needs to know about a transition.

pub mod api;
pub mod clock;
pub mod config;
pub mod elastic;
pub mod embedded;
pub mod fold;
mod groups;
pub mod kafka;
pub mod store;
pub mod wire;

pub use config::{ElasticsearchConfig, HistoryConfig, IndexerConfig};
pub use elastic::{Elastic, ElasticAccess, ElasticGroup, ElasticOptions, Rollover};
pub use embedded::{Embedded, EmbeddedError, EmbeddedOptions};
pub use groups::HistoryGroup;
pub use store::{
    DepthQuery, GroupBy, Grouping, HistoryError, HistoryStore, Queues, Rejected, SearchPosition, SearchQuery, Source,
    StatsQuery, Trace, TraceQuery,
};
