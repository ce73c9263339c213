//! Streams that anybody may open, and that stay open: watches of the health and server reflection. A port has few of them.

use super::admission::Caller;
use super::by_site::BySite;
use super::metrics::streams;
use super::open_connections::locked;
use super::refusal::too_many_streams;
use ::metrics::{Counter, Gauge};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// So many addresses take all places at least: one of them has a quarter.
const SITES_MIN: u64 = 4;
/// The one call of the health service that is answered at once.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// Bounds the streams of these paths on one port, which are `of` the health or the reflection. A stream takes about ten KiB.
pub(crate) fn bound_streams(paths: Router, of: &'static str, streams_max: u32) -> Router {
    let (open, refused) = streams(of);
    let (max, taken) = (u64::from(streams_max), Arc::default());
    paths.layer(from_fn_with_state(Places { max, taken, open, refused }, take_place))
}

#[derive(Clone)]
struct Places {
    max: u64,
    taken: Arc<Mutex<BySite>>,
    open: Gauge,
    refused: Counter,
}

impl Places {
    /// `None`: all are taken, or those that one address may have. Otherwise a single caller without a credential would end the
    /// watches of all others: a client that watches the health of a server leaves it then.
    fn take(&self, site: IpAddr) -> Option<OpenStream> {
        let mut taken = locked(&self.taken);
        if taken.all() >= self.max || taken.of(site) >= self.max.div_ceil(SITES_MIN) {
            return None;
        }
        taken.take(site);
        self.open.increment(1.0);
        Some(OpenStream { of: self.clone(), site })
    }
}

/// The place of one stream.
struct OpenStream {
    of: Places,
    site: IpAddr,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.of.open.decrement(1.0);
        locked(&self.of.taken).free(self.site);
    }
}

/// Lets a call take a place until its answer has ended, or refuses it.
async fn take_place(State(places): State<Places>, request: Request, next: Next) -> Response {
    if request.uri().path() == CHECK {
        return next.run(request).await;
    }
    let caller = request.extensions().get::<Arc<Caller>>();
    let site = caller.map_or(Ipv4Addr::UNSPECIFIED.into(), |caller| caller.site());
    let Some(place) = places.take(site) else {
        places.refused.increment(1);
        return too_many_streams().into_http();
    };
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

    #[test]
    fn s1_one_address_has_a_quarter_of_the_places() {
        let (open, refused) = (Gauge::noop(), Counter::noop());
        let places = Places { max: 8, taken: Arc::default(), open, refused };
        let [one, other] = [1, 2].map(|last| IpAddr::from([127, 0, 0, last]));
        let kept = [places.take(one), places.take(one)];
        assert!(kept.iter().all(Option::is_some) && places.take(one).is_none());
        assert!(places.take(other).is_some());
        drop(kept);
        assert!(places.take(one).is_some());
        let all: Vec<_> = (0..8).map(|last| places.take([10, 0, 0, last].into())).collect();
        assert!(all.iter().all(Option::is_some) && places.take(other).is_none());
        drop(all);
        assert!(locked(&places.taken).is_empty());
    }
}
