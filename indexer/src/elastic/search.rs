//! Messages by their fields.

use super::cluster::Cluster;
use super::document::CurrentDocument;
use super::filter::Filter;
use super::response::SearchResponse;
use crate::store::{HistoryError, SearchPosition, SearchQuery};
use serde_json::{Value, json};
use tallystone_proto::history::v1::IndexedMessage;

/// Messages in one response, a few megabytes. The server's limit is 10,000.
const PAGE: usize = 1_000;

/// Reads up to the limit page by page; each page begins after the last message of the previous one.
pub(super) async fn search(cluster: &Cluster, query: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
    let (indices, filter) = cluster.messages_of(&query.queues, filter(query));
    let mut messages: Vec<IndexedMessage> = Vec::new();
    let mut after = query.after.clone();
    while messages.len() < query.limit {
        let size = PAGE.min(query.limit - messages.len());
        let body = body(filter.clone(), after, size);
        let found: SearchResponse<CurrentDocument> = cluster.client.search(&indices, &body).await?;
        let is_full = found.len() == size;
        messages.extend(found.into_sources().map(IndexedMessage::from));
        if !is_full {
            break;
        }
        after = messages.last().map(SearchPosition::of);
    }
    Ok(messages)
}

fn body(filter: Filter, after: Option<SearchPosition>, size: usize) -> Value {
    let mut body = json!({
        "size": size,
        "track_total_hits": false,
        "query": filter.query(),
        "sort": [{ "enqueued_at_ms": "desc" }, { "sequence": "desc" }, { "queue": "asc" }, { "shard": "asc" }],
        "_source": { "excludes": ["metadata_pairs"] },
    });
    if let Some(SearchPosition { enqueued_at_ms, sequence, queue, shard }) = after {
        body["search_after"] = json!([enqueued_at_ms, sequence, queue, shard]);
    }
    body
}

fn filter(query: &SearchQuery) -> Filter {
    let mut filter = Filter::default().pairs(&query.metadata).queues(&query.queues);
    if !query.states.is_empty() {
        filter = filter.any_of("state", query.states.iter().map(|state| state.name()));
    }
    if !query.worker.is_empty() {
        filter = filter.term("worker", query.worker.as_str());
    }
    if !query.reason_contains.is_empty() {
        filter = filter.contains("reason", &query.reason_contains);
    }
    if let Some(id) = &query.id {
        filter = filter.term("id", id.as_str());
    }
    if !query.include_gone {
        filter = filter.term("gone", false);
    }
    filter.range("changed_at_ms", query.changed_from_ms, query.changed_to_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Queues;
    use tallystone_model::{QueueName, State};

    #[test]
    fn the_query_has_every_condition() {
        let query = SearchQuery {
            queues: Queues::One(QueueName::parse("queue", "q").unwrap()),
            states: [State::Running, State::Errored].into(),
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            worker: "w".to_owned(),
            reason_contains: "r".to_owned(),
            changed_from_ms: Some(1),
            changed_to_ms: Some(2),
            include_gone: false,
            id: None,
            limit: 10,
            after: None,
        };
        let body = body(filter(&query), None, 10);
        let filters = body["query"]["bool"]["filter"].as_array().unwrap();
        assert_eq!(filters.len(), 7);
        assert!(filters.contains(&json!({ "terms": { "state": ["running", "errored"] } })), "{body}");
        assert!(filters.contains(&json!({ "term": { "gone": false } })), "{body}");
        assert!(body.get("search_after").is_none(), "{body}");
    }

    #[test]
    fn s4_a_search_of_all_queues_may_leave_out_internal_ones() {
        let all = SearchQuery { include_gone: true, ..SearchQuery::default() };
        let filtered = |query: &SearchQuery| filter(query).query();
        let without = Filter::default().queues(&Queues::NotInternal(String::new())).query();
        assert_eq!(filtered(&SearchQuery { queues: Queues::NotInternal(String::new()), ..all.clone() }), without);
        assert_ne!(filtered(&all), without);
    }

    #[test]
    fn a_page_begins_after_the_last_message_of_the_page_before() {
        let query = SearchQuery { include_gone: true, limit: 1, ..SearchQuery::default() };
        let after = SearchPosition { enqueued_at_ms: 5, sequence: u64::MAX >> 1, queue: "q".to_owned(), shard: 3 };
        let body = body(filter(&query), Some(after), 1);
        assert_eq!(body["search_after"], json!([5, i64::MAX, "q", 3]));
        assert_eq!(body["query"], json!({ "bool": { "filter": [] } }));
    }
}
