//! The names in a client's certificate.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The URIs and the DNS names of the certificate, and its subject as `CN=worker, O=acme`.
pub(super) fn names(certificate: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
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
