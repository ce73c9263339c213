//! The health of a process on this machine, of which only the port is known: a probe of a container need not follow its
//! configuration.

use crate::error::CliError;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use tallystone_assembly::ClientConfig as Credentials;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The number of bytes that contain the status: `HTTP/1.1 200`.
const STATUS_BYTES: u64 = 12;

/// What is checked.
#[derive(Clone, Copy)]
pub(super) enum Probe {
    /// Whether the process answers.
    Live,
    /// Whether it can serve calls.
    Ready,
}

/// Whether the process that listens on this port answers the probe with 200. The credentials matter where the port demands
/// certificates of its clients.
///
/// # Errors
/// No process listens there, or what answers does not speak HTTP.
pub(super) async fn answers(port: u16, probe: Probe, credentials: &Credentials) -> Result<bool, CliError> {
    let unavailable = |error: io::Error| CliError::unavailable(format!("port {port} of this machine: {error}"));
    let tls = TlsConnector::from(Arc::new(client_config(credentials)?));
    let name = ServerName::from(Ipv4Addr::LOCALHOST);
    let tcp = connect(port).await.map_err(unavailable)?;
    let encrypted = match tls.connect(name, tcp).await {
        Ok(stream) => status(stream, probe).await,
        Err(error) => Err(error),
    };
    let status = match encrypted {
        Ok(status) => status,
        // Then it serves plain text, or has a fault that the first error names.
        Err(error) => match status(connect(port).await.map_err(unavailable)?, probe).await {
            Ok(status) => status,
            Err(_) => return Err(unavailable(error)),
        },
    };
    Ok(status == 200)
}

/// A process listens on one of these addresses, or on all.
async fn connect(port: u16) -> io::Result<TcpStream> {
    match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
        Ok(stream) => Ok(stream),
        Err(error) => TcpStream::connect((Ipv6Addr::LOCALHOST, port)).await.map_err(|_| error),
    }
}

async fn status(mut stream: impl AsyncRead + AsyncWrite + Unpin, probe: Probe) -> io::Result<u16> {
    let path = match probe {
        Probe::Live => "/livez",
        Probe::Ready => "/readyz",
    };
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut head = Vec::new();
    stream.take(STATUS_BYTES).read_to_end(&mut head).await?;
    let status = head.strip_prefix(b"HTTP/1.1 ").and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
    status.ok_or_else(|| io::Error::other("what listens there does not speak HTTP"))
}

/// TLS with any server: on loopback a certificate has no name to verify, and the probe sends no secret.
fn client_config(credentials: &Credentials) -> Result<ClientConfig, CliError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(CliError::unavailable)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyServer(provider)));
    let (Some(certificate), Some(key)) = (&credentials.cert_file, &credentials.key_file) else {
        return Ok(builder.with_no_client_auth());
    };
    let fault = |path: &Path, error: &dyn std::fmt::Display| CliError::usage(format!("{}: {error}", path.display()));
    let chain = CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = chain.map_err(|error| fault(certificate, &error))?;
    let private_key = PrivateKeyDer::from_pem_file(key).map_err(|error| fault(key, &error))?;
    builder.with_client_auth_cert(chain, private_key).map_err(|error| fault(certificate, &error))
}

/// Accepts every certificate whose key the server has.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
