//! Applies the limits to every request of a host, and to its answer.

use super::admission::Caller;
use super::answer::{BoundedAnswer, OpenCall};
use super::body::{BoundedBody, Form};
use super::metrics::note_stream_refused;
use super::refusal::too_many_streams_of_requests;
use crate::http::is_grpc;
use axum::body::{Body, HttpBody};
use axum::http::{Request, Response};
use futures::FutureExt;
use futures::future::{Either, Join, Map, Ready, join, ready};
use prost::Message;
use prost_types::FileDescriptorSet;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tallystone_proto::FILE_DESCRIPTOR_SET;
use tower::{Layer, Service};

/// The paths of all methods that take a stream of requests.
pub(crate) fn client_streams() -> HashSet<String> {
    let sets = [
        FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut paths = HashSet::new();
    for set in sets {
        let set = FileDescriptorSet::decode(set).expect("descriptor sets made by the build are well-formed");
        for file in set.file {
            for service in &file.service {
                let streams = service.method.iter().filter(|method| method.client_streaming());
                paths.extend(streams.map(|method| format!("/{}.{}/{}", file.package(), service.name(), method.name())));
            }
        }
    }
    paths
}

/// Applies the limits to the requests of a service, and to its answers.
#[derive(Clone)]
pub(crate) struct BoundLayer {
    pub(crate) client_streams: Arc<HashSet<String>>,
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

type Answer = Result<Response<Body>, Infallible>;

/// The answer of a service, which is then bounded.
type Bounded<F> = Map<Join<F, Ready<OpenCall>>, fn((Answer, OpenCall)) -> Answer>;

impl<S> Service<Request<Body>> for Bound<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Either<Either<S::Future, Ready<Answer>>, Bounded<S::Future>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(caller) = request.extensions().get::<Arc<Caller>>().cloned() else {
            return Either::Left(Either::Left(self.inner.call(request)));
        };
        let form = self.of.form(&request);
        let Some(call) = OpenCall::begin(caller.clone(), form == Form::Messages) else {
            note_stream_refused();
            return Either::Left(Either::Right(ready(Ok(too_many_streams_of_requests().into_http()))));
        };
        let request = bound_request(request, form, caller);
        let bound: fn((Answer, OpenCall)) -> Answer = bound_answer;
        Either::Right(join(self.inner.call(request), ready(call)).map(bound))
    }
}

fn bound_request(request: Request<Body>, form: Form, caller: Arc<Caller>) -> Request<Body> {
    if request.body().is_end_stream() {
        return request;
    }
    request.map(|body| Body::new(BoundedBody::new(body, form, caller)))
}

impl BoundLayer {
    fn form(&self, request: &Request<Body>) -> Form {
        match is_grpc(request.headers()) {
            false => Form::Plain,
            true if self.client_streams.contains(request.uri().path()) => Form::Messages,
            true => Form::Message,
        }
    }
}

fn bound_answer((answer, call): (Answer, OpenCall)) -> Answer {
    answer.map(|answer| match answer.body().is_end_stream() {
        true => answer,
        false => {
            let is_grpc = is_grpc(answer.headers());
            answer.map(|body| Body::new(BoundedAnswer::new(body, call, is_grpc)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streams_of_requests_are_known() {
        let streams = client_streams();
        assert!(streams.contains("/tallystone.queue.v1.Queue/Work"), "{streams:?}");
        assert!(streams.contains("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"), "{streams:?}");
        assert!(!streams.contains("/tallystone.queue.v1.Queue/Enqueue"), "{streams:?}");
    }
}
