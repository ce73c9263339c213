//! rpc SearchMessages (Q20).

use super::token::Pages;
use super::visible::{restrict_messages, visible_queues};
use super::{fields, status, uncertain, watermark};
use crate::clock::now_ms;
use crate::store::{HistoryStore, Queues, SearchPosition, SearchQuery};
use tallystone_model::limits::{PAGE_ITEMS_MAX, REASON_BYTES_MAX, WORKER_BYTES_MAX};
use tallystone_proto::history::v1 as pb;
use tallystone_serving::Access;
use tonic::{Request, Status};

const PAGE_ITEMS: usize = 100;

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: Request<pb::SearchMessagesRequest>,
) -> Result<pb::SearchMessagesResponse, Status> {
    let access = Access::of(request.extensions());
    let mut request = request.into_inner();
    let page_token = std::mem::take(&mut request.page_token);
    let page_size = std::mem::take(&mut request.page_size);
    let page_size = fields::count("page_size", page_size, PAGE_ITEMS, PAGE_ITEMS_MAX)?;
    let mut query = query(request.clone())?;
    query.queues = visible_queues(&access, query.queues);
    let pages = Pages { rpc: "SearchMessages", request };
    query.after = pages
        .position(&page_token, now_ms())?
        .map(|(enqueued_at_ms, sequence, queue, shard)| SearchPosition { enqueued_at_ms, sequence, queue, shard });
    // One more message than the page shows whether there is another page.
    query.limit = page_size + 1;
    let reached = watermark::reached(store).await?;
    let search = async { store.search(&query).await.map_err(status::of_store) };
    let (mut messages, losses) = futures::try_join!(search, uncertain::losses(store, &query.queues))?;
    let more = messages.len() > page_size;
    messages.truncate(page_size);
    losses.mark(&mut messages);
    restrict_messages(&access, &mut messages);
    let next_page_token = match messages.last().filter(|_| more).map(SearchPosition::of) {
        Some(last) => pages.token((last.enqueued_at_ms, last.sequence, last.queue, last.shard), now_ms()),
        None => String::new(),
    };
    Ok(pb::SearchMessagesResponse { messages, next_page_token, watermark: Some(reached.watermark()) })
}

fn query(request: pb::SearchMessagesRequest) -> Result<SearchQuery, Status> {
    let state = |(i, number): (usize, &i32)| fields::state(&format!("states[{i}]"), *number);
    let query = SearchQuery {
        queues: fields::unless_empty(&request.queue, fields::queue)?.map_or_else(Queues::default, Queues::One),
        states: request.states.iter().enumerate().map(state).collect::<Result<_, _>>()?,
        metadata: fields::metadata(request.metadata)?,
        worker: fields::text("worker", request.worker, WORKER_BYTES_MAX)?,
        reason_contains: fields::text("reason_contains", request.reason_contains, REASON_BYTES_MAX)?,
        changed_from_ms: fields::time_ms("changed_from_ms", request.changed_from_ms)?,
        changed_to_ms: fields::time_ms("changed_to_ms", request.changed_to_ms)?,
        include_gone: request.include_gone,
        id: fields::unless_empty(&request.id, fields::id)?,
        limit: 0,
        after: None,
    };
    match (query.changed_from_ms, query.changed_to_ms) {
        (Some(from_ms), Some(to_ms)) if from_ms >= to_ms => {
            let why = format!("is {from_ms}; must be before changed_to_ms, which is {to_ms}");
            Err(status::invalid("changed_from_ms", why))
        }
        _ => Ok(query),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(request: pb::SearchMessagesRequest) -> String {
        query(request).expect_err("a malformed request").message().to_owned()
    }

    #[test]
    fn q20_an_empty_request_matches_everything() {
        assert_eq!(query(pb::SearchMessagesRequest::default()).unwrap(), SearchQuery::default());
    }

    #[test]
    fn q20_malformed_searches_are_refused_with_the_field() {
        let any = pb::SearchMessagesRequest::default;
        let long = "x".repeat(300);
        let pairs = |count: usize| (0..count).map(|n| (n.to_string(), "v".to_owned())).collect();
        for (field, request) in [
            ("queue", pb::SearchMessagesRequest { queue: "a b".to_owned(), ..any() }),
            ("id", pb::SearchMessagesRequest { id: "a\n".to_owned(), ..any() }),
            ("states[1]", pb::SearchMessagesRequest { states: vec![2, 0], ..any() }),
            ("states[0]", pb::SearchMessagesRequest { states: vec![7], ..any() }),
            ("states[0]", pb::SearchMessagesRequest { states: vec![-1], ..any() }),
            ("metadata", pb::SearchMessagesRequest { metadata: pairs(5), ..any() }),
            ("worker", pb::SearchMessagesRequest { worker: long.clone(), ..any() }),
            ("reason_contains", pb::SearchMessagesRequest { reason_contains: long.clone(), ..any() }),
            ("changed_from_ms", pb::SearchMessagesRequest { changed_from_ms: -1, ..any() }),
            ("changed_to_ms", pb::SearchMessagesRequest { changed_to_ms: i64::MAX, ..any() }),
            ("changed_from_ms", pb::SearchMessagesRequest { changed_from_ms: 5, changed_to_ms: 5, ..any() }),
        ] {
            let refused = refused(request);
            assert!(refused.starts_with(&format!("{field}: ")), "{field}: {refused}");
        }
    }
}
