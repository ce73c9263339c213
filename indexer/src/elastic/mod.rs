//! History in Elasticsearch 8 or OpenSearch 2: a [`HistoryStore`] on what both have.
//!
//! Four kinds of indices, under one prefix:
//! - `PREFIX-current`: one document per message, named by [`message_key`](crate::fold::message_key), its external
//!   version that of the message: older news never overwrites newer;
//! - `PREFIX-historic-YYYY.MM.DD`: one document per transition, in the index of the day it happened (UTC), created
//!   once and never changed; whole days are dropped after the retention;
//! - `PREFIX-payload`: one document per message whose first event told the begin of its payload;
//! - `PREFIX-progress`: one document per [`Source`], how far it has come.
//!
//! What lives here: one file per call of the trait, and what they share: `link` (one request and its refusals),
//! `bulk` (many writes), `get` (documents by name), `document` (what is written), `names`, `templates`, `filter` (what is looked for). What may
//! not: knowledge of Kafka, and whatever only one of the two products has.

mod advance;
mod bulk;
mod depth;
mod document;
mod filter;
mod get;
mod link;
mod names;
mod options;
mod prune;
mod record;
mod search;
mod stats;
mod templates;
mod trace;

pub use options::ElasticOptions;

use crate::store::*;
use bytes::Bytes;
use tallystone_model::Recorded;
use tallystone_proto::history::v1::{Activity, IndexedMessage};

/// A history store on Elasticsearch or OpenSearch.
pub struct Elastic {
    link: link::Link,
    names: names::Names,
    options: ElasticOptions,
    templates: templates::Templates,
    shown: advance::Shown,
}

impl Elastic {
    /// Nothing is asked of the server yet, so it may be away: the first call that needs it will say so.
    pub fn new(options: ElasticOptions) -> Result<Elastic, HistoryError> {
        Ok(Elastic {
            link: link::Link::new(&options)?,
            names: names::Names::new(&options.prefix)?,
            templates: templates::Templates::default(),
            shown: advance::Shown::default(),
            options,
        })
    }

    /// Makes or upgrades the templates and mappings now, rather than with the first write.
    pub async fn prepare(&self) -> Result<(), HistoryError> {
        self.templates.ensure(self).await
    }

    /// The bodies of the `_bulk` requests that [`record`](HistoryStore::record) sends for these events: to measure the
    /// server alone.
    pub fn bulk_requests(&self, events: &[Recorded]) -> Vec<Bytes> {
        record::requests(self, events)
    }
}

impl HistoryStore for Elastic {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        record::record(self, events).await
    }

    async fn advance(&self, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        advance::advance(self, source, up_to_ms).await
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        advance::watermark(self).await
    }

    async fn trace(&self, query: &TraceQuery) -> Result<Trace, HistoryError> {
        trace::trace(self, query).await
    }

    async fn search(&self, query: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        search::search(self, query).await
    }

    async fn stats(&self, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        stats::stats(self, query).await
    }

    async fn depth(&self, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        depth::depth(self, query).await
    }

    async fn prune(&self, now_ms: u64) -> Result<bool, HistoryError> {
        prune::prune(self, now_ms).await
    }
}
