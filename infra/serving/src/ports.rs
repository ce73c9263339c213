//! What all ports of a process share: limits, TLS, the identities of callers, and the audit log.

use crate::access::{AuditConfig, AuditLog, AuthConfig, Identities, JwtConfig};
use crate::bounds::Limits;
use crate::tls::{Tls, TlsConfig};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tallystone_model::ConfigError;

/// How often the files of certificates and principals are compared with what was read.
const REFRESH_EVERY: Duration = Duration::from_millis(500);

/// What all ports of a process share. Clones share the certificates and the principals.
#[derive(Clone, Default)]
pub struct Ports {
    pub(crate) limits: Limits,
    pub(crate) tls: Option<Arc<Tls>>,
    pub(crate) identities: Option<Arc<Identities>>,
    pub(crate) audit: Option<Arc<AuditLog>>,
}

impl Ports {
    /// Reads certificates and principals; from then on reads them again within a second of a change. Call it within a
    /// tokio runtime.
    ///
    /// # Errors
    /// A file cannot be used; the field is the key that names it.
    pub fn open(
        limits: Limits,
        tls: &TlsConfig,
        auth: &AuthConfig,
        jwt: &JwtConfig,
        audit: &AuditConfig,
    ) -> Result<Ports, ConfigError> {
        let tls = Tls::open(tls)?.map(Arc::new);
        let identities = Identities::open(auth, jwt)?.map(Arc::new);
        let audit = AuditLog::open(audit)?.map(Arc::new);
        let ports = Ports { limits, tls, identities, audit };
        if ports.tls.is_some() || ports.identities.is_some() {
            let tls = ports.tls.as_ref().map_or_else(Weak::new, Arc::downgrade);
            let identities = ports.identities.as_ref().map_or_else(Weak::new, Arc::downgrade);
            tokio::spawn(refresh(tls, identities));
        }
        Ok(ports)
    }

    /// Ports within limits, in plain text, for callers without identities.
    pub fn plain(limits: Limits) -> Ports {
        Ports { limits, ..Ports::default() }
    }
}

/// Ends with the last port.
async fn refresh(tls: Weak<Tls>, identities: Weak<Identities>) {
    loop {
        tokio::time::sleep(REFRESH_EVERY).await;
        let (tls, identities) = (tls.upgrade(), identities.upgrade());
        if tls.is_none() && identities.is_none() {
            return;
        }
        // Small local files.
        tls.iter().for_each(|tls| tls.refresh());
        identities.iter().for_each(|identities| identities.refresh());
    }
}
