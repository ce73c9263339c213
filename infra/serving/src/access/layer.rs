//! Identifies the caller of every request, before a service sees it.

use super::audit::{AuditLog, Line, reason};
use super::caller_access::{Access, Audited};
use super::identities::Identities;
use crate::bounds::Caller;
use crate::http::{FaultBody, is_grpc, is_probe};
use crate::unread::{UnreadCall, note_unread};
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

/// How much of the path of a refused request the audit log has.
const PATH_CHARS_MAX: usize = 200;

/// Identifies the callers of a service. Without identities every caller may do everything.
#[derive(Clone)]
pub(crate) struct IdentifyLayer {
    pub(crate) identities: Option<Arc<Identities>>,
    pub(crate) audit: Option<Arc<AuditLog>>,
}

impl<S> Layer<S> for IdentifyLayer {
    type Service = Identify<S>;

    fn layer(&self, inner: S) -> Identify<S> {
        Identify { inner, of: self.clone() }
    }
}

/// A service whose callers are identified.
#[derive(Clone)]
pub(crate) struct Identify<S> {
    inner: S,
    of: IdentifyLayer,
}

impl IdentifyLayer {
    /// The access of the caller; `None`: the default. Health probes have no credentials, and learn nothing but health.
    fn identify(&self, request: &Request) -> Result<Option<Access>, Status> {
        let IdentifyLayer { identities, audit } = self;
        if (identities.is_none() && audit.is_none()) || is_probe(request.uri().path()) {
            return Ok(None);
        }
        let caller = request.extensions().get::<Arc<Caller>>();
        let peer = caller.map(|caller| caller.peer());
        let certificate = caller.and_then(|caller| caller.certificate());
        let known = identities.as_ref().map(|identities| identities.identify(request.headers(), certificate));
        let known = known.transpose().inspect_err(|refused| {
            if let Some(log) = audit {
                let call = Some(request.uri().path().chars().take(PATH_CHARS_MAX).collect());
                log.write(Line::new(None, peer, call).ended(refused.code(), reason(refused)));
            }
        })?;
        Ok(Some(Access::new(known, audit.clone().map(|log| Audited { log, peer }))))
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
        match self.of.identify(&request) {
            Ok(access) => {
                note_call(&request);
                if let Some(access) = access {
                    request.extensions_mut().insert(access);
                }
                Either::Left(self.inner.call(request))
            }
            Err(refused) => {
                note_unread(UnreadCall::Credential);
                Either::Right(ready(Ok(refusal(&request, refused))))
            }
        }
    }
}

/// A connection whose callers are unknown, or that only probes, keeps no place that a caller needs.
fn note_call(request: &Request) {
    if !is_probe(request.uri().path())
        && let Some(caller) = request.extensions().get::<Arc<Caller>>()
    {
        caller.calls();
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
