//! Streams that anybody may open, and that stay open: watches of the health and server reflection. A port has few of them.

use super::refusal::too_many_streams;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// So many clients of a port may watch its health at once, and as many may use its reflection: a stream takes about ten KiB.
const STREAMS_MAX: usize = 1_000;
/// The one call of the health service that is answered at once.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Bounds the streams of these paths on one port.
pub(crate) fn bound_streams(paths: Router) -> Router {
    bound(paths, STREAMS_MAX)
}

fn bound(paths: Router, streams_max: usize) -> Router {
    paths.layer(from_fn_with_state(Arc::new(Semaphore::new(streams_max)), take_place))
}

/// Lets a call take a place until its answer has ended, or refuses it.
async fn take_place(State(places): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    if request.uri().path() == CHECK {
        return next.run(request).await;
    }
    let Ok(place) = places.try_acquire_owned() else { return too_many_streams().into_http() };
    next.run(request).await.map(|body| Body::new(HeldBody { body, _place: place }))
}

/// The answer that has the place.
struct HeldBody {
    body: Body,
    _place: OwnedSemaphorePermit,
}

impl HttpBody for HeldBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tower::ServiceExt as _;

    #[tokio::test]
    async fn s1_a_stream_keeps_its_place_until_its_answer_has_ended() {
        let endless = || async { Body::from_stream(futures::stream::pending::<Result<Bytes, axum::Error>>()) };
        let paths = Router::new().route("/", get(endless)).route(CHECK, get(endless));
        let paths = bound(paths, 1);
        let call_of =
            async |path| paths.clone().oneshot(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        let call = async || call_of("/").await;
        let is_refused = |response: &Response| response.headers().contains_key("grpc-status");
        for _ in 0..3 {
            let open = call().await;
            assert!(!is_refused(&open) && is_refused(&call().await));
            assert!(!is_refused(&call_of(CHECK).await), "probes are answered while all places are taken");
        }
    }
}
