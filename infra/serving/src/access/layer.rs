//! Identifies the caller of every request, before a service sees it.

use super::caller_access::Access;
use super::identities::Identities;
use crate::bounds::Caller;
use crate::http::{FaultBody, is_grpc, is_probe};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::WWW_AUTHENTICATE;
use axum::response::{IntoResponse, Response};
use futures::future::{Either, Ready, ready};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::{Code, Status};
use tower::{Layer, Service};

/// Identifies the callers of a service. Without identities every caller may do everything.
#[derive(Clone)]
pub(crate) struct IdentifyLayer(pub(crate) Option<Arc<Identities>>);

impl<S> Layer<S> for IdentifyLayer {
    type Service = Identify<S>;

    fn layer(&self, inner: S) -> Identify<S> {
        Identify { inner, identities: self.0.clone() }
    }
}

/// A service whose callers are identified.
#[derive(Clone)]
pub(crate) struct Identify<S> {
    inner: S,
    identities: Option<Arc<Identities>>,
}

impl<S> Identify<S> {
    /// Health probes have no credentials, and learn nothing but health.
    fn identify(&self, request: &Request) -> Result<Option<Access>, Status> {
        let Some(identities) = &self.identities else { return Ok(None) };
        if is_probe(request.uri().path()) {
            return Ok(None);
        }
        let certificate = request.extensions().get::<Arc<Caller>>().map_or(&[][..], |caller| caller.certificate());
        identities.identify(request.headers(), certificate).map(Some)
    }
}

impl<S> Service<Request> for Identify<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Ready<Result<Response, Infallible>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        match self.identify(&request) {
            Ok(access) => {
                if let Some(access) = access {
                    request.extensions_mut().insert(access);
                }
                Either::Left(self.inner.call(request))
            }
            Err(refused) => Either::Right(ready(Ok(refusal(&request, refused)))),
        }
    }
}

fn refusal(request: &Request, refused: Status) -> Response {
    if is_grpc(request.headers()) {
        return refused.into_http();
    }
    let unauthenticated = refused.code() == Code::Unauthenticated;
    let mut response = FaultBody::from(refused).into_response();
    if unauthenticated {
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
