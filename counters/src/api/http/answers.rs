//! Bodies of answers: the messages of the protocol file, as JSON.

use serde::Serialize;
use tallystone_proto::counter::v1 as wire;
use tallystone_serving::http::FaultBody;
use utoipa::ToSchema;

/// The result of an add or a clear.
#[derive(Serialize, ToSchema)]
pub(crate) struct AddedBody {
    event_time_ms: i64,
    /// True: an earlier call counted the event already, and this call changed nothing.
    duplicate: bool,
}

/// The result of an add, and the count.
#[derive(Serialize, ToSchema)]
pub(crate) struct AddedAndCountedBody {
    event_time_ms: i64,
    duplicate: bool,
    count: i64,
    exact_to_ms: i64,
}

/// A count.
#[derive(Serialize, ToSchema)]
pub(crate) struct CountBody {
    count: i64,
    /// The count includes every event before this time (Unix ms), and no earlier one can be added; 0: not rolled up yet,
    /// or BEST_EFFORT.
    exact_to_ms: i64,
    /// BEST_EFFORT, EVENTUAL or ACCURATE.
    counter_type: &'static str,
    /// Only of a global count: the part of each region.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    regions: Vec<RegionCountBody>,
}

/// The part of one region in a global count.
#[derive(Serialize, ToSchema)]
pub(crate) struct RegionCountBody {
    region: String,
    count: i64,
    /// This part includes every event of the region before this time (Unix ms); 0: nothing is known of the region.
    exact_to_ms: i64,
}

/// The result of one item of a batch.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum ItemBody<T> {
    /// The item took effect, or was read.
    Ok(T),
    /// The item was refused. This does not affect the other items.
    Refused(FaultBody),
}

/// One result for each item, in the order of the request.
#[derive(Serialize, ToSchema)]
pub(crate) struct ResultsBody<T> {
    pub(super) results: Vec<ItemBody<T>>,
}

/// A page of counters.
#[derive(Serialize, ToSchema)]
pub(crate) struct CountersBody {
    counters: Vec<CounterBody>,
    /// Empty: this is the last page.
    next_page_token: String,
}

/// A counter after its last rollup.
#[derive(Serialize, ToSchema)]
pub(crate) struct CounterBody {
    counter: String,
    count: i64,
    exact_to_ms: i64,
    last_write_ms: i64,
}

/// A page of events.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventsBody {
    events: Vec<EventBody>,
    next_page_token: String,
}

/// An event.
#[derive(Serialize, ToSchema)]
pub(crate) struct EventBody {
    event_time_ms: i64,
    token: String,
    delta: i64,
    clear: bool,
    /// Only of an add that has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    source: String,
    /// Only of an add that has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    event_item_key: String,
}

/// A page of sums.
#[derive(Serialize, ToSchema)]
pub(crate) struct SumsBody {
    /// The periods with adds.
    sums: Vec<SumBody>,
    /// Empty: this is the last page.
    next_page_token: String,
    /// No add before this time (Unix ms) can come any more.
    exact_to_ms: i64,
    /// Adds before this time (Unix ms) are older than delete_after_ms, or were when that was shorter, and may have been dropped.
    kept_from_ms: i64,
}

/// The adds of one period.
#[derive(Serialize, ToSchema)]
pub(crate) struct SumBody {
    /// When the period begins, in Unix ms.
    from_ms: i64,
    sum: i64,
    /// The number of its adds.
    adds: i64,
}

impl From<wire::AddCountResponse> for AddedBody {
    fn from(wire::AddCountResponse { event_time_ms, duplicate }: wire::AddCountResponse) -> Self {
        AddedBody { event_time_ms, duplicate }
    }
}

impl From<wire::ClearCountResponse> for AddedBody {
    fn from(wire::ClearCountResponse { event_time_ms, duplicate }: wire::ClearCountResponse) -> Self {
        AddedBody { event_time_ms, duplicate }
    }
}

impl From<wire::DeleteCounterResponse> for AddedBody {
    fn from(wire::DeleteCounterResponse { event_time_ms, duplicate }: wire::DeleteCounterResponse) -> Self {
        AddedBody { event_time_ms, duplicate }
    }
}

impl From<wire::AddAndGetCountResponse> for AddedAndCountedBody {
    fn from(answer: wire::AddAndGetCountResponse) -> Self {
        let wire::AddAndGetCountResponse { event_time_ms, duplicate, count, exact_to_ms } = answer;
        AddedAndCountedBody { event_time_ms, duplicate, count, exact_to_ms }
    }
}

impl From<wire::GetCountResponse> for CountBody {
    fn from(answer: wire::GetCountResponse) -> Self {
        // The seed spells the types without the prefix that protobuf's enum values carry.
        let counter_type = answer.counter_type().as_str_name().trim_start_matches("COUNTER_TYPE_");
        let wire::GetCountResponse { count, exact_to_ms, regions, .. } = answer;
        let part = |wire::RegionCount { region, count, exact_to_ms }| RegionCountBody { region, count, exact_to_ms };
        CountBody { count, exact_to_ms, counter_type, regions: regions.into_iter().map(part).collect() }
    }
}

impl From<wire::ListCountersResponse> for CountersBody {
    fn from(wire::ListCountersResponse { counters, next_page_token }: wire::ListCountersResponse) -> Self {
        CountersBody { counters: counters.into_iter().map(CounterBody::from).collect(), next_page_token }
    }
}

impl From<wire::CounterEntry> for CounterBody {
    fn from(entry: wire::CounterEntry) -> Self {
        let wire::CounterEntry { counter, count, exact_to_ms, last_write_ms } = entry;
        CounterBody { counter, count, exact_to_ms, last_write_ms }
    }
}

impl From<wire::ListEventsResponse> for EventsBody {
    fn from(wire::ListEventsResponse { events, next_page_token }: wire::ListEventsResponse) -> Self {
        let event = |event: wire::CounterEvent| {
            let wire::CounterEvent { event_time_ms, token, delta, clear, source, event_item_key } = event;
            EventBody { event_time_ms, token, delta, clear, source, event_item_key }
        };
        EventsBody { events: events.into_iter().map(event).collect(), next_page_token }
    }
}

impl From<wire::GetSumsResponse> for SumsBody {
    fn from(answer: wire::GetSumsResponse) -> Self {
        let wire::GetSumsResponse { sums, next_page_token, exact_to_ms, kept_from_ms } = answer;
        let sum = |wire::PeriodSum { from_ms, sum, adds }| SumBody { from_ms, sum, adds };
        SumsBody { sums: sums.into_iter().map(sum).collect(), next_page_token, exact_to_ms, kept_from_ms }
    }
}
