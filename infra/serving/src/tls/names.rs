//! What a client's certificate says.

use std::time::{Duration, SystemTime};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The certificate that a client has shown, and whose CA is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// The URIs and the DNS names in it, and its subject as `CN=worker, O=acme`.
    pub(crate) names: Vec<String>,
    /// The end of its last second.
    pub(crate) expires_at: SystemTime,
}

impl ClientCertificate {
    /// `None`: it cannot be read.
    pub(super) fn read(certificate: &[u8]) -> Option<ClientCertificate> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let not_after = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        // It is valid throughout that second.
        let expires_at = SystemTime::UNIX_EPOCH + Duration::from_secs(not_after.saturating_add(1));
        Some(ClientCertificate { names: names(&certificate), expires_at })
    }
}

fn names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.iter().flat_map(|names| &names.value.general_names);
    let mut names: Vec<String> = alternative
        .filter_map(|name| match name {
            GeneralName::URI(name) | GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect();
    let subject = certificate.subject().to_string();
    names.extend((!subject.is_empty()).then_some(subject));
    names
}
