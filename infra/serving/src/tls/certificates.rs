//! Reads certificates and keys.

use super::config::{ClientCertificates, TlsConfig};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use tallystone_model::ConfigError;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The protocols of a port, the preferred one first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];
const READABLE_BY_OTHERS: u32 = 0o007;

/// How a port encrypts. The configuration has been [checked](TlsConfig::check).
pub(super) fn server_config(tls: &TlsConfig) -> Result<ServerConfig, ConfigError> {
    let (Some(cert_file), Some(key_file)) = (&tls.cert_file, &tls.key_file) else {
        return Err(ConfigError::new("tls.cert_file", "is not set"));
    };
    let certificates = certificates("tls.cert_file", cert_file)?;
    let key = private_key(key_file)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| ConfigError::new("tls.cert_file", error.to_string()))?;
    let builder = match &tls.client_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => builder.with_client_cert_verifier(verifier(file, tls.client_certificates, provider)?),
    };
    let mut config = builder.with_single_cert(certificates, key).map_err(|error| {
        let why = format!("{} does not fit the key in {}: {error}", cert_file.display(), key_file.display());
        ConfigError::new("tls.cert_file", why)
    })?;
    config.alpn_protocols = ALPN.map(<[u8]>::to_vec).into();
    Ok(config)
}

/// When the first certificate of the file expires, in Unix seconds: that of the server, or one that has signed it. `None`: the file
/// cannot be read.
pub(super) fn expires_at(file: &Path) -> Option<i64> {
    let chain = certificates("tls.cert_file", file).ok()?;
    let expires_at = |certificate: &CertificateDer<'_>| {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        Some(certificate.validity().not_after.timestamp())
    };
    chain.iter().filter_map(expires_at).min()
}

fn verifier(
    file: &Path,
    clients: ClientCertificates,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, ConfigError> {
    let fault = |why: String| ConfigError::new("tls.client_ca_file", why);
    let mut roots = RootCertStore::empty();
    for certificate in certificates("tls.client_ca_file", file)? {
        roots.add(certificate).map_err(|error| fault(format!("{}: {error}", file.display())))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = match clients {
        ClientCertificates::Required => verifier,
        ClientCertificates::Optional => verifier.allow_unauthenticated(),
    };
    verifier.build().map_err(|error| fault(format!("{}: {error}", file.display())))
}

fn certificates(field: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let fault = |why: String| ConfigError::new(field, format!("{}: {why}", file.display()));
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(certificates) if certificates.is_empty() => Err(fault("has no certificate in PEM".to_owned())),
        read => read.map_err(|error| fault(error.to_string())),
    }
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let fault = |why: String| ConfigError::new("tls.key_file", format!("{}: {why}", file.display()));
    let mode = std::fs::metadata(file).map_err(|error| fault(error.to_string()))?.permissions().mode();
    if mode & READABLE_BY_OTHERS != 0 {
        return Err(fault("every user of this machine can read it; chmod o= takes that right away".to_owned()));
    }
    // The error of a key that cannot be read does not show it.
    PrivateKeyDer::from_pem_file(file).map_err(|error| fault(error.to_string()))
}
