//! The highest counts (N16): their bodies and their path.

use super::answers::CounterBody;
use super::calls::{ApiState, HttpResult, answer, read};
use serde::{Deserialize, Serialize};
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counters_server::Counters as _;
use tallystone_serving::http::{Faults, Int64, JsonBody};
use tonic::Request;
use utoipa::ToSchema;

/// The request of ListTopCounters.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListTopCountersBody {
    namespace: String,
    /// Only counters whose names begin with this. Absent: all.
    #[serde(default)]
    prefix: String,
    /// Maximum number of counters of the answer, 1 to 1,000. Absent: 100.
    #[serde(default)]
    limit: Int64,
}

/// The counters with the highest counts, and when they were read.
#[derive(Serialize, ToSchema)]
pub(crate) struct TopCountersBody {
    /// The highest first.
    counters: Vec<CounterBody>,
    /// When the server began to read the counts (Unix ms).
    read_from_ms: i64,
    /// When it had read all of them (Unix ms).
    read_to_ms: i64,
}

/// Lists the counters of a namespace with the highest counts.
///
/// Each has the count of its last rollup, as it was at some time from read_from_ms to read_to_ms.
#[utoipa::path(post, path = "/v1/list_top_counters", request_body = ListTopCountersBody, responses((status = 200, body = TopCountersBody), Faults))]
pub(crate) async fn list_top_counters(
    ApiState(api): ApiState,
    JsonBody(body): JsonBody,
) -> HttpResult<TopCountersBody> {
    let ListTopCountersBody { namespace, prefix, limit } = read(&body)?;
    answer(
        api.list_top_counters(Request::new(wire::ListTopCountersRequest { namespace, prefix, limit: limit.short() }))
            .await,
    )
}

impl From<wire::ListTopCountersResponse> for TopCountersBody {
    fn from(answer: wire::ListTopCountersResponse) -> Self {
        let wire::ListTopCountersResponse { counters, read_from_ms, read_to_ms } = answer;
        TopCountersBody { counters: counters.into_iter().map(CounterBody::from).collect(), read_from_ms, read_to_ms }
    }
}
