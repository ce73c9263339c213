//! rpc IndexedDepth (Q20).

use super::token::Pages;
use super::visible::visible_queues;
use super::{fields, status, uncertain, watermark};
use crate::clock::now_ms;
use crate::store::{DepthQuery, GroupBy, Grouping, HistoryStore, Queues};
use tallystone_model::limits::{METADATA_KEY_BYTES_MAX, QUEUE_NAME_BYTES_MAX};
use tallystone_proto::history::v1 as pb;
use tallystone_proto::queue::v1::StateCounts;
use tallystone_serving::Access;
use tonic::{Request, Status};

const GROUPS: usize = 100;
const GROUPS_MAX: usize = 1_000;
/// Losses in one response.
const LOSSES_MAX: usize = 1_000;

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: Request<pb::IndexedDepthRequest>,
) -> Result<pb::IndexedDepthResponse, Status> {
    let access = Access::of(request.extensions());
    let mut request = request.into_inner();
    let page_token = std::mem::take(&mut request.page_token);
    let page_size = fields::count("page_size", std::mem::take(&mut request.page_size), GROUPS, GROUPS_MAX)?;
    let mut query = query(&request)?;
    query.queues = visible_queues(&access, query.queues);
    let by = group_by(&request)?;
    let pages = Pages { rpc: "IndexedDepth", request };
    let after: Option<String> = pages.position(&page_token, now_ms())?;
    let reached = watermark::reached(store).await?;
    let losses = uncertain::losses(store, &query.queues).await?;
    let counts = store.depth(&query).await.map_err(status::of_store)?;
    let mut response = pb::IndexedDepthResponse { counts: Some(state_counts(counts)), ..Default::default() };
    if let Some(by) = by {
        // One more group than the page shows whether there is another page.
        let grouping = Grouping { by, after, limit: page_size + 1 };
        let mut groups = store.depth_by(&query, &grouping).await.map_err(status::of_store)?;
        let more = groups.len() > page_size;
        groups.truncate(page_size);
        if let Some((last, _)) = groups.last().filter(|_| more) {
            response.next_page_token = pages.token(last, now_ms());
        }
        let group = |(value, counts)| pb::DepthGroup { value, counts: Some(state_counts(counts)) };
        response.groups = groups.into_iter().map(group).collect();
    }
    if !losses.is_empty() {
        let losses = losses.into_inner();
        response.losses = losses.iter().take(LOSSES_MAX).map(uncertain::to_wire).collect();
        let query = DepthQuery { uncertain_by: Some(losses), ..query };
        response.uncertain = Some(state_counts(store.depth(&query).await.map_err(status::of_store)?));
    }
    response.watermark = Some(reached.watermark());
    Ok(response)
}

fn state_counts([invisible, pending, running, completed, canceled, errored]: [u64; 6]) -> StateCounts {
    StateCounts { invisible, pending, running, completed, canceled, errored }
}

fn query(request: &pb::IndexedDepthRequest) -> Result<DepthQuery, Status> {
    let queues = match &request.queue_prefix {
        Some(_) if !request.queue.is_empty() => {
            return Err(status::invalid("queue_prefix", "is set together with queue".to_owned()));
        }
        Some(prefix) => Queues::WithPrefix(fields::text("queue_prefix", prefix.clone(), QUEUE_NAME_BYTES_MAX)?),
        None => Queues::One(fields::queue(&request.queue)?),
    };
    let query = DepthQuery {
        metadata: fields::metadata(request.metadata.clone())?,
        priority_min: request.priority_min,
        priority_max: request.priority_max,
        enqueued_from_ms: fields::time_ms("enqueued_from_ms", request.enqueued_from_ms)?,
        enqueued_to_ms: fields::time_ms("enqueued_to_ms", request.enqueued_to_ms)?,
        ..DepthQuery::of(queues)
    };
    if let (Some(min), Some(max)) = (query.priority_min, query.priority_max)
        && min > max
    {
        let why = format!("is {min}; must not be above priority_max, which is {max}");
        return Err(status::invalid("priority_min", why));
    }
    match (query.enqueued_from_ms, query.enqueued_to_ms) {
        (Some(from_ms), Some(to_ms)) if from_ms >= to_ms => {
            let why = format!("is {from_ms}; must be before enqueued_to_ms, which is {to_ms}");
            Err(status::invalid("enqueued_from_ms", why))
        }
        _ => Ok(query),
    }
}

fn group_by(request: &pb::IndexedDepthRequest) -> Result<Option<GroupBy>, Status> {
    match (request.group_by_queue, request.group_by_key.as_str()) {
        (false, "") => Ok(None),
        (true, "") => Ok(Some(GroupBy::Queue)),
        (true, _) => Err(status::invalid("group_by_key", "is set together with group_by_queue".to_owned())),
        (false, key) => {
            let key = fields::text("group_by_key", key.to_owned(), METADATA_KEY_BYTES_MAX)?;
            Ok(Some(GroupBy::Key(key)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q20_malformed_depths_are_refused_with_the_field() {
        let any = || pb::IndexedDepthRequest { queue_prefix: Some("q".to_owned()), ..Default::default() };
        assert_eq!(query(&any()).unwrap(), DepthQuery::of(Queues::WithPrefix("q".to_owned())));
        for (field, request) in [
            ("queue", pb::IndexedDepthRequest { queue_prefix: None, ..any() }),
            ("queue_prefix", pb::IndexedDepthRequest { queue: "q".to_owned(), ..any() }),
            ("queue_prefix", pb::IndexedDepthRequest { queue_prefix: Some("\n".to_owned()), ..any() }),
            ("priority_min", pb::IndexedDepthRequest { priority_min: Some(2), priority_max: Some(1), ..any() }),
            ("enqueued_from_ms", pb::IndexedDepthRequest { enqueued_from_ms: -1, ..any() }),
            ("enqueued_from_ms", pb::IndexedDepthRequest { enqueued_from_ms: 5, enqueued_to_ms: 5, ..any() }),
            ("group_by_key", pb::IndexedDepthRequest { group_by_key: "x".repeat(300), ..any() }),
            ("group_by_key", pb::IndexedDepthRequest { group_by_key: "k".to_owned(), group_by_queue: true, ..any() }),
        ] {
            let refused = query(&request).and_then(|_| group_by(&request)).expect_err(field);
            assert!(refused.message().starts_with(&format!("{field}: ")), "{field}: {}", refused.message());
        }
    }
}
