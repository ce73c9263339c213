//! The transitions of one id, and its newest message.

use super::cluster::Cluster;
use super::document::{CurrentDocument, HistoricDocument, PayloadDocument};
use super::filter::Filter;
use super::get::get;
use super::response::SearchResponse;
use crate::store::{HistoryError, Trace, TraceQuery};
use bytes::Bytes;
use serde_json::{Value, json};
use tallystone_proto::history::v1::{IndexedMessage, TracedTransition};

/// Transitions in one response. The server's limit is 10,000.
const PAGE: usize = 2_000;

pub(super) async fn trace(cluster: &Cluster, query: &TraceQuery) -> Result<Trace, HistoryError> {
    let ((transitions, more), message) = futures::try_join!(transitions(cluster, query), message(cluster, query))?;
    Ok(Trace { transitions, more, message })
}

/// Transitions up to the limit, and whether there are more.
async fn transitions(cluster: &Cluster, query: &TraceQuery) -> Result<(Vec<TracedTransition>, bool), HistoryError> {
    let historic = &cluster.group_of(query.queue.as_str()).names.historic;
    let mut transitions: Vec<TracedTransition> = Vec::new();
    let mut after = query.after;
    while transitions.len() <= query.limit {
        let size = PAGE.min(query.limit + 1 - transitions.len());
        let mut body = json!({
            "size": size,
            "track_total_hits": false,
            "query": filter(query).query(),
            "sort": [{ "sequence": "asc" }, { "version": "asc" }],
        });
        if let Some((sequence, version)) = after {
            body["search_after"] = json!([sequence, version]);
        }
        let found: SearchResponse<HistoricDocument> = cluster.client.search(historic, &body).await?;
        let is_full = found.len() == size;
        transitions.extend(found.into_sources().map(|document| -> TracedTransition { document.into() }));
        if !is_full {
            break;
        }
        after = transitions.last().map(|transition| (transition.sequence, transition.version));
    }
    let more = transitions.len() > query.limit;
    transitions.truncate(query.limit);
    Ok((transitions, more))
}

/// The newest message, with the payload that its first transition carried.
async fn message(cluster: &Cluster, query: &TraceQuery) -> Result<Option<IndexedMessage>, HistoryError> {
    let names = &cluster.group_of(query.queue.as_str()).names;
    let found: SearchResponse<CurrentDocument> = cluster.client.search(&names.current, &newest(query)).await?;
    let Some(hit) = found.hits().into_iter().next() else { return Ok(None) };
    let payload = payload(cluster, &names.payloads_of(&hit.index), &hit.id).await?;
    Ok(Some(IndexedMessage { payload, ..hit.source.into() }))
}

/// The beginning of the payload, if the message's first event carried it.
async fn payload(cluster: &Cluster, index: &str, key: &str) -> Result<Option<Bytes>, HistoryError> {
    let found = get::<PayloadDocument>(&cluster.client, index, &[key]).await?;
    Ok(found.into_iter().flatten().next().and_then(PayloadDocument::decode))
}

fn newest(query: &TraceQuery) -> Value {
    json!({
        "size": 1,
        "track_total_hits": false,
        "query": filter(query).query(),
        "sort": [{ "sequence": "desc" }],
        "_source": { "excludes": ["metadata_pairs"] },
    })
}

fn filter(query: &TraceQuery) -> Filter {
    let filter = Filter::default().term("queue", query.queue.as_str()).term("id", query.id.as_str());
    match query.sequence {
        Some(sequence) => filter.term("sequence", sequence),
        None => filter,
    }
}
