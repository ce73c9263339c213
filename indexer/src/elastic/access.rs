//! With which user or API key, and which CAs, a client reaches Elasticsearch (S6).

use elasticsearch::auth::Credentials;
use elasticsearch::cert::{Certificate, CertificateValidation};
use std::path::{Path, PathBuf};
use tallystone_model::ConfigError;

/// The keys of `[elasticsearch]` for access. Nothing of it is secret: the secrets are in files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElasticAccess {
    /// The file with an encoded API key (base64 of `ID:KEY`).
    pub api_key_file: Option<PathBuf>,
    /// The user.
    pub user: Option<String>,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
    /// The CAs that the server may have in addition to the public ones, PEM.
    pub ca_file: Option<PathBuf>,
}

/// What a client needs of the files.
#[derive(Default)]
pub(super) struct Read {
    pub(super) credentials: Option<Credentials>,
    pub(super) validation: Option<CertificateValidation>,
}

impl ElasticAccess {
    /// Checks that the keys fit each other and the address, and that each file can be used.
    ///
    /// # Errors
    /// Names the first bad key.
    pub(crate) fn check(&self, url: &str) -> Result<(), ConfigError> {
        if self.ca_file.is_some() && !url.starts_with("https://") {
            let why = "is set, but elasticsearch.url does not begin with https://, so the connection has no TLS";
            return Err(bad("ca_file", why));
        }
        match (&self.user, &self.password_file, &self.api_key_file) {
            (Some(_), _, Some(_)) => return Err(bad("api_key_file", "is set, and elasticsearch.user, too; set one")),
            (Some(_), None, _) => return Err(bad("password_file", "is not set, but elasticsearch.user is; set both")),
            (None, Some(_), _) => return Err(bad("user", "is not set, but elasticsearch.password_file is; set both")),
            _ => {}
        }
        self.read().map(drop)
    }

    /// Reads the files.
    ///
    /// # Errors
    /// Names the key of the file that cannot be used, and never quotes what is in it.
    pub(super) fn read(&self) -> Result<Read, ConfigError> {
        let mut found = Read::default();
        if let Some(path) = &self.api_key_file {
            found.credentials = Some(Credentials::EncodedApiKey(secret("api_key_file", path)?));
        }
        if let (Some(user), Some(path)) = (&self.user, &self.password_file) {
            found.credentials = Some(Credentials::Basic(user.clone(), secret("password_file", path)?));
        }
        if let Some(path) = &self.ca_file {
            let pem = std::fs::read(path).map_err(|error| unreadable("ca_file", path, &error))?;
            let cas = Certificate::from_pem(&pem).map_err(|error| unreadable("ca_file", path, &error))?;
            found.validation = Some(CertificateValidation::Full(cas));
        }
        Ok(found)
    }
}

fn bad(key: &str, why: impl Into<String>) -> ConfigError {
    ConfigError::new(format!("elasticsearch.{key}"), why)
}

fn unreadable(key: &str, path: &Path, error: &impl std::fmt::Display) -> ConfigError {
    bad(key, format!("{}: {error}", path.display()))
}

/// One line that can be sent in a header.
fn secret(key: &str, path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(key, path, &error))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || text.contains(|c: char| c.is_control() || !c.is_ascii()) {
        return Err(bad(key, format!("{}: must have one line of ASCII characters", path.display())));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_keys_that_do_not_fit_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            Some(path)
        };
        let bad = |access: &ElasticAccess, url: &str| access.check(url).err().map(|error| error.field);
        let (none, user) = (ElasticAccess::default(), Some("u".to_owned()));
        let key = ElasticAccess { api_key_file: file("key", "aWQ6a2V5\n"), ..none.clone() };
        assert_eq!((bad(&none, "http://e"), bad(&key, "http://e")), (None, None));
        let (password_file, missing) = (file("password", "secret"), Some("/no/such/file".into()));
        let basic = ElasticAccess { user: user.clone(), password_file: password_file.clone(), ..none.clone() };
        assert_eq!(bad(&basic, "https://e"), None);
        for (field, access) in [
            ("elasticsearch.api_key_file", ElasticAccess { api_key_file: key.api_key_file.clone(), ..basic }),
            ("elasticsearch.password_file", ElasticAccess { user, ..none.clone() }),
            ("elasticsearch.user", ElasticAccess { password_file, ..none.clone() }),
            ("elasticsearch.api_key_file", ElasticAccess { api_key_file: missing.clone(), ..none.clone() }),
            ("elasticsearch.api_key_file", ElasticAccess { api_key_file: file("none", "\n"), ..none.clone() }),
            ("elasticsearch.ca_file", ElasticAccess { ca_file: missing, ..none.clone() }),
            ("elasticsearch.ca_file", ElasticAccess { ca_file: file("ca", "no PEM"), ..none.clone() }),
        ] {
            assert_eq!(bad(&access, "https://e").as_deref(), Some(field), "{access:?}");
        }
        let ca = ElasticAccess { ca_file: file("ca", "no PEM"), ..none };
        assert_eq!(bad(&ca, "http://e").as_deref(), Some("elasticsearch.ca_file"));
    }
}
