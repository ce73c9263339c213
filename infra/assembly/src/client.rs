//! The section `[client]`: how a process calls the servers of Tallystone.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tallystone_client::{ClientBuilder, FromConnections};
use tallystone_model::ConfigError;

/// `[client]`: which servers at `https://` addresses a process trusts, and how it proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClientConfig {
    /// The CAs of the servers' certificates, PEM. `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show to servers, PEM.
    pub cert_file: Option<PathBuf>,
    /// The private key of the certificate, PEM.
    pub key_file: Option<PathBuf>,
    /// The token to send. It is read again when it changes.
    pub token_file: Option<PathBuf>,
}

impl ClientConfig {
    /// Checks that keys are set together that belong together.
    pub fn check(&self) -> Result<(), ConfigError> {
        let missing = |key: &str, other: &str| {
            Err(ConfigError::new(format!("client.{key}"), format!("is not set, but client.{other} is; set both")))
        };
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => missing("key_file", "cert_file"),
            (None, Some(_)) => missing("cert_file", "key_file"),
            _ => Ok(()),
        }
    }

    /// Gives a client that is being built these files.
    pub fn apply<C: FromConnections + 'static>(&self, mut builder: ClientBuilder<C>) -> ClientBuilder<C> {
        if let Some(ca) = &self.ca_file {
            builder = builder.ca_file(ca);
        }
        if let (Some(certificate), Some(key)) = (&self.cert_file, &self.key_file) {
            builder = builder.certificate_files(certificate, key);
        }
        if let Some(token) = &self.token_file {
            builder = builder.token_file(token);
        }
        builder
    }
}
