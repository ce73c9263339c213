//! The certificate of this moment: it is read again when its files change. Open connections go on.

use super::certificates::server_config;
use super::config::TlsConfig;
use crate::stamp::Stamp;
use rustls::ServerConfig;
use std::sync::{Arc, PoisonError, RwLock};
use tallystone_model::ConfigError;
use tokio_rustls::TlsAcceptor;

/// How the ports of a process encrypt.
pub(crate) struct Tls {
    config: TlsConfig,
    current: RwLock<Current>,
}

struct Current {
    stamp: Stamp,
    server: Arc<ServerConfig>,
}

impl Tls {
    /// Reads the files; `None`: the ports serve plain text.
    pub(crate) fn open(config: &TlsConfig) -> Result<Option<Tls>, ConfigError> {
        config.check()?;
        // The stamp is older than what is read: a change in between is read again.
        let stamp = stamp(config);
        let server = server_config(config)?.map(Arc::new);
        Ok(server.map(|server| Tls { config: config.clone(), current: RwLock::new(Current { stamp, server }) }))
    }

    /// For one connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.current.read().unwrap_or_else(PoisonError::into_inner).server.clone())
    }

    /// Reads the files again if they have changed. Files with a fault change nothing: a certificate and its key may be
    /// written one after the other.
    pub(crate) fn refresh(&self) {
        let stamp = stamp(&self.config);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).stamp == stamp {
            return;
        }
        let read = server_config(&self.config);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.stamp = stamp;
        match read {
            Ok(Some(server)) => {
                current.server = Arc::new(server);
                tracing::info!("the certificates were read again");
            }
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the certificates stay as they were: the files are faulty"),
        }
    }
}

fn stamp(config: &TlsConfig) -> Stamp {
    Stamp::of([&config.cert_file, &config.key_file, &config.client_ca_file].into_iter().flatten())
}
