//! Messages by state, of all that match or by groups.

use super::cluster::Cluster;
use super::document::pair;
use super::filter::Filter;
use super::response::TermsAggregation;
use crate::store::{DepthQuery, GroupBy, Grouping, HistoryError};
use serde::Deserialize;
use serde_json::{Value, json};
use tallystone_model::{Loss, State};

/// Losses in one query: each has three conditions, and the server's limit of conditions is 1,024 where it has little memory.
const LOSSES: usize = 300;
/// Groups in one response.
const PAGE: usize = 1_000;

#[derive(Deserialize)]
struct DepthResponse {
    aggregations: Option<States>,
}

#[derive(Deserialize)]
struct States {
    states: TermsAggregation<State>,
}

#[derive(Deserialize)]
struct GroupsResponse {
    aggregations: Option<Groups>,
}

#[derive(Deserialize)]
struct Groups {
    groups: GroupBuckets,
}

#[derive(Deserialize)]
struct GroupBuckets {
    buckets: Vec<GroupBucket>,
}

#[derive(Deserialize)]
struct GroupBucket {
    key: GroupKey,
    states: TermsAggregation<State>,
}

#[derive(Deserialize)]
struct GroupKey {
    value: String,
}

pub(super) async fn depth(cluster: &Cluster, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
    let mut depth = [0; 6];
    let (indices, of_queues) = cluster.messages_of(&query.queues, filter(query));
    let parts: Vec<Option<&[Loss]>> = match &query.uncertain_by {
        // Each shard has at most one loss, so no message counts in two parts.
        Some(losses) => losses.chunks(LOSSES).map(Some).collect(),
        None => vec![None],
    };
    for losses in parts {
        let body = json!({
            "size": 0,
            "track_total_hits": false,
            "query": within(of_queues.clone(), losses).query(),
            "aggs": { "states": states() },
        });
        let response: DepthResponse = cluster.client.search(&indices, &body).await?;
        // The response has no aggregations if there is no index.
        if let Some(found) = response.aggregations {
            found.states.add_to(&mut depth);
        }
    }
    Ok(depth)
}

/// The groups page by page. A composite aggregation is exact on any number of shards, and is in the order of bytes.
pub(super) async fn depth_by(
    cluster: &Cluster,
    query: &DepthQuery,
    grouping: &Grouping,
) -> Result<Vec<(String, [u64; 6])>, HistoryError> {
    let (field, prefix) = match &grouping.by {
        GroupBy::Queue => ("queue", String::new()),
        GroupBy::Key(key) => ("metadata_pairs", pair(key, "")),
    };
    // A value has at least one character, so the first one is after the prefix alone.
    let mut after = match &grouping.after {
        Some(after) => Some(format!("{prefix}{after}")),
        None if prefix.is_empty() => None,
        None => Some(prefix.clone()),
    };
    let mut groups = Vec::new();
    let (indices, of_queues) = cluster.messages_of(&query.queues, filter(query));
    let searched = within(of_queues, query.uncertain_by.as_deref()).query();
    loop {
        let size = PAGE.min(grouping.limit - groups.len());
        let mut composite = json!({ "size": size, "sources": [{ "value": { "terms": { "field": field } } }] });
        if let Some(after) = &after {
            composite["after"] = json!({ "value": after });
        }
        let body = json!({
            "size": 0,
            "track_total_hits": false,
            "query": searched,
            "aggs": { "groups": { "composite": composite, "aggs": { "states": states() } } },
        });
        let response: GroupsResponse = cluster.client.search(&indices, &body).await?;
        let found = response.aggregations.map(|found| found.groups.buckets).unwrap_or_default();
        let is_full = found.len() == size;
        for GroupBucket { key: GroupKey { value }, states } in found {
            let Some(group) = value.strip_prefix(&prefix) else { return Ok(groups) };
            let mut depth = [0; 6];
            states.add_to(&mut depth);
            groups.push((group.to_owned(), depth));
            after = Some(value);
        }
        if !is_full || groups.len() == grouping.limit {
            return Ok(groups);
        }
    }
}

fn states() -> Value {
    json!({ "terms": { "field": "state", "size": State::ALL.len() } })
}

fn filter(query: &DepthQuery) -> Filter {
    let filter = Filter::default().queues(&query.queues).term("gone", false).pairs(&query.metadata);
    let filter = filter.range("enqueued_at_ms", query.enqueued_from_ms, query.enqueued_to_ms);
    filter.within("priority", query.priority_min, query.priority_max)
}

/// The messages that are uncertain by these losses; `None`: all.
fn within(filter: Filter, losses: Option<&[Loss]>) -> Filter {
    match losses {
        Some(losses) => filter.uncertain_by(losses),
        None => filter,
    }
}

impl TermsAggregation<State> {
    fn add_to(self, depth: &mut [u64; 6]) {
        for bucket in self.buckets {
            depth[bucket.key as usize - 1] += bucket.doc_count;
        }
    }
}
