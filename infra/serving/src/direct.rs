//! Calls of one method and path without parameters. They pass the router, which copies its services and boxes a future for each
//! layer of a call.

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::response::Response;
use axum::routing::future::RouteFuture;
use futures::future::{BoxFuture, Either};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::Service;

type Answered = BoxFuture<'static, Result<Response, Infallible>>;

/// A call, and what answers it.
pub(crate) struct DirectCall {
    method: Method,
    path: &'static str,
    answer: Box<dyn Fn(Request) -> Answered + Send + Sync>,
}

impl DirectCall {
    pub(crate) fn new<F: Future<Output = Response> + Send + 'static>(
        method: Method,
        path: &'static str,
        answer: impl Fn(Request) -> F + Send + Sync + 'static,
    ) -> DirectCall {
        let answer = move |request| -> Answered {
            let answered = answer(request);
            Box::pin(async { Ok(answered.await) })
        };
        DirectCall { method, path, answer: Box::new(answer) }
    }

    fn is_of(&self, request: &Request) -> bool {
        request.method() == self.method && request.uri().path() == self.path
    }
}

/// A router behind calls that pass it.
#[derive(Clone)]
pub(crate) struct Direct {
    calls: Arc<[DirectCall]>,
    router: Router,
}

impl Direct {
    pub(crate) fn new(calls: Vec<DirectCall>, router: Router) -> Direct {
        // Prepares the router once, and not with each call.
        Direct { calls: calls.into(), router: router.with_state(()) }
    }
}

impl Service<Request> for Direct {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<Answered, RouteFuture<Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        match self.calls.iter().find(|call| call.is_of(&request)) {
            Some(call) => Either::Left((call.answer)(request)),
            None => Either::Right(self.router.call(request)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::response::IntoResponse;
    use axum::routing::post;
    use tower::util::ServiceExt;

    #[tokio::test]
    async fn a_direct_call_has_one_method_and_one_path() {
        let router = Router::new().route("/call", post(async || "router")).fallback(async || "other");
        let call = DirectCall::new(Method::POST, "/call", async |_| "direct".into_response());
        let direct = Direct::new(vec![call], router);
        for (method, uri, expected) in [
            (Method::POST, "/call", "direct"),
            (Method::POST, "http://localhost/call?query", "direct"),
            (Method::POST, "/call/", "other"),
            (Method::POST, "/Call", "other"),
            (Method::GET, "/call", ""),
        ] {
            let request = Request::builder().method(&method).uri(uri).body(Body::empty()).unwrap();
            let response = direct.clone().oneshot(request).await.unwrap();
            let body = to_bytes(response.into_body(), 100).await.unwrap();
            assert_eq!(body, expected, "{method} {uri}");
        }
    }
}
