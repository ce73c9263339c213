//! The certificate of this moment: it is read again when its files change. Open connections go on.

use super::certificates::{expires_at, server_config};
use super::config::TlsConfig;
use crate::watched::Watched;
use ::metrics::{Unit, describe_gauge, gauge};
use rustls::ServerConfig;
use tallystone_model::ConfigError;
use tokio_rustls::TlsAcceptor;

const EXPIRES: &str = "tallystone_tls_certificate_expiry_seconds";

/// How the ports of a process encrypt.
pub(crate) struct Tls {
    config: TlsConfig,
    current: Watched<ServerConfig>,
}

impl Tls {
    /// Reads the files; `None`: the ports serve plain text.
    pub(crate) fn open(config: &TlsConfig) -> Result<Option<Tls>, ConfigError> {
        config.check()?;
        if config.cert_file.is_none() {
            return Ok(None);
        }
        let files = [&config.cert_file, &config.key_file, &config.client_ca_file].into_iter().flatten();
        let current = Watched::open("certificates", files.cloned().collect(), || server_config(config))?;
        Ok(Some(Tls { config: config.clone(), current }))
    }

    /// For one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.get())
    }

    /// Reads the files again if they have changed. A certificate and its key may be written one after the other: until
    /// both fit, the ports keep what they had.
    pub(crate) fn refresh(&self) {
        if self.current.refresh(|_| server_config(&self.config)) {
            self.show_expiry();
        }
    }

    /// Begins its metrics. The files are open before the process has a recorder.
    pub(crate) fn begin_metrics(&self) {
        describe_gauge!(EXPIRES, Unit::Seconds, "when the first certificate in tls.cert_file expires, Unix time");
        self.current.begin_metrics();
        self.show_expiry();
    }

    fn show_expiry(&self) {
        if let Some(at_s) = self.config.cert_file.as_deref().and_then(expires_at) {
            gauge!(EXPIRES).set(at_s as f64);
        }
    }
}
