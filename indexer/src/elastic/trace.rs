//! The transitions of one message.

use super::Elastic;
use super::document::{Current, Historic, Payload};
use super::filter::Filter;
use super::get::get;
use super::search::Found;
use crate::store::{HistoryError, Trace, TraceQuery};
use bytes::Bytes;
use serde_json::{Value, json};
use tallystone_proto::history::v1::{IndexedMessage, TracedTransition};

/// The server answers at most 10,000 at once.
const PAGE: usize = 2_000;

pub(super) async fn trace(elastic: &Elastic, query: &TraceQuery) -> Result<Trace, HistoryError> {
    let (found, message) = futures::try_join!(transitions(elastic, query), message(elastic, query))?;
    let (transitions, more) = found;
    Ok(Trace { transitions, more, message })
}

/// At most the limit, and whether there are more.
async fn transitions(elastic: &Elastic, query: &TraceQuery) -> Result<(Vec<TracedTransition>, bool), HistoryError> {
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
        let found: Found<Historic> = elastic.link.search(&elastic.names.historic, &body).await?;
        let full = found.hits.hits.len() == size;
        transitions.extend(found.into_sources().map(|document| -> TracedTransition { document.into() }));
        if !full {
            break;
        }
        after = transitions.last().map(|transition| (transition.sequence, transition.version));
    }
    let more = transitions.len() > query.limit;
    transitions.truncate(query.limit);
    Ok((transitions, more))
}

/// The newest message, with the payload that its first transition carried.
async fn message(elastic: &Elastic, query: &TraceQuery) -> Result<Option<IndexedMessage>, HistoryError> {
    let body = newest(query);
    let found: Found<Current> = elastic.link.search(&elastic.names.current, &body).await?;
    let Some(hit) = found.hits.hits.into_iter().next() else { return Ok(None) };
    let payload = payload(elastic, &hit.id).await?;
    Ok(Some(IndexedMessage { payload, ..hit.source.into() }))
}

/// What the message carried, as far as its first event told.
async fn payload(elastic: &Elastic, key: &str) -> Result<Option<Bytes>, HistoryError> {
    let got = get::<Payload>(&elastic.link, &elastic.names.payload, &[key]).await?;
    Ok(got.into_iter().flatten().next().and_then(Payload::decode))
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
