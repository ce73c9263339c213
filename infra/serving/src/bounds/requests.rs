//! Applies the limits to every request of a host, and to its answer.

use super::admission::Caller;
use super::answer::{BoundedAnswer, OpenCall};
use super::body::{BoundedBody, Form};
use super::methods::Methods;
use super::metrics::note_stream_refused;
use super::refusal::too_many_streams_of_requests;
use crate::http::is_grpc;
use axum::body::{Body, HttpBody};
use axum::http::{Request, Response};
use futures::FutureExt;
use futures::future::{Either, Join, Map, Ready, join, ready};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// Applies the limits to the requests of a service, and to its answers.
#[derive(Clone)]
pub(crate) struct BoundLayer {
    pub(crate) methods: Arc<Methods>,
}

impl<S> Layer<S> for BoundLayer {
    type Service = Bound<S>;

    fn layer(&self, inner: S) -> Bound<S> {
        Bound { inner, of: self.clone() }
    }
}

/// A service within limits.
#[derive(Clone)]
pub(crate) struct Bound<S> {
    inner: S,
    of: BoundLayer,
}

type ServiceResult = Result<Response<Body>, Infallible>;

/// The answer of a service, which is then bounded.
type Bounded<F> = Map<Join<F, Ready<OpenCall>>, fn((ServiceResult, OpenCall)) -> ServiceResult>;

impl<S> Service<Request<Body>> for Bound<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Either<S::Future, Ready<ServiceResult>>, Bounded<S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(caller) = request.extensions().get::<Arc<Caller>>().cloned() else {
            return Either::Left(Either::Left(self.inner.call(request)));
        };
        let (form, of) = self.of.form(&request);
        let Some(call) = OpenCall::begin(caller.clone(), form == Form::Messages) else {
            note_stream_refused();
            let mut refused = too_many_streams_of_requests().into_http::<Body>();
            caller.unread().hand_out_headers(refused.headers_mut());
            return Either::Left(Either::Right(ready(Ok(refused))));
        };
        let request = bound_request(request, form, of, caller);
        let bound: fn((ServiceResult, OpenCall)) -> ServiceResult = bound_answer;
        Either::Right(join(self.inner.call(request), ready(call)).map(bound))
    }
}

fn bound_request(
    request: Request<Body>,
    form: Form,
    of: Option<(Arc<Methods>, usize)>,
    caller: Arc<Caller>,
) -> Request<Body> {
    if request.body().is_end_stream() {
        return request;
    }
    request.map(|body| Body::new(BoundedBody::new(body, form, of, caller)))
}

impl BoundLayer {
    /// The path decides: the services of gRPC read messages, whatever the headers say.
    fn form(&self, request: &Request<Body>) -> (Form, Option<(Arc<Methods>, usize)>) {
        match self.methods.of(request.uri().path()) {
            Some(method) => {
                let form = if method.is_stream { Form::Messages } else { Form::Message };
                (form, Some((self.methods.clone(), method.input)))
            }
            None if is_grpc(request.headers()) => (Form::Message, None),
            None => (Form::Plain, None),
        }
    }
}

fn bound_answer((answer, call): (ServiceResult, OpenCall)) -> ServiceResult {
    answer.map(|mut answer| match answer.body().is_end_stream() {
        true => {
            call.end_without_body(answer.headers_mut());
            answer
        }
        false => {
            let is_grpc = is_grpc(answer.headers());
            answer.map(|body| Body::new(BoundedAnswer::new(body, call, is_grpc)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::admission::Bounds;
    use super::super::limits::Limits;
    use super::*;
    use std::net::Ipv4Addr;
    use tower::service_fn;

    /// An answer, with a body only on one path.
    fn answer(request: Request<Body>) -> Ready<ServiceResult> {
        let body = if request.uri().path() == "/body" { Body::from("x") } else { Body::empty() };
        ready(Ok(Response::builder().header("grpc-status", "5").body(body).unwrap()))
    }

    #[tokio::test]
    async fn s1_answers_without_a_body_count_by_their_headers() {
        let limits = Limits { streams_max: 0, ..Limits::default() };
        let caller = Bounds::new(limits).admit(Ipv4Addr::LOCALHOST.into()).unwrap().caller.clone();
        let layer = BoundLayer { methods: Arc::new(Methods::new()) };
        let are_counted = async |path: &str| {
            let mut request = Request::post(path).body(Body::empty()).unwrap();
            request.extensions_mut().insert(caller.clone());
            let answer = layer.layer(service_fn(answer)).call(request).await.unwrap();
            answer.headers().values().any(|value| value.is_sensitive())
        };
        assert!(are_counted("/none").await && !are_counted("/body").await);
        assert!(are_counted("/tallystone.queue.v1.Queue/Work").await, "a stream that is refused");
    }

    #[test]
    fn s1_the_path_says_how_a_body_is_made_up_and_not_its_content_type() {
        let layer = BoundLayer { methods: Arc::new(Methods::new()) };
        let form = |path: &str, content_type: Option<&str>| {
            let mut request = Request::post(path);
            if let Some(content_type) = content_type {
                request = request.header("content-type", content_type);
            }
            layer.form(&request.body(Body::empty()).unwrap()).0
        };
        for content_type in [None, Some("application/grpc"), Some("application/json"), Some("x")] {
            assert_eq!(form("/tallystone.queue.v1.Queue/Enqueue", content_type), Form::Message, "{content_type:?}");
            assert_eq!(form("/tallystone.queue.v1.Queue/Work", content_type), Form::Messages, "{content_type:?}");
        }
        assert_eq!(form("/v1/views", Some("application/json")), Form::Plain);
        assert_eq!(form("/unknown.Service/Method", Some("application/grpc+proto")), Form::Message);
    }
}
