//! History in Elasticsearch 8 or OpenSearch 2: a [`HistoryStore`](crate::HistoryStore) that uses only what both have.
//!
//! Six kinds of indices share one prefix. `SPAN` is the day with which an index begins, `YYYY.MM.DD`, or the hour,
//! `YYYY.MM.DD-HH` (UTC); it ends where the next one begins. `hours` chooses the index of each hour:
//! - `PREFIX-current-SPAN`: one document per message, named by [`message_key`](crate::fold::message_key), in the index of
//!   the hour in which it was enqueued. Its external version is the version of the message, so a write of an older version
//!   changes nothing;
//! - `PREFIX-historic-SPAN`: one document per transition, in the index of the hour in which it happened. It is created once
//!   and never changed;
//! - `PREFIX-payload-SPAN`: one document per message whose first event carried the beginning of its payload;
//! - `PREFIX-hours`: one document per hour, its index;
//! - `PREFIX-progress`: one document per [`Source`](crate::Source), its watermark;
//! - `PREFIX-losses`: one document per shard that has lost transitions since the last repair.
//!
//! What lives here: the store (`store`), one file per call of the trait, and what these share: `cluster` (the state of
//! one store), `group` (the indices of some queues), `places` (which of them have what), `client` (one request), `access` (its user and files), `reply`
//! (its response or error), `retry`, `bulk` (many writes), `get` (documents by id), `document` (what is written), `names`,
//! `hours`, `claims`, `index_list`, `templates`, `refresh`, `filter` and `response` (searches).
//! What may not: knowledge of Kafka, and features that only one of the two products has.

mod access;
mod advance;
mod bulk;
mod claims;
mod client;
mod cluster;
mod depth;
mod document;
mod filter;
mod get;
mod group;
mod hours;
mod index_list;
mod losses;
mod names;
mod options;
mod places;
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

pub use access::ElasticAccess;
pub(crate) use client::parse_url;
pub(crate) use names::check_prefix;
pub(crate) use options::index_days;
pub use options::{ElasticGroup, ElasticOptions, Rollover};
pub use store::Elastic;
