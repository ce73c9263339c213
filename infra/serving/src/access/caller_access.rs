//! The access of one caller, as services check it.

use super::audit::{AuditLog, Line, reason};
use super::book::{Grant, Identified};
use super::refusal;
use super::right::Right;
use super::rule::Patterns;
use super::table::{Guarded, Resource};
use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;
use tonic::{Code, Status};

/// The longest wait for a time of the clock. The clock may be set forward meanwhile, and timers stand still while the machine is suspended.
const CLOCK_CHECK: Duration = Duration::from_secs(30);

/// What the caller of a request may do. Without identities every caller may do everything.
#[derive(Clone, Default)]
pub struct Access {
    grant: Option<Arc<Grant>>,
    /// When the credential expires.
    expires_at: Option<SystemTime>,
    audit: Option<Audited>,
}

/// Where the calls of a caller are recorded.
#[derive(Clone)]
pub(super) struct Audited {
    pub(super) log: Arc<AuditLog>,
    pub(super) peer: Option<IpAddr>,
}

/// A call that the audit log records when it has ended. Dropped before that, its caller has gone: what it has changed until
/// then stays changed.
pub struct AuditedCall {
    log: Arc<AuditLog>,
    line: Option<Line>,
}

impl AuditedCall {
    /// Runs a call, and ends its record, if it has one.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn around<T>(
        record: Option<AuditedCall>,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let outcome = call.await;
        if let Some(record) = record {
            record.end(outcome.as_ref());
        }
        outcome
    }

    /// The call has ended so.
    pub fn end<T>(mut self, outcome: Result<&T, &Status>) {
        let (code, reason) =
            outcome.map_or_else(|status| (status.code(), reason(status)), |_| (Code::Ok, String::new()));
        self.write(code, reason);
    }

    fn write(&mut self, code: Code, reason: String) {
        if let Some(line) = self.line.take() {
            self.log.write(line.ended(code, reason));
        }
    }
}

impl Drop for AuditedCall {
    fn drop(&mut self) {
        self.write(Code::Cancelled, String::new());
    }
}

impl Access {
    /// The access of a request's caller, from the extensions of the request. The host identifies the caller of every
    /// request, so it is absent only where no identities are configured.
    pub fn of(extensions: &Extensions) -> Access {
        extensions.get::<Access>().cloned().unwrap_or_default()
    }

    pub(super) fn new(known: Option<Identified>, audit: Option<Audited>) -> Access {
        let (grant, expires_at) =
            known.map_or((None, None), |Identified { grant, expires_at }| (Some(grant), expires_at));
        Access { grant, expires_at, audit }
    }

    /// Whether the caller may do everything.
    pub fn is_unlimited(&self) -> bool {
        self.grant.is_none()
    }

    /// Whether the caller has the right on the queue or the namespace.
    pub fn allows(&self, right: Right, name: &str) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.rules.on(right, name).is_granted())
    }

    /// The patterns of the caller's rules for a right. `None`: the caller may do everything.
    pub fn patterns(&self, right: Right) -> Option<Patterns> {
        self.grant.as_ref().map(|grant| grant.rules.patterns(right))
    }

    /// Refuses a caller that does not have the right on the queue or the namespace. `call` is the RPC or the path, for the
    /// audit log.
    ///
    /// # Errors
    /// PERMISSION_DENIED with the reason NO_RIGHT.
    pub fn require(&self, call: &str, right: Right, name: &str) -> Result<(), Status> {
        match &self.grant {
            Some(grant) if !self.allows(right, name) => Err(self.denied(grant, call, right, name)),
            _ => Ok(()),
        }
    }

    /// Refuses a caller that may not make this call (S4).
    ///
    /// # Errors
    /// As [`require`](Access::require).
    pub fn check<R: Guarded>(&self, request: &R) -> Result<(), Status> {
        let Some(grant) = &self.grant else { return Ok(()) };
        let each = |name: &str| match self.allows(R::RIGHT, name) {
            true => Ok(()),
            false => Err(self.denied(grant, R::RPC, R::RIGHT, name)),
        };
        match request.resource() {
            Resource::One(name) => each(name),
            Resource::Each(names) => names.into_iter().try_for_each(each),
            Resource::AllOf(prefix) if !grant.rules.on_all_of(R::RIGHT, prefix).is_granted() => {
                Err(self.denied(grant, R::RPC, R::RIGHT, &format!("{prefix}*")))
            }
            Resource::AllOf(_) | Resource::Listed => Ok(()),
        }
    }

    fn denied(&self, grant: &Grant, call: &str, right: Right, name: &str) -> Status {
        let status = refusal::no_right(&grant.principal, right, name);
        if let Some(Audited { log, .. }) = &self.audit {
            log.write(self.line(call).on(right, [name.to_owned()]).ended(status.code(), reason(&status)));
        }
        status
    }

    /// The record of this call in the audit log, to be ended with it; `None`: it is not recorded.
    ///
    /// # Errors
    /// UNAVAILABLE with the reason AUDIT_FAILED: the log cannot be written, and so the call may not be executed.
    pub fn audit<R: Guarded>(&self, request: &R) -> Result<Option<AuditedCall>, Status> {
        let names = || match request.resource() {
            Resource::One(name) => vec![name.to_owned()],
            Resource::Each(names) => names.into_iter().map(str::to_owned).collect(),
            Resource::AllOf(prefix) => vec![format!("{prefix}*")],
            Resource::Listed => Vec::new(),
        };
        self.audit_as(R::RPC, R::RIGHT, names)
    }

    /// The same, for a call that needs a further right.
    ///
    /// # Errors
    /// As [`audit`](Access::audit).
    pub fn audit_as(
        &self,
        call: &str,
        right: Right,
        names: impl FnOnce() -> Vec<String>,
    ) -> Result<Option<AuditedCall>, Status> {
        let Some(Audited { log, .. }) = &self.audit else { return Ok(None) };
        if !log.records(right) {
            return Ok(None);
        }
        log.ready()?;
        let line = Some(self.line(call).on(right, names()));
        Ok(Some(AuditedCall { log: log.clone(), line }))
    }

    fn line(&self, call: &str) -> Line {
        let principal = self.grant.as_ref().map(|grant| grant.principal.clone());
        let issuer = self.grant.as_ref().and_then(|grant| grant.issuer.as_deref());
        Line::new(principal, self.audit.as_ref().and_then(|audit| audit.peer), Some(call.to_owned())).signed_by(issuer)
    }

    /// Ends when the credential expires, is withdrawn or gets other rights: with the status that ends a stream.
    pub async fn withdrawn(&self) -> Status {
        self.withdrawn_by(SystemTime::now).await
    }

    /// The same by this clock.
    pub(super) async fn withdrawn_by(&self, now: impl Fn() -> SystemTime) -> Status {
        let Some(grant) = &self.grant else { return std::future::pending().await };
        let expired = async {
            let Some(at) = self.expires_at else { return std::future::pending().await };
            while let Ok(left) = at.duration_since(now())
                && !left.is_zero()
            {
                sleep(left.min(CLOCK_CHECK)).await;
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
