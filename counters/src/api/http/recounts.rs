//! Audits and recounts (N12): their bodies, and a function for each path.

use super::calls::{ApiState, HttpResult, answer, read};
use axum::Json;
use serde::{Deserialize, Serialize};
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counters_server::Counters as _;
use tallystone_serving::http::{Faults, Int64, JsonBody};
use tonic::Request;
use utoipa::ToSchema;

/// The request of AuditCounter.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditCounterBody {
    namespace: String,
    #[serde(alias = "counter_name")]
    counter: String,
    /// Absent: the audit begins.
    #[serde(default)]
    page_token: String,
    /// By what the adds are grouped; absent: they are not.
    group_by: Option<GroupingBody>,
}

/// By what an audit groups adds.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(crate) enum GroupingBody {
    Source,
    EventItemKey,
}

/// The adds of a page of an audit that have the same source or item key.
#[derive(Serialize, ToSchema)]
pub(crate) struct GroupBody {
    /// Empty: of the adds that have none.
    key: String,
    /// The number of adds.
    adds: i64,
    sum: i64,
}

/// What an audit has found so far.
#[derive(Serialize, ToSchema)]
pub(crate) struct AuditBody {
    /// The count of the last rollup when the audit began.
    count: i64,
    /// What the count must be: the sum of the adds after the last clear, and `adjusted`.
    recounted: i64,
    /// The adjustments of earlier recounts since the last clear.
    adjusted: i64,
    /// `recounted` is the count. Meaningful on the last page.
    agrees: bool,
    /// The adds and clears that were read.
    events: i64,
    /// The audit reads the events before this time (Unix ms).
    exact_to_ms: i64,
    /// The audit has read the events before this time (Unix ms).
    audited_to_ms: i64,
    /// The number of recounts of the counter.
    epoch: u32,
    /// None of the events can have been dropped. Meaningful on the last page.
    complete: bool,
    /// Events before this time (Unix ms) may have been dropped.
    kept_from_ms: i64,
    /// Only on the last page: the audit, for recount_counter.
    audit_token: String,
    /// Empty: this is the last page.
    next_page_token: String,
    /// Only with `group_by`: the adds of this page after its last clear. Add up the groups of all pages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<GroupBody>,
    /// Only with `group_by`, if true: this page has a clear. Forget the groups of earlier pages.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    groups_cleared: bool,
}

/// The request of RecountCounter.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecountCounterBody {
    namespace: String,
    #[serde(alias = "counter_name")]
    counter: String,
    /// Of a finished audit: the count becomes the sum of the events. Absent: the present count is kept.
    #[serde(default)]
    audit_token: String,
    /// What is added to that; may be negative.
    #[serde(default)]
    adjustment: Int64,
    /// Why the count is replaced, 1 to 256 bytes.
    reason: String,
    /// Identifies the recount for a retry, 1 to 64 bytes.
    #[serde(alias = "idempotency_token")]
    token: String,
    /// Replaces the count although events of it may have been dropped.
    #[serde(default)]
    accept_dropped_events: bool,
}

/// The request of ListRecounts.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListRecountsBody {
    namespace: String,
    #[serde(alias = "counter_name")]
    counter: String,
}

/// A recount.
#[derive(Default, Serialize, ToSchema)]
pub(crate) struct RecountBody {
    /// The number of the epoch that it has begun.
    epoch: u32,
    recounted_ms: i64,
    /// Both counts include the events before this time (Unix ms).
    exact_to_ms: i64,
    old_count: i64,
    new_count: i64,
    adjustment: i64,
    /// The new count is the sum of the events and all adjustments; otherwise, the old count and this adjustment.
    from_events: bool,
    reason: String,
    token: String,
}

/// The recounts of a counter, the oldest first.
#[derive(Serialize, ToSchema)]
pub(crate) struct RecountsBody {
    recounts: Vec<RecountBody>,
}

/// Counts the events of a counter again.
///
/// A page at a time. It compares the sum with the count of the last rollup, and changes nothing. It can also group the adds by
/// their source or their item key.
#[utoipa::path(post, path = "/v1/audit_counter", request_body = AuditCounterBody, responses((status = 200, body = AuditBody), Faults))]
pub(crate) async fn audit_counter(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<AuditBody> {
    let AuditCounterBody { namespace, counter, page_token, group_by } = read(&body)?;
    let group_by = match group_by {
        None => wire::AuditGrouping::Unspecified,
        Some(GroupingBody::Source) => wire::AuditGrouping::Source,
        Some(GroupingBody::EventItemKey) => wire::AuditGrouping::EventItemKey,
    };
    let group_by = group_by.into();
    answer(
        api.audit_counter(Request::new(wire::AuditCounterRequest { namespace, counter, page_token, group_by })).await,
    )
}

/// Replaces the count of a counter.
///
/// By the sum of its events, which an audit has found, or by the present count; in either case with an adjustment. The old
/// count and the reason are kept.
#[utoipa::path(post, path = "/v1/recount_counter", request_body = RecountCounterBody, responses((status = 200, body = RecountBody), Faults))]
pub(crate) async fn recount_counter(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<RecountBody> {
    let body = read::<RecountCounterBody>(&body)?;
    let RecountCounterBody { namespace, counter, audit_token, adjustment, reason, token, accept_dropped_events } = body;
    let request = wire::RecountCounterRequest {
        namespace,
        counter,
        audit_token,
        adjustment: adjustment.0,
        reason,
        token,
        accept_dropped_events,
    };
    let recount = api.recount_counter(Request::new(request)).await?.into_inner().recount;
    Ok(Json(recount.map(RecountBody::from).unwrap_or_default()))
}

/// Lists the recounts of a counter.
///
/// The latest 32 since the counter was created or deleted, the oldest first.
#[utoipa::path(post, path = "/v1/list_recounts", request_body = ListRecountsBody, responses((status = 200, body = RecountsBody), Faults))]
pub(crate) async fn list_recounts(ApiState(api): ApiState, JsonBody(body): JsonBody) -> HttpResult<RecountsBody> {
    let ListRecountsBody { namespace, counter } = read(&body)?;
    answer(api.list_recounts(Request::new(wire::ListRecountsRequest { namespace, counter })).await)
}

impl From<wire::AuditCounterResponse> for AuditBody {
    fn from(audit: wire::AuditCounterResponse) -> Self {
        let group = |wire::AuditGroup { key, adds, sum }| GroupBody { key, adds, sum };
        AuditBody {
            count: audit.count,
            recounted: audit.recounted,
            adjusted: audit.adjusted,
            agrees: audit.agrees,
            events: audit.events,
            exact_to_ms: audit.exact_to_ms,
            audited_to_ms: audit.audited_to_ms,
            epoch: audit.epoch,
            complete: audit.complete,
            kept_from_ms: audit.kept_from_ms,
            audit_token: audit.audit_token,
            next_page_token: audit.next_page_token,
            groups: audit.groups.into_iter().map(group).collect(),
            groups_cleared: audit.groups_cleared,
        }
    }
}

impl From<wire::Recount> for RecountBody {
    fn from(recount: wire::Recount) -> Self {
        RecountBody {
            epoch: recount.epoch,
            recounted_ms: recount.recounted_ms,
            exact_to_ms: recount.exact_to_ms,
            old_count: recount.old_count,
            new_count: recount.new_count,
            adjustment: recount.adjustment,
            from_events: recount.from_events,
            reason: recount.reason,
            token: recount.token,
        }
    }
}

impl From<wire::ListRecountsResponse> for RecountsBody {
    fn from(list: wire::ListRecountsResponse) -> Self {
        RecountsBody { recounts: list.recounts.into_iter().map(RecountBody::from).collect() }
    }
}
