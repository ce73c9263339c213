//! Messages by state.

use super::Elastic;
use super::filter::Filter;
use super::stats::Terms;
use crate::store::{DepthQuery, HistoryError};
use serde::Deserialize;
use serde_json::json;
use tallystone_model::State;

#[derive(Deserialize)]
struct Counted {
    aggregations: Option<ByState>,
}

#[derive(Deserialize)]
struct ByState {
    states: Terms<State>,
}

pub(super) async fn depth(elastic: &Elastic, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
    let filter = Filter::default().term("queue", query.queue.as_str()).term("gone", false).has(&query.metadata);
    let body = json!({
        "size": 0,
        "track_total_hits": false,
        "query": filter.query(),
        "aggs": { "states": { "terms": { "field": "state", "size": State::ALL.len() } } },
    });
    let counted: Counted = elastic.link.search(&elastic.names.current, &body).await?;
    let mut depth = [0; 6];
    // Without an index there is no aggregation.
    for bucket in counted.aggregations.into_iter().flat_map(|by| by.states.buckets) {
        depth[bucket.key as usize - 1] += bucket.doc_count;
    }
    Ok(depth)
}
