//! The access of one caller, as services check it.

use super::book::Grant;
use super::refusal;
use super::right::Right;
use super::table::{Guarded, Resource};
use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::SystemTime;
use tonic::Status;

/// What the caller of a request may do. Without `auth.principals_file` every caller may do everything.
#[derive(Clone, Debug, Default)]
pub struct Access(Option<Arc<Grant>>);

impl Access {
    /// The access of a request's caller, from the extensions of the request. The host identifies the caller of every
    /// request, so it is absent only where no identities are configured.
    pub fn of(extensions: &Extensions) -> Access {
        extensions.get::<Access>().cloned().unwrap_or_default()
    }

    pub(super) fn granted(grant: Arc<Grant>) -> Access {
        Access(Some(grant))
    }

    /// Whether the caller may do everything.
    pub fn is_unlimited(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the caller has the right on the queue or the namespace.
    pub fn allows(&self, right: Right, name: &str) -> bool {
        self.0.as_ref().is_none_or(|grant| grant.rules.on(right, name).is_granted())
    }

    /// Refuses a caller that does not have the right on the queue or the namespace.
    ///
    /// # Errors
    /// PERMISSION_DENIED with the reason NO_RIGHT.
    pub fn require(&self, right: Right, name: &str) -> Result<(), Status> {
        match &self.0 {
            Some(grant) if !self.allows(right, name) => Err(refusal::no_right(&grant.principal, right, name)),
            _ => Ok(()),
        }
    }

    /// Refuses a caller that may not make this call (S4).
    ///
    /// # Errors
    /// As [`require`](Access::require).
    pub fn check<R: Guarded>(&self, request: &R) -> Result<(), Status> {
        let Some(grant) = &self.0 else { return Ok(()) };
        match request.resource() {
            Resource::One(name) => self.require(R::RIGHT, name),
            Resource::Each(names) => names.into_iter().try_for_each(|name| self.require(R::RIGHT, name)),
            Resource::AllOf(prefix) if !grant.rules.on_all_of(R::RIGHT, prefix).is_granted() => {
                Err(refusal::no_right(&grant.principal, R::RIGHT, &format!("{prefix}*")))
            }
            Resource::AllOf(_) | Resource::Listed => Ok(()),
        }
    }

    /// Ends when the credential expires, is withdrawn or gets other rights: with the status that ends a stream.
    pub async fn withdrawn(&self) -> Status {
        let Some(grant) = &self.0 else { return std::future::pending().await };
        let expired = async {
            match grant.expires_at {
                Some(at) => tokio::time::sleep(at.duration_since(SystemTime::now()).unwrap_or_default()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = grant.withdrawn.cancelled() => {}
            () = expired => {}
        }
        refusal::withdrawn()
    }
}

impl<S: Sync> FromRequestParts<S> for Access {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Access, Infallible> {
        Ok(Access::of(&parts.extensions))
    }
}
