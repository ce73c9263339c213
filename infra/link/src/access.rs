//! With which user and which files a process reaches Redis (S6).

use crate::ConnectError;
use redis::{Client, ClientTlsConfig, IntoConnectionInfo, TlsCertificates};
use std::path::{Path, PathBuf};
use tallystone_model::ConfigError;

/// The user and the files of `[redis]`. Nothing of it is secret: the password is in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisAccess {
    /// The ACL user; `None`: that of the address, or the default user.
    pub user: Option<String>,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
    /// The CAs of a `rediss://` address, PEM; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
}

impl RedisAccess {
    /// Checks that the keys fit each other and the address. The error names the first bad key.
    pub(crate) fn check(&self, url: &str) -> Result<(), ConfigError> {
        let bad = |key: &str, why: &str| Err(ConfigError::new(format!("redis.{key}"), why));
        let info = url.into_connection_info().ok();
        let has_password = info.is_some_and(|info| info.redis_settings().password().is_some());
        let files = [("ca_file", &self.ca_file), ("cert_file", &self.cert_file), ("key_file", &self.key_file)];
        if let Some((key, _)) = files.into_iter().find(|(_, file)| file.is_some() && !url.starts_with("rediss://")) {
            return bad(key, "is set, but redis.url does not begin with rediss://, so the connection has no TLS");
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => return bad("key_file", "is not set, but redis.cert_file is; set both"),
            (None, Some(_)) => return bad("cert_file", "is not set, but redis.key_file is; set both"),
            _ => {}
        }
        match (&self.user, &self.password_file) {
            (_, Some(_)) if has_password => bad("password_file", "is set, but redis.url has a password, too"),
            (Some(_), None) => bad("password_file", "is not set, but redis.user is; set both"),
            _ => Ok(()),
        }
    }

    /// The client of an address. The files are read now.
    ///
    /// # Errors
    /// [`ConnectError::Address`], or [`ConnectError::File`] if a file cannot be used.
    pub fn client(&self, url: &str) -> Result<Client, ConnectError> {
        let bad_address = |error: redis::RedisError| ConnectError::Address(error.to_string());
        let mut info = url.into_connection_info().map_err(bad_address)?;
        let mut settings = info.redis_settings().clone();
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(path) = &self.password_file {
            let password = read("password_file", path)?;
            settings = settings.set_password(String::from_utf8_lossy(&password).trim_end_matches(['\r', '\n']));
        }
        info = info.set_redis_settings(settings);
        if !url.starts_with("rediss://") {
            return Client::open(info).map_err(bad_address);
        }
        let client_tls = match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => {
                let (client_cert, client_key) = (read("cert_file", certificate)?, read("key_file", key)?);
                Some(ClientTlsConfig { client_cert, client_key })
            }
            _ => None,
        };
        let root_cert = self.ca_file.as_deref().map(|path| read("ca_file", path)).transpose()?;
        Client::build_with_tls(info, TlsCertificates { client_tls, root_cert }).map_err(bad_address)
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path).map_err(|error| ConnectError::File { key, why: format!("{}: {error}", path.display()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_keys_that_do_not_fit_are_named() {
        let file = || Some(PathBuf::from("f"));
        let bad = |url: &str, access: RedisAccess| access.check(url).err().map(|error| error.field);
        let (plain, tls) = ("redis://h:1", "rediss://h:1");
        assert_eq!(bad(plain, RedisAccess::default()), None);
        assert_eq!(bad(plain, RedisAccess { password_file: file(), ..RedisAccess::default() }), None);
        let with_user = RedisAccess { user: Some("u".to_owned()), password_file: file(), ..RedisAccess::default() };
        assert_eq!(bad(plain, with_user.clone()), None);
        let without = RedisAccess { password_file: None, ..with_user.clone() };
        assert_eq!(bad(plain, without).as_deref(), Some("redis.password_file"));
        assert_eq!(bad("redis://:p@h:1", with_user).as_deref(), Some("redis.password_file"));
        let ca = RedisAccess { ca_file: file(), ..RedisAccess::default() };
        assert_eq!((bad(tls, ca.clone()), bad(plain, ca).as_deref()), (None, Some("redis.ca_file")));
        let half = RedisAccess { cert_file: file(), ..RedisAccess::default() };
        assert_eq!(bad(tls, half).as_deref(), Some("redis.key_file"));
        let half = RedisAccess { key_file: file(), ..RedisAccess::default() };
        assert_eq!(bad(tls, half).as_deref(), Some("redis.cert_file"));
    }

    #[test]
    fn s6_a_file_that_is_missing_is_named() {
        let access = RedisAccess { password_file: Some("/no/such/file".into()), ..RedisAccess::default() };
        let error = access.client("redis://h:1").unwrap_err().to_string();
        assert!(error.starts_with("redis.password_file: /no/such/file"), "{error}");
    }
}
