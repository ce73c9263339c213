//! Streams that anybody may open, and that stay open: watches of the health and server reflection. A port has few of them.

use super::metrics::streams;
use super::refusal::too_many_streams;
use ::metrics::{Counter, Gauge};
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

/// The one call of the health service that is answered at once.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Bounds the streams of these paths on one port, which are `of` the health or the reflection. A stream takes about ten KiB.
pub(crate) fn bound_streams(paths: Router, of: &'static str, streams_max: u32) -> Router {
    let (open, refused) = streams(of);
    let free = Arc::new(Semaphore::new(streams_max as usize));
    paths.layer(from_fn_with_state(Places { free, open, refused }, take_place))
}

#[derive(Clone)]
struct Places {
    free: Arc<Semaphore>,
    open: Gauge,
    refused: Counter,
}

/// The place of one stream.
struct OpenStream {
    open: Gauge,
    _free: OwnedSemaphorePermit,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.open.decrement(1.0);
    }
}

/// Lets a call take a place until its answer has ended, or refuses it.
async fn take_place(State(places): State<Places>, request: Request, next: Next) -> Response {
    if request.uri().path() == CHECK {
        return next.run(request).await;
    }
    let Places { free, open, refused } = places;
    let Ok(free) = free.try_acquire_owned() else {
        refused.increment(1);
        return too_many_streams().into_http();
    };
    open.increment(1.0);
    let place = OpenStream { open, _free: free };
    next.run(request).await.map(|body| Body::new(HeldBody { body, _place: place }))
}

/// The answer that has the place.
struct HeldBody {
    body: Body,
    _place: OpenStream,
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
        let paths = bound_streams(paths, "health", 1);
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
