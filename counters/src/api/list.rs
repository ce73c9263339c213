//! ListCounters and ListEvents (N12), page by page.

use super::status::of_call;
use super::wire::{namespace, range};
use crate::log::{Change, Event};
use crate::names::{CounterName, Token};
use crate::redis::ListedCounter;
use crate::refusal::Refusal;
use crate::service::{CounterService, EventPosition};
use tallystone_proto::counter::v1 as wire;
use tonic::Status;

const PAGE_ITEMS: usize = 100;
const PAGE_ITEMS_MAX: i32 = 1_000;

fn page_size(size: i32) -> Result<usize, Status> {
    match size {
        0 => Ok(PAGE_ITEMS),
        1..=PAGE_ITEMS_MAX => Ok(size as usize),
        size => Err(of_call(Refusal::invalid("page_size", format!("is {size}; must be from 0 to {PAGE_ITEMS_MAX}")))),
    }
}

pub(super) async fn counters(
    counters: &CounterService,
    request: wire::ListCountersRequest,
) -> Result<wire::ListCountersResponse, Status> {
    let name = namespace(request.namespace)?;
    let count = page_size(request.page_size)?;
    let page = counters.list(&name, &request.page_token, count).await.map_err(of_call)?;
    let next_page_token = page.next.unwrap_or_default();
    Ok(wire::ListCountersResponse { counters: page.counters.into_iter().map(entry).collect(), next_page_token })
}

/// A counter of a list.
pub(super) fn entry(ListedCounter { counter, checkpoint }: ListedCounter) -> wire::CounterEntry {
    wire::CounterEntry {
        counter: counter.to_string(),
        count: checkpoint.count,
        exact_to_ms: checkpoint.exact_to_ms as i64,
        last_write_ms: checkpoint.last_write_ms as i64,
    }
}

pub(super) async fn events(
    counters: &CounterService,
    request: wire::ListEventsRequest,
) -> Result<wire::ListEventsResponse, Status> {
    let name = namespace(request.namespace)?;
    let counter = CounterName::parse(request.counter).map_err(of_call)?;
    let count = page_size(request.page_size)?;
    let mut within = range(request.from_ms, request.to_ms)?;
    let from = position(&request.page_token)?.map(|(from, end_ms)| {
        within.end = if within.end == 0 { end_ms } else { within.end };
        from
    });
    let page = counters.events(&name, &counter, within, from, count).await.map_err(of_call)?;
    let event = |Event { time_ms, token, change, labels }: Event| {
        let (delta, clear) = match change {
            Change::Add(delta) => (delta, false),
            Change::Clear => (0, true),
        };
        let (source, event_item_key) = (labels.source().to_owned(), labels.event_item_key().to_owned());
        let (event_time_ms, token) = (time_ms as i64, token.to_string());
        wire::CounterEvent { event_time_ms, token, delta, clear, source, event_item_key }
    };
    let page_token = |EventPosition { time_ms, token }| {
        let token = token.as_ref().map(Token::as_str).unwrap_or_default();
        format!("{time_ms}.{token}.{}", page.end_ms)
    };
    let next_page_token = page.next.map(page_token).unwrap_or_default();
    Ok(wire::ListEventsResponse { events: page.events.into_iter().map(event).collect(), next_page_token })
}

/// Where a page begins, and where the list ends (Unix ms). The token between them may have any character.
fn position(page_token: &str) -> Result<Option<(EventPosition, u64)>, Status> {
    if page_token.is_empty() {
        return Ok(None);
    }
    let read = || {
        let (time_ms, rest) = page_token.split_once('.')?;
        let (token, end_ms) = rest.rsplit_once('.')?;
        let token = if token.is_empty() { None } else { Some(Token::parse(token).ok()?) };
        Some((EventPosition { time_ms: time_ms.parse().ok()?, token }, end_ms.parse().ok()?))
    };
    let unknown = || of_call(Refusal::invalid("page_token", "is not a page token of this list"));
    read().map(Some).ok_or_else(unknown)
}
