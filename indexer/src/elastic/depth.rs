//! Messages by state.

use super::cluster::Cluster;
use super::filter::Filter;
use super::response::TermsAggregation;
use crate::store::{DepthQuery, HistoryError};
use serde::Deserialize;
use serde_json::json;
use tallystone_model::State;

#[derive(Deserialize)]
struct DepthResponse {
    aggregations: Option<DepthAggregations>,
}

#[derive(Deserialize)]
struct DepthAggregations {
    states: TermsAggregation<State>,
}

pub(super) async fn depth(cluster: &Cluster, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
    let filter = Filter::default().term("queue", query.queue.as_str()).term("gone", false).pairs(&query.metadata);
    let body = json!({
        "size": 0,
        "track_total_hits": false,
        "query": filter.query(),
        "aggs": { "states": { "terms": { "field": "state", "size": State::ALL.len() } } },
    });
    let response: DepthResponse = cluster.client.search(&cluster.names.current, &body).await?;
    let mut depth = [0; 6];
    // The response has no aggregations if there is no index.
    for bucket in response.aggregations.into_iter().flat_map(|aggregations| aggregations.states.buckets) {
        depth[bucket.key as usize - 1] += bucket.doc_count;
    }
    Ok(depth)
}
