//! The section `[tls]` of the configuration.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use tallystone_model::ConfigError;

/// `[tls]`: how the ports of a process encrypt, and which clients they let in (S2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate of this server and its intermediate certificates, PEM. `None`: the ports serve plain text.
    pub cert_file: Option<PathBuf>,
    /// The private key of the certificate, PEM. Other users of the machine must not be able to read it.
    pub key_file: Option<PathBuf>,
    /// The CAs of the certificates of clients, PEM. `None`: clients have no certificates.
    pub client_ca_file: Option<PathBuf>,
    /// Whether a client needs a certificate, if there is a `client_ca_file`.
    pub client_certificates: ClientCertificates,
    /// Serve plain text on addresses that other machines reach.
    pub insecure: bool,
}

/// Whether a client needs a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientCertificates {
    /// Without one, the handshake fails.
    #[default]
    Required,
    /// A client may have one; others need a token.
    Optional,
}

impl TlsConfig {
    /// Checks that keys are set together that belong together.
    pub fn check(&self) -> Result<(), ConfigError> {
        let missing = |key: &str, of: &str| {
            Err(ConfigError::new(format!("tls.{key}"), format!("is not set, but tls.{of} is; set both")))
        };
        match (&self.cert_file, &self.key_file, &self.client_ca_file) {
            (Some(_), None, _) => missing("key_file", "cert_file"),
            (None, Some(_), _) => missing("cert_file", "key_file"),
            (None, None, Some(_)) => missing("cert_file", "client_ca_file"),
            _ => Ok(()),
        }
    }

    /// Refuses plain text on an address that other machines reach. `field` names the address in the error.
    pub fn check_address(&self, field: &str, address: SocketAddr) -> Result<(), ConfigError> {
        let is_plain = self.cert_file.is_none() && !self.insecure;
        if is_plain && !address.ip().to_canonical().is_loopback() {
            let why = format!(
                "is {address}, which other machines can reach, but the port would serve plain text; set tls.cert_file \
                 and tls.key_file, or allow plain text with --insecure"
            );
            return Err(ConfigError::new(field, why));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s2_keys_that_belong_together_are_set_together() {
        let path = || Some(PathBuf::from("f"));
        let bad = |tls: TlsConfig| tls.check().unwrap_err().field;
        assert_eq!(TlsConfig::default().check(), Ok(()));
        assert_eq!(bad(TlsConfig { cert_file: path(), ..TlsConfig::default() }), "tls.key_file");
        assert_eq!(bad(TlsConfig { key_file: path(), ..TlsConfig::default() }), "tls.cert_file");
        assert_eq!(bad(TlsConfig { client_ca_file: path(), ..TlsConfig::default() }), "tls.cert_file");
    }

    #[test]
    fn s2_only_loopback_addresses_serve_plain_text_unless_it_is_allowed() {
        let plain = TlsConfig::default();
        let allows = |tls: &TlsConfig, address: &str| tls.check_address("f", address.parse().unwrap()).is_ok();
        for own in ["127.0.0.1:1", "127.5.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1"] {
            assert!(allows(&plain, own), "{own}");
        }
        let with_tls = TlsConfig { cert_file: Some("c".into()), key_file: Some("k".into()), ..TlsConfig::default() };
        for reached in ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[::ffff:10.0.0.1]:1"] {
            assert!(!allows(&plain, reached), "{reached}");
            assert!(
                allows(&with_tls, reached) && allows(&TlsConfig { insecure: true, ..TlsConfig::default() }, reached)
            );
        }
    }
}
