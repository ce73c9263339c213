//! History: what happened to every message, searchable (Q19 to Q21).
//!
//! What lives here: the contract of a history store ([`HistoryStore`]) and its two implementations, Elasticsearch
//! (`elastic`) and SQLite (`embedded`); Kafka at both ends (`kafka`: the sink of the relay, and the consumer that
//! fills Elasticsearch); the folding of events into documents (`fold`); the gRPC service `History` (`api`). What may
//! not: Redis, and the rules of the queue. An event says all that history needs to know of a transition.

pub mod api;
pub mod clock;
pub mod elastic;
pub mod embedded;
pub mod fold;
pub mod kafka;
pub mod store;
pub mod wire;

pub use elastic::{Elastic, ElasticOptions};
pub use embedded::{Embedded, EmbeddedError, EmbeddedOptions};
pub use store::{
    DepthQuery, HistoryError, HistoryStore, Position, Rejected, SearchQuery, Source, StatsQuery, Trace, TraceQuery,
};
