//! Certificates of a CA of the test, in files.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType, date_time_ymd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// A CA.
pub(crate) struct Ca {
    issuer: CertifiedIssuer<'static, KeyPair>,
    pub(crate) file: PathBuf,
}

/// The files of a certificate and its key.
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Files {
    /// Ends the TLS of connections with this certificate.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        let chain = CertificateDer::pem_file_iter(&self.certificate).expect("PEM").map(|one| one.expect("PEM"));
        let key = PrivateKeyDer::from_pem_file(&self.key).expect("PEM");
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain.collect(), key);
        TlsAcceptor::from(Arc::new(config.expect("a certificate")))
    }
}

impl Ca {
    /// A CA, whose certificate is in `NAME.pem`.
    pub(crate) fn new(dir: &Path, name: &str) -> Ca {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("a CA");
        let file = dir.join(format!("{name}.pem"));
        std::fs::write(&file, issuer.pem()).expect("a file");
        Ca { issuer, file }
    }

    /// The certificate of a server on this machine.
    pub(crate) fn server(&self, dir: &Path) -> Files {
        self.sign(
            dir,
            "server",
            CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("names"),
        )
    }

    /// The certificate of a server with these names.
    pub(crate) fn server_of(&self, dir: &Path, names: &[&str]) -> Files {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.sign(dir, "server", CertificateParams::new(names).expect("names"))
    }

    /// The certificate of a server on this machine that expires with the begin of this year; returns that time, in Unix seconds.
    pub(crate) fn server_until(&self, dir: &Path, year: i32) -> i64 {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned(), "localhost".to_owned()]).expect("names");
        params.not_after = date_time_ymd(year, 1, 1);
        let expires_at = params.not_after.unix_timestamp();
        self.sign(dir, "server", params);
        expires_at
    }

    /// The certificate of a client with this subject and, if it is not empty, this URI.
    pub(crate) fn client(&self, dir: &Path, name: &str, uri: &str) -> Files {
        self.sign(dir, name, client(name, uri))
    }

    /// The same, but expired.
    pub(crate) fn expired_client(&self, dir: &Path, name: &str) -> Files {
        let mut params = client(name, "");
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
        self.sign(dir, &format!("expired-{name}"), params)
    }

    /// The same, valid for so long from now on, in whole seconds.
    pub(crate) fn client_for(&self, dir: &Path, name: &str, time: Duration) -> Files {
        let mut params = client(name, "");
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time after 1970");
        params.not_after = date_time_ymd(1970, 1, 1) + now + time;
        self.sign(dir, &format!("short-{name}"), params)
    }

    fn sign(&self, dir: &Path, file: &str, params: CertificateParams) -> Files {
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.issuer).expect("a certificate");
        let files = Files { certificate: dir.join(format!("{file}.crt")), key: dir.join(format!("{file}.key")) };
        write_private(&files.key, &key.serialize_pem());
        std::fs::write(&files.certificate, signed.pem()).expect("a file");
        files
    }
}

fn client(name: &str, uri: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if !uri.is_empty() {
        params.subject_alt_names.push(SanType::URI(uri.try_into().expect("ASCII")));
    }
    params
}

/// Writes a file that only its owner reads.
pub(crate) fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("our file");
}
