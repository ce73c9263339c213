//! The feed of passed thresholds (N16): its bodies and its path.

use super::calls::{ApiState, HttpResult, answer, integer, parameter};
use axum::extract::RawQuery;
use serde::Serialize;
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counters_server::Counters as _;
use tallystone_serving::http::{Faults, Int64, PathParams};
use tonic::Request;
use utoipa::ToSchema;

/// A count that has passed a threshold.
#[derive(Serialize, ToSchema)]
pub(crate) struct CrossingBody {
    counter: String,
    threshold: i64,
    /// UP: the count has reached the threshold. DOWN: it is below it again.
    direction: &'static str,
    /// The new count.
    count: i64,
    /// The new count includes every event before this time (Unix ms).
    exact_to_ms: i64,
    /// When the rollup or the recount committed the new count, by the store's clock (Unix ms).
    committed_at_ms: i64,
}

/// Crossings, and how far they are complete.
#[derive(Serialize, ToSchema)]
pub(crate) struct CrossingsBody {
    crossings: Vec<CrossingBody>,
    /// The `after` of the next call.
    position: String,
    /// Every crossing that was committed before this time (Unix ms) is in this answer or before its position.
    complete_to_ms: i64,
}

/// Lists the crossings of a namespace: counts that have passed a threshold.
///
/// Each crossing once, from the position of the call on. With wait_ms the call waits until there is one.
#[utoipa::path(get, path = "/v1/namespaces/{namespace}/crossings", params(("namespace" = String, Path), ("after" = Option<String>, Query, description = "the position of the answer before; absent: begin with the oldest stored crossing; now: only crossings after this call"), ("limit" = Option<i64>, Query, description = "maximum number of crossings of an answer, 1 to 1,000; absent: 100. An answer may have up to 31 more"), ("wait_ms" = Option<i64>, Query, description = "how long the call may wait for a crossing, 0 to 30,000 ms")), responses((status = 200, body = CrossingsBody), Faults))]
pub(crate) async fn list_crossings(
    ApiState(api): ApiState,
    PathParams(namespace): PathParams<String>,
    RawQuery(query): RawQuery,
) -> HttpResult<CrossingsBody> {
    let query = query.as_deref();
    let after = parameter(query, "after").unwrap_or_default().to_owned();
    let limit = Int64(integer(query, "limit")?.unwrap_or_default()).short();
    let wait_ms = integer(query, "wait_ms")?.unwrap_or_default();
    answer(api.list_crossings(Request::new(wire::ListCrossingsRequest { namespace, after, limit, wait_ms })).await)
}

impl From<wire::ListCrossingsResponse> for CrossingsBody {
    fn from(answer: wire::ListCrossingsResponse) -> Self {
        let wire::ListCrossingsResponse { crossings, position, complete_to_ms } = answer;
        let crossing = |crossing: wire::Crossing| {
            let direction = crossing.direction().as_str_name().trim_start_matches("CROSSING_DIRECTION_");
            let wire::Crossing { counter, threshold, count, exact_to_ms, committed_at_ms, .. } = crossing;
            CrossingBody { counter, threshold, direction, count, exact_to_ms, committed_at_ms }
        };
        CrossingsBody { crossings: crossings.into_iter().map(crossing).collect(), position, complete_to_ms }
    }
}
