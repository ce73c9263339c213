//! The store: each call of the trait is one file of this folder.

use super::cluster::Cluster;
use super::options::ElasticOptions;
use super::{advance, depth, losses, prune, record, repair, search, stats, trace};
use crate::store::*;
use bytes::Bytes;
use std::sync::Arc;
use tallystone_model::{Loss, Recorded};
use tallystone_proto::history::v1::{Activity, IndexedMessage};

/// A history store in Elasticsearch or OpenSearch.
pub struct Elastic {
    cluster: Arc<Cluster>,
    /// The group whose topic has the sources of [`advance`](HistoryStore::advance).
    topic: usize,
}

impl Elastic {
    /// Checks the options. Sends nothing, so the server may be away: the first call that needs it returns the error.
    pub fn new(options: ElasticOptions) -> Result<Elastic, HistoryError> {
        Ok(Elastic { cluster: Arc::new(Cluster::new(options)?), topic: 0 })
    }

    /// The same store for the indexer of another topic: that of the group with this number, from 0 in the options. `None`:
    /// there is no such group.
    pub fn of_topic(&self, group: usize) -> Option<Elastic> {
        let topic = group + 1;
        self.cluster.groups.get(topic)?;
        Some(Elastic { cluster: self.cluster.clone(), topic })
    }

    /// Creates or upgrades the templates and mappings now instead of before the first write.
    pub async fn prepare(&self) -> Result<(), HistoryError> {
        self.cluster.ensure_templates().await
    }

    /// The bodies of the `_bulk` requests that [`record`](HistoryStore::record) sends for these events. Benchmarks
    /// send them to measure the server alone.
    pub async fn bulk_requests(&self, events: &[Recorded]) -> Result<Vec<Bytes>, HistoryError> {
        record::requests(&self.cluster, events).await
    }
}

impl HistoryStore for Elastic {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        record::record(&self.cluster, events).await
    }

    async fn record_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        losses::record(&self.cluster, losses).await
    }

    async fn losses(&self, queues: &Queues) -> Result<Vec<Loss>, HistoryError> {
        losses::losses(&self.cluster, queues).await
    }

    async fn settle_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        losses::settle(&self.cluster, losses).await
    }

    async fn repair(&self, messages: &[IndexedMessage]) -> Result<Vec<bool>, HistoryError> {
        repair::repair(&self.cluster, messages).await
    }

    async fn advance(&self, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        advance::advance(&self.cluster, &self.cluster.groups[self.topic], source, up_to_ms).await
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        advance::watermark(&self.cluster).await
    }

    async fn trace(&self, query: &TraceQuery) -> Result<Trace, HistoryError> {
        trace::trace(&self.cluster, query).await
    }

    async fn search(&self, query: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        search::search(&self.cluster, query).await
    }

    async fn stats(&self, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        stats::stats(&self.cluster, query).await
    }

    async fn depth(&self, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        depth::depth(&self.cluster, query).await
    }

    async fn depth_by(&self, query: &DepthQuery, grouping: &Grouping) -> Result<Vec<(String, [u64; 6])>, HistoryError> {
        depth::depth_by(&self.cluster, query, grouping).await
    }

    async fn prune(&self, now_ms: u64) -> Result<bool, HistoryError> {
        prune::prune(&self.cluster, now_ms).await
    }
}
