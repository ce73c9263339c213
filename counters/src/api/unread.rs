//! Adds, clears and deletions that have no room are refused before they are parsed (O8): to parse a batch of a thousand takes longer than to
//! refuse it, and an overloaded service would spend its time on calls that it refuses.

use super::grpc::Api;
use super::status::of_call;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use tallystone_serving::http::FaultBody;

/// The paths of gRPC begin with it.
const GRPC: &str = "/tallystone.counter.v1.Counters/";

/// Answers the call, unless it adds, clears or deletes and there is no room for it.
pub(super) async fn refuse_unread(State(api): State<Api>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let (is_grpc, rpc) = (path.starts_with(GRPC), rpc_of(path));
    let (Some(rpc), Err(refusal)) = (rpc, api.counters.admits()) else { return next.run(request).await };
    // The bytes of an unread body would close an HTTP/1 connection.
    let mut body = request.into_body().into_data_stream();
    while body.next().await.is_some_and(|bytes| bytes.is_ok()) {}
    let status = of_call(refusal);
    api.rpcs.note_refused(rpc, status.code());
    if is_grpc { status.into_http::<Body>() } else { FaultBody::from(status).into_response() }
}

/// The RPC behind a path that adds, clears or deletes.
fn rpc_of(path: &str) -> Option<&'static str> {
    Some(match path.strip_prefix(GRPC).or_else(|| path.strip_prefix("/v1/"))? {
        "AddCount" | "add_count" => "AddCount",
        "AddAndGetCount" | "add_and_get_count" => "AddAndGetCount",
        "AddCounts" | "add_counts" => "AddCounts",
        "AddAndGetCounts" | "add_and_get_counts" => "AddAndGetCounts",
        "ClearCount" | "clear_count" => "ClearCount",
        "ClearCounts" | "clear_counts" => "ClearCounts",
        "DeleteCounter" | "delete_counter" => "DeleteCounter",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_writes_events_is_refused_unread() {
        assert_eq!(rpc_of("/tallystone.counter.v1.Counters/AddCounts"), Some("AddCounts"));
        assert_eq!(rpc_of("/v1/add_counts"), Some("AddCounts"));
        assert_eq!(rpc_of("/v1/delete_counter"), Some("DeleteCounter"));
        for other in ["/tallystone.counter.v1.Counters/GetCounts", "/v1/get_counts", "/v1/namespaces/add_counts", "/"] {
            assert_eq!(rpc_of(other), None, "{other}");
        }
    }
}
