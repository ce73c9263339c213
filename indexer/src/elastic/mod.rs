//! History in Elasticsearch 8 or OpenSearch 2: a [`HistoryStore`](crate::HistoryStore) that uses only what both have.
//!
//! Five kinds of indices share one prefix:
//! - `PREFIX-current`: one document per message, named by [`message_key`](crate::fold::message_key). Its external
//!   version is the version of the message, so a write of an older version changes nothing;
//! - `PREFIX-historic-YYYY.MM.DD`: one document per transition, in the index of the day on which it happened (UTC). It
//!   is created once and never changed. Whole days are dropped after the retention;
//! - `PREFIX-payload`: one document per message whose first event carried the beginning of its payload;
//! - `PREFIX-progress`: one document per [`Source`](crate::Source), its watermark;
//! - `PREFIX-losses`: one document per shard that has lost transitions since the last repair.
//!
//! What lives here: the store (`store`), one file per call of the trait, and what these share: `cluster` (the state of
//! one store), `client` (one request), `reply` (its response or error), `retry`, `bulk` (many writes), `get`
//! (documents by id), `document` (what is written), `names`, `templates`, `refresh`, `filter` and `response` (searches).
//! What may not: knowledge of Kafka, and features that only one of the two products has.

mod advance;
mod bulk;
mod client;
mod cluster;
mod depth;
mod document;
mod filter;
mod get;
mod losses;
mod names;
mod options;
mod prune;
mod record;
mod refresh;
mod repair;
mod reply;
mod response;
mod retry;
mod search;
mod stats;
mod store;
mod templates;
mod trace;

pub(crate) use client::parse_url;
pub(crate) use names::check_prefix;
pub use options::ElasticOptions;
pub use store::Elastic;
