//! With which encryption, user and files a client reaches Kafka (S6).

use crate::error::KafkaConfigError;
use rdkafka::ClientConfig;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The protocol of a listener of Kafka, as Kafka names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaSecurity {
    /// Neither encryption nor a user.
    Plaintext,
    /// TLS.
    Ssl,
    /// A user, without encryption.
    SaslPlaintext,
    /// A user, within TLS.
    SaslSsl,
}

impl KafkaSecurity {
    fn name(self) -> &'static str {
        match self {
            KafkaSecurity::Plaintext => "plaintext",
            KafkaSecurity::Ssl => "ssl",
            KafkaSecurity::SaslPlaintext => "sasl_plaintext",
            KafkaSecurity::SaslSsl => "sasl_ssl",
        }
    }

    fn has_tls(self) -> bool {
        matches!(self, KafkaSecurity::Ssl | KafkaSecurity::SaslSsl)
    }

    fn has_sasl(self) -> bool {
        matches!(self, KafkaSecurity::SaslPlaintext | KafkaSecurity::SaslSsl)
    }
}

/// How a client proves who it is, as Kafka names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SaslMechanism {
    /// It sends the password.
    #[serde(rename = "PLAIN")]
    Plain,
    /// It proves that it has the password.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// The same with a longer hash.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl SaslMechanism {
    fn name(self) -> &'static str {
        match self {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::ScramSha256 => "SCRAM-SHA-256",
            SaslMechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// The keys of `[kafka]` for access. Nothing of it is secret: the password is in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KafkaAccess {
    /// The protocol; `None`: that of the properties, or plain text.
    pub security: Option<KafkaSecurity>,
    /// How the user is proved.
    pub sasl_mechanism: Option<SaslMechanism>,
    /// The user.
    pub user: Option<String>,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
    /// The CAs of the brokers, PEM; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show to the brokers, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
    /// The file with the password of the private key.
    pub key_password_file: Option<PathBuf>,
}

/// Properties that a key replaces.
const REPLACED: [(&str, &str); 7] = [
    ("security.protocol", "security"),
    ("sasl.mechanism", "sasl_mechanism"),
    ("sasl.mechanisms", "sasl_mechanism"),
    ("sasl.username", "user"),
    ("ssl.ca.location", "ca_file"),
    ("ssl.certificate.location", "cert_file"),
    ("ssl.key.location", "key_file"),
];

/// Secrets that a key takes from a file.
const SECRETS: [(&str, &str); 3] =
    [("sasl.password", "password_file"), ("ssl.key.pem", "key_file"), ("ssl.key.password", "key_password_file")];

impl KafkaAccess {
    /// Checks that the keys fit each other and the properties, and that each file can be read. The error names the first
    /// bad key.
    pub(crate) fn check<'a>(&self, properties: impl IntoIterator<Item = &'a String>) -> Result<(), KafkaConfigError> {
        let bad = |field, why: String| Err(KafkaConfigError::Invalid { field, why });
        for name in properties {
            let is_same = |(property, _): &&(&str, &str)| property == name;
            if let Some((property, key)) = SECRETS.iter().find(is_same) {
                return bad("properties", format!("has {property}; a secret comes from a file: set kafka.{key}"));
            }
            if let (Some(_), Some((property, key))) = (self.security, REPLACED.iter().find(is_same)) {
                return bad("properties", format!("has {property}, and kafka.security is set, too; use kafka.{key}"));
            }
        }
        let has = |what: fn(KafkaSecurity) -> bool| self.security.is_some_and(what);
        let needs_tls = [("ca_file", &self.ca_file), ("cert_file", &self.cert_file), ("key_file", &self.key_file)];
        for (key, file) in needs_tls {
            let Some(file) = file else { continue };
            if !has(KafkaSecurity::has_tls) {
                return bad(key, "is set, but kafka.security is neither ssl nor sasl_ssl".to_owned());
            }
            read(key, file)?;
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => return bad("key_file", "is not set, but kafka.cert_file is; set both".to_owned()),
            (None, Some(_)) => return bad("cert_file", "is not set, but kafka.key_file is; set both".to_owned()),
            _ => {}
        }
        if self.key_password_file.is_some() && self.key_file.is_none() {
            return bad("key_password_file", "is set, but kafka.key_file is not".to_owned());
        }
        let of_sasl = [
            ("sasl_mechanism", self.sasl_mechanism.is_some()),
            ("user", self.user.is_some()),
            ("password_file", self.password_file.is_some()),
        ];
        for (key, is_set) in of_sasl {
            if is_set != has(KafkaSecurity::has_sasl) {
                return bad(
                    key,
                    match is_set {
                        true => "is set, but kafka.security is neither sasl_plaintext nor sasl_ssl".to_owned(),
                        false => "is not set, but kafka.security needs a user".to_owned(),
                    },
                );
            }
        }
        self.password()?;
        self.key_password().map(drop)
    }

    fn password(&self) -> Result<Option<String>, KafkaConfigError> {
        password("password_file", self.password_file.as_deref())
    }

    fn key_password(&self) -> Result<Option<String>, KafkaConfigError> {
        password("key_password_file", self.key_password_file.as_deref())
    }

    /// Sets the properties of librdkafka. The passwords are read now.
    pub(crate) fn apply(&self, config: &mut ClientConfig) -> Result<(), KafkaConfigError> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let properties = [
            ("security.protocol", self.security.map(|security| security.name().to_owned())),
            ("sasl.mechanism", self.sasl_mechanism.map(|mechanism| mechanism.name().to_owned())),
            ("sasl.username", self.user.clone()),
            ("sasl.password", self.password()?),
            ("ssl.ca.location", path(&self.ca_file)),
            ("ssl.certificate.location", path(&self.cert_file)),
            ("ssl.key.location", path(&self.key_file)),
            ("ssl.key.password", self.key_password()?),
        ];
        for (name, value) in properties {
            if let Some(value) = value {
                config.set(name, value);
            }
        }
        Ok(())
    }
}

fn password(field: &'static str, path: Option<&Path>) -> Result<Option<String>, KafkaConfigError> {
    let Some(path) = path else { return Ok(None) };
    let password = read(field, path)?;
    let password = password.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        let why = format!("{}: the file is empty", path.display());
        return Err(KafkaConfigError::Invalid { field, why });
    }
    Ok(Some(password.to_owned()))
}

fn read(field: &'static str, path: &Path) -> Result<String, KafkaConfigError> {
    let why = |error| KafkaConfigError::Invalid { field, why: format!("{}: {error}", path.display()) };
    std::fs::read_to_string(path).map_err(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(access: &KafkaAccess, properties: &[&str]) -> Option<&'static str> {
        let properties: Vec<String> = properties.iter().map(|name| (*name).to_owned()).collect();
        match access.check(&properties) {
            Err(KafkaConfigError::Invalid { field, .. }) => Some(field),
            other => other.map(|()| None).unwrap(),
        }
    }

    #[test]
    fn s6_keys_that_do_not_fit_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = |text: &str| {
            let path = dir.path().join(format!("f{}", text.len()));
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let (none, tls) = (KafkaAccess::default(), KafkaSecurity::Ssl);
        assert_eq!((field(&none, &[]), field(&none, &["security.protocol", "sasl.username"])), (None, None));
        assert_eq!(field(&none, &["sasl.password"]), Some("properties"));
        assert_eq!(field(&none, &["ssl.key.pem"]), Some("properties"));
        assert_eq!(field(&none, &["ssl.key.password"]), Some("properties"));
        let sasl = KafkaAccess {
            security: Some(KafkaSecurity::SaslSsl),
            sasl_mechanism: Some(SaslMechanism::Plain),
            user: Some("u".to_owned()),
            password_file: file("secret\n"),
            ..KafkaAccess::default()
        };
        assert_eq!((field(&sasl, &["linger.ms"]), field(&sasl, &["sasl.username"])), (None, Some("properties")));
        assert_eq!(sasl.password().unwrap().as_deref(), Some("secret"));
        for (bad, access) in [
            ("ca_file", KafkaAccess { ca_file: file("x"), ..none.clone() }),
            ("ca_file", KafkaAccess { security: Some(tls), ca_file: Some("/no/such/file".into()), ..none.clone() }),
            ("key_file", KafkaAccess { security: Some(tls), cert_file: file("x"), ..none.clone() }),
            ("key_password_file", KafkaAccess { security: Some(tls), key_password_file: file("x"), ..none.clone() }),
            ("cert_file", KafkaAccess { security: Some(tls), key_file: file("x"), ..none.clone() }),
            ("user", KafkaAccess { user: Some("u".to_owned()), ..none.clone() }),
            ("sasl_mechanism", KafkaAccess { sasl_mechanism: None, ..sasl.clone() }),
            ("sasl_mechanism", KafkaAccess { security: Some(tls), ..sasl.clone() }),
            ("user", KafkaAccess { user: None, ..sasl.clone() }),
            ("password_file", KafkaAccess { password_file: None, ..sasl.clone() }),
            ("password_file", KafkaAccess { password_file: file("\n"), ..sasl.clone() }),
        ] {
            assert_eq!(field(&access, &[]), Some(bad), "{access:?}");
        }
    }

    #[test]
    fn s6_the_keys_become_properties() {
        let mut config = ClientConfig::new();
        let (security, ca_file) = (Some(KafkaSecurity::Ssl), Some("ca.pem".into()));
        KafkaAccess { security, ca_file, ..KafkaAccess::default() }.apply(&mut config).unwrap();
        assert_eq!((config.get("security.protocol"), config.get("ssl.ca.location")), (Some("ssl"), Some("ca.pem")));
        assert_eq!(config.get("sasl.password"), None);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("passphrase");
        std::fs::write(&file, "open\n").unwrap();
        KafkaAccess { key_password_file: Some(file), ..KafkaAccess::default() }.apply(&mut config).unwrap();
        assert_eq!(config.get("ssl.key.password"), Some("open"));
    }
}
