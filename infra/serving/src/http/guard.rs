//! The guard before every path of a port: what a browser sends for a page of another origin is refused (S7). gRPC over
//! HTTP/2 passes unchanged, because a browser cannot send it. gRPC services would also serve a call over HTTP/1, with
//! any content type, so over HTTP/1 they are guarded too.

use super::fault::is_grpc;
use super::headers::restrict;
use super::hosts::HostNames;
use super::origin::is_of_other_origin;
use super::{FaultBody, is_http_probe};
use axum::extract::Request;
use axum::http::Version;
use axum::response::{IntoResponse, Response};
use futures::TryFutureExt;
use futures::future::{Either, MapOk, Ready, ready};
use std::convert::Infallible;
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// Guards a service.
#[derive(Clone)]
pub(crate) struct GuardLayer(pub(crate) HostNames);

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        Guard { inner, hosts: self.0.clone() }
    }
}

/// A service behind the guard.
#[derive(Clone)]
pub(crate) struct Guard<S> {
    inner: S,
    hosts: HostNames,
}

impl<S> Guard<S> {
    /// A health probe may use any name; its answer is one word.
    fn check(&self, request: &Request) -> Result<(), FaultBody> {
        let (headers, uri) = (request.headers(), request.uri());
        if is_http_probe(uri.path()) {
            return Ok(());
        }
        self.hosts.check(headers, uri)?;
        if is_of_other_origin(headers, uri) { Err(FaultBody::other_origin()) } else { Ok(()) }
    }
}

/// An answer that gets the headers for browsers.
type Restricted<F> = MapOk<F, fn(Response) -> Response>;

impl<S> Service<Request> for Guard<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Either<Restricted<S::Future>, Ready<Result<Response, Infallible>>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if request.version() == Version::HTTP_2 && is_grpc(request.headers()) {
            return Either::Left(self.inner.call(request));
        }
        Either::Right(match self.check(&request) {
            Ok(()) => Either::Left(self.inner.call(request).map_ok(restrict as fn(Response) -> Response)),
            Err(refused) => Either::Right(ready(Ok(restrict(refused.into_response())))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::body::Body;
    use axum::response::Html;
    use axum::routing::any;
    use tower::util::ServiceExt;

    async fn answer(request: axum::http::request::Builder) -> Response {
        let router = Router::new().route("/page", any(async || Html("page"))).fallback(any(async || "other"));
        router.layer(GuardLayer(HostNames::default())).oneshot(request.body(Body::empty()).unwrap()).await.unwrap()
    }

    fn names(response: &Response) -> Vec<&str> {
        let names = ["x-content-type-options", "cache-control", "content-security-policy", "x-frame-options"];
        names.into_iter().filter(|name| response.headers().contains_key(*name)).collect()
    }

    #[tokio::test]
    async fn s7_every_answer_that_a_browser_can_get_has_the_headers() {
        let get = |path: &str| Request::get(path).header("host", "localhost");
        let page = answer(get("/page")).await;
        assert_eq!(page.headers()["x-content-type-options"], "nosniff");
        assert_eq!(page.headers()["cache-control"], "no-store");
        assert_eq!(page.headers()["content-security-policy"], "default-src 'self'; frame-ancestors 'none'");
        assert_eq!(page.headers()["x-frame-options"], "DENY");
        let both = ["x-content-type-options", "cache-control"];
        assert_eq!(names(&answer(get("/v1")).await), both);
        for refused in [Request::get("/page").header("host", "evil.example"), get("/page").header("origin", "null")] {
            let refused = answer(refused).await;
            assert!(refused.status().is_client_error());
            assert_eq!(names(&refused), both);
        }
    }

    #[tokio::test]
    async fn s7_only_grpc_over_http_2_passes_unguarded() {
        let call = |version, content_type| {
            let request = Request::post("http://evil.example/tallystone.None/Call").version(version);
            request.header("content-type", content_type)
        };
        let grpc = answer(call(Version::HTTP_2, "application/grpc+proto").header("origin", "null")).await;
        assert_eq!((grpc.status().as_u16(), names(&grpc)), (200, vec![]));
        for (version, content_type) in [
            (Version::HTTP_2, "application/json"),
            (Version::HTTP_11, "application/grpc"),
            (Version::HTTP_11, "text/plain"),
        ] {
            assert_eq!(answer(call(version, content_type)).await.status(), 421, "{version:?} {content_type}");
        }
    }

    #[tokio::test]
    async fn s7_a_health_probe_may_use_any_name() {
        assert_eq!(answer(Request::get("/health").header("host", "counters.internal")).await.status(), 200);
        assert_eq!(answer(Request::get("/health/x").header("host", "counters.internal")).await.status(), 421);
    }
}
