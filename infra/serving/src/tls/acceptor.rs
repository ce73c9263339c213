//! The certificate of this moment: it is read again when its files change. Open connections go on.

use super::certificates::server_config;
use super::config::TlsConfig;
use crate::watched::Watched;
use rustls::ServerConfig;
use tallystone_model::ConfigError;
use tokio_rustls::TlsAcceptor;

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
        let current = Watched::open(files.cloned().collect(), || server_config(config))?;
        Ok(Some(Tls { config: config.clone(), current }))
    }

    /// For one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.get())
    }

    /// Reads the files again if they have changed. A certificate and its key may be written one after the other: until
    /// both fit, the ports keep what they had.
    pub(crate) fn refresh(&self) {
        self.current.refresh("certificates", |_| server_config(&self.config));
    }
}
