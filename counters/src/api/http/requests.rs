//! Bodies of requests: the messages of the protocol file, as JSON. The names in Netflix's article (`counter_name`,
//! `idempotency_token`) are read too.

use super::item::Item;
use crate::Refusal;
use serde::{Deserialize, Deserializer};
use tallystone_proto::counter::v1 as wire;
use tallystone_serving::http::{Int64, Object, short_list};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::ToSchema;

/// Identifies an event, together with the counter: the same event counts once.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenBody {
    /// 1 to 64 bytes without control characters.
    token: String,
    /// When the event happened: Unix ms, or a time such as 2024-10-05T14:48:00Z. A retry must send the same time.
    #[serde(alias = "generation_time_ms")]
    generation_time: TimeBody,
}

/// A time: Unix ms, or text in the format of RFC 3339.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum TimeBody {
    /// Unix ms.
    Ms(Int64),
    /// RFC 3339.
    Text(String),
}

/// The request of AddCount and AddAndGetCount.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddCountBody {
    namespace: String,
    /// 1 to 128 bytes without control characters.
    #[serde(alias = "counter_name")]
    counter: String,
    /// What to add; may be negative.
    delta: Int64,
    /// Absent: a repeated call counts again.
    #[serde(alias = "idempotency_token")]
    #[schema(value_type = Option<TokenBody>)]
    token: Option<Object<TokenBody>>,
    /// A negative delta is refused (BOUND_REACHED) if it would make the count less. Only in an ACCURATE namespace with
    /// buckets_per_id 1.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Int64>)]
    min: Option<i64>,
    /// A positive delta is refused (BOUND_REACHED) if it would make the count more. Only as for `min`.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Int64>)]
    max: Option<i64>,
    /// Where the add comes from, at most 64 bytes without control characters. It is kept with the event, and audits group by it.
    /// A retry must send the same one.
    #[serde(default)]
    source: String,
    /// What the add counts; the same limits and rules.
    #[serde(default)]
    event_item_key: String,
}

/// One item of a batch.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddBody {
    #[serde(alias = "counter_name")]
    counter: String,
    delta: Int64,
    #[serde(alias = "idempotency_token")]
    #[schema(value_type = Option<TokenBody>)]
    token: Option<Object<TokenBody>>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Int64>)]
    min: Option<i64>,
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<Int64>)]
    max: Option<i64>,
    #[serde(default)]
    source: String,
    #[serde(default)]
    event_item_key: String,
}

/// The request of AddCounts and AddAndGetCounts: 1 to 1,000 adds.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddCountsBody {
    pub(super) namespace: String,
    #[serde(deserialize_with = "short_list")]
    #[schema(value_type = Vec<AddBody>)]
    pub(super) adds: Vec<Item<Object<AddBody>>>,
}

/// The request of GetCount.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetCountBody {
    namespace: String,
    #[serde(alias = "counter_name")]
    counter: String,
    /// The answer's `exact_to_ms` must not be earlier than this time (Unix ms); absent: it may have any value.
    #[serde(default)]
    min_exact_to_ms: Int64,
    /// How long the server may wait for that, 0 to 30,000 ms.
    #[serde(default)]
    wait_ms: Int64,
    /// True: the count in all regions of the namespace.
    #[serde(default)]
    global: bool,
}

/// The request of GetCounts: 1 to 1,000 counters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetCountsBody {
    pub(super) namespace: String,
    #[serde(deserialize_with = "short_list")]
    #[schema(value_type = Vec<String>)]
    pub(super) counters: Vec<Item<String>>,
    /// As in get_count. A counter that is not exact to this time has the error NOT_EXACT_YET.
    #[serde(default)]
    pub(super) min_exact_to_ms: Int64,
    /// How long the server may wait for all counters together, 0 to 30,000 ms.
    #[serde(default)]
    pub(super) wait_ms: Int64,
    /// True: the counts in all regions of the namespace.
    #[serde(default)]
    pub(super) global: bool,
}

/// The request of ClearCount.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClearCountBody {
    namespace: String,
    #[serde(alias = "counter_name")]
    counter: String,
    #[serde(alias = "idempotency_token")]
    #[schema(value_type = Option<TokenBody>)]
    token: Option<Object<TokenBody>>,
}

/// One item of a batch.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClearBody {
    #[serde(alias = "counter_name")]
    counter: String,
    #[serde(alias = "idempotency_token")]
    #[schema(value_type = Option<TokenBody>)]
    token: Option<Object<TokenBody>>,
}

/// The request of ClearCounts: 1 to 1,000 clears.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClearCountsBody {
    pub(super) namespace: String,
    #[serde(deserialize_with = "short_list")]
    #[schema(value_type = Vec<ClearBody>)]
    pub(super) clears: Vec<Item<Object<ClearBody>>>,
}

/// The request of ListCounters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListCountersBody {
    namespace: String,
    #[serde(default)]
    page_size: Int64,
    #[serde(default)]
    page_token: String,
}

/// The request of ListEvents.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListEventsBody {
    namespace: String,
    #[serde(alias = "counter_name")]
    counter: String,
    /// Start of the range, included. Absent: ten minutes before `to`.
    from: Option<TimeBody>,
    /// End of the range, excluded. Absent: now.
    to: Option<TimeBody>,
    #[serde(default)]
    page_size: Int64,
    #[serde(default)]
    page_token: String,
}

/// The request of GetSums.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetSumsBody {
    namespace: String,
    #[serde(alias = "counter_name")]
    counter: String,
    period: PeriodBody,
    /// Start of the range, included. Absent: the range has 60 minutes, 24 hours or 30 days.
    from: Option<TimeBody>,
    /// End of the range, excluded. Absent: now.
    to: Option<TimeBody>,
    #[serde(default)]
    page_token: String,
}

/// The length of the periods. A day begins at 00:00 UTC.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum PeriodBody {
    Minute,
    Hour,
    Day,
}

impl TimeBody {
    fn ms(self, field: &'static str) -> Result<i64, Refusal> {
        match self {
            TimeBody::Ms(Int64(ms)) => Ok(ms),
            TimeBody::Text(text) => match OffsetDateTime::parse(&text, &Rfc3339) {
                Ok(time) => Ok((time.unix_timestamp_nanos() / 1_000_000) as i64),
                Err(_) => {
                    let why = format!("'{text}' is neither a number (Unix ms) nor a time such as 2024-10-05T14:48:00Z");
                    Err(Refusal::invalid(field, why))
                }
            },
        }
    }
}

/// A field that may be absent, but not null: a bound that a program has computed wrongly must not vanish.
fn present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<i64>, D::Error> {
    Int64::deserialize(field).map(|Int64(number)| Some(number))
}

/// The start and the end of a range, in Unix ms; 0: absent.
fn range(from: Option<TimeBody>, to: Option<TimeBody>) -> Result<(i64, i64), Refusal> {
    let from_ms = from.map(|from| from.ms("from")).transpose()?.unwrap_or_default();
    let to_ms = to.map(|to| to.ms("to")).transpose()?.unwrap_or_default();
    Ok((from_ms, to_ms))
}

fn token(body: Option<Object<TokenBody>>) -> Result<Option<wire::IdempotencyToken>, Refusal> {
    let into_wire = |Object(TokenBody { token, generation_time })| {
        let generation_time_ms = generation_time.ms("token.generation_time_ms")?;
        Ok(wire::IdempotencyToken { token, generation_time_ms })
    };
    body.map(into_wire).transpose()
}

impl TryFrom<AddCountBody> for wire::AddCountRequest {
    type Error = Refusal;

    fn try_from(body: AddCountBody) -> Result<Self, Refusal> {
        let AddCountBody { namespace, counter, delta: Int64(delta), token: body, min, max, source, event_item_key } =
            body;
        let token = token(body)?;
        Ok(wire::AddCountRequest { namespace, counter, delta, token, min, max, source, event_item_key })
    }
}

impl TryFrom<AddBody> for wire::AddCount {
    type Error = Refusal;

    fn try_from(body: AddBody) -> Result<Self, Refusal> {
        let AddBody { counter, delta: Int64(delta), token: body, min, max, source, event_item_key } = body;
        Ok(wire::AddCount { counter, delta, token: token(body)?, min, max, source, event_item_key })
    }
}

impl TryFrom<ClearCountBody> for wire::ClearCountRequest {
    type Error = Refusal;

    fn try_from(body: ClearCountBody) -> Result<Self, Refusal> {
        let ClearCountBody { namespace, counter, token: body } = body;
        Ok(wire::ClearCountRequest { namespace, counter, token: token(body)? })
    }
}

impl TryFrom<ClearBody> for wire::ClearCount {
    type Error = Refusal;

    fn try_from(ClearBody { counter, token: body }: ClearBody) -> Result<Self, Refusal> {
        Ok(wire::ClearCount { counter, token: token(body)? })
    }
}

impl TryFrom<ListEventsBody> for wire::ListEventsRequest {
    type Error = Refusal;

    fn try_from(body: ListEventsBody) -> Result<Self, Refusal> {
        let ListEventsBody { namespace, counter, from, to, page_size, page_token } = body;
        let (from_ms, to_ms) = range(from, to)?;
        Ok(wire::ListEventsRequest { namespace, counter, from_ms, to_ms, page_size: page_size.short(), page_token })
    }
}

impl TryFrom<GetSumsBody> for wire::GetSumsRequest {
    type Error = Refusal;

    fn try_from(body: GetSumsBody) -> Result<Self, Refusal> {
        let GetSumsBody { namespace, counter, period, from, to, page_token } = body;
        let (from_ms, to_ms) = range(from, to)?;
        let period = match period {
            PeriodBody::Minute => wire::Period::Minute,
            PeriodBody::Hour => wire::Period::Hour,
            PeriodBody::Day => wire::Period::Day,
        };
        Ok(wire::GetSumsRequest { namespace, counter, period: period.into(), from_ms, to_ms, page_token })
    }
}

impl From<GetCountBody> for wire::GetCountRequest {
    fn from(GetCountBody { namespace, counter, min_exact_to_ms, wait_ms, global }: GetCountBody) -> Self {
        let (min_exact_to_ms, wait_ms) = (min_exact_to_ms.0, wait_ms.0);
        wire::GetCountRequest { namespace, counter, min_exact_to_ms, wait_ms, global }
    }
}

impl From<ListCountersBody> for wire::ListCountersRequest {
    fn from(ListCountersBody { namespace, page_size, page_token }: ListCountersBody) -> Self {
        wire::ListCountersRequest { namespace, page_size: page_size.short(), page_token }
    }
}
