//! With which user and which files a process reaches a Redis (S6).

use crate::ConnectError;
use crate::address::Address;
use crate::cluster::Cluster;
use crate::nodes::NodeAccess;
use crate::primary::Primary;
use crate::sentinels::Sentinels;
use redis::{ClientTlsConfig, ConnectionInfo, RedisError, TlsCertificates};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tallystone_model::ConfigError;

/// The user and the files of a section such as `[redis]`. Nothing of it is secret: the password is in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisAccess {
    /// The ACL user; `None`: that of the address, or the default user.
    pub user: Option<String>,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
    /// The ACL user of the Sentinels; `None`: the default user.
    pub sentinel_user: Option<String>,
    /// The file with the password of the Sentinels; `None`: they need none.
    pub sentinel_password_file: Option<PathBuf>,
    /// The CAs of a `rediss://` address, PEM; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
}

impl RedisAccess {
    /// Checks that the keys of this section fit each other and the address. The error names the first bad key.
    pub(crate) fn check(&self, section: &str, url: &str) -> Result<(), ConfigError> {
        let bad = |key: &str, why: &str| {
            let why = why.replace("SECTION", section);
            Err(ConfigError::new(format!("{section}.{key}"), why))
        };
        // What is no address is another error.
        let address = Address::parse(url).ok();
        let has_password = address.as_ref().is_some_and(|address| address.node().redis_settings().password().is_some());
        let files = [("ca_file", &self.ca_file), ("cert_file", &self.cert_file), ("key_file", &self.key_file)];
        if let Some((key, _)) = files.into_iter().find(|(_, file)| file.is_some() && !has_tls(url)) {
            return bad(key, "is set, but SECTION.url does not begin with rediss, so the connection has no TLS");
        }
        match (&self.cert_file, &self.key_file) {
            (Some(_), None) => return bad("key_file", "is not set, but SECTION.cert_file is; set both"),
            (None, Some(_)) => return bad("cert_file", "is not set, but SECTION.key_file is; set both"),
            _ => {}
        }
        match (&self.sentinel_user, &self.sentinel_password_file) {
            (Some(_), None) => {
                return bad("sentinel_password_file", "is not set, but SECTION.sentinel_user is; set both");
            }
            (_, Some(_)) if matches!(address, Some(Address::One(_) | Address::Cluster { .. })) => {
                return bad("sentinel_password_file", "is set, but SECTION.url names no Sentinels");
            }
            _ => {}
        }
        match (&self.user, &self.password_file) {
            (_, Some(_)) if has_password => bad("password_file", "is set, but SECTION.url has a password, too"),
            (Some(_), None) => bad("password_file", "is not set, but SECTION.user is; set both"),
            _ => Ok(()),
        }
    }

    /// Where the primary of an address is. The files are read now.
    ///
    /// # Errors
    /// [`ConnectError::Address`], [`ConnectError::File`] if a file cannot be used, or [`ConnectError::Cluster`].
    pub fn primary(&self, url: &str) -> Result<Primary, ConnectError> {
        let primary = self.open(url)?;
        match primary.is_of_cluster() {
            true => Err(ConnectError::Cluster { url: tallystone_model::without_password(url) }),
            false => Ok(primary),
        }
    }

    /// The same, also for a Redis Cluster, where each slot has its primary: that of slot 0. See [`Primary::with_slot`].
    ///
    /// # Errors
    /// [`ConnectError::Address`], [`ConnectError::File`] if a file cannot be used.
    pub fn first_primary(&self, url: &str) -> Result<Primary, ConnectError> {
        self.open(url)
    }

    /// The same, for the keys of another section.
    pub(crate) fn primary_of(&self, section: &'static str, url: &str) -> Result<Primary, ConnectError> {
        self.open(url).map_err(|error| match error {
            ConnectError::File { key, why, .. } => ConnectError::File { section, key, why },
            other => other,
        })
    }

    fn open(&self, url: &str) -> Result<Primary, ConnectError> {
        let bad_address = |error: RedisError| ConnectError::Address(error.to_string());
        let address = Address::parse(url).map_err(ConnectError::Address)?;
        let certificates = if has_tls(url) { Some(self.certificates()?) } else { None };
        let access = |info: ConnectionInfo, login| NodeAccess {
            info: with_login(info, login),
            certificates: certificates.clone(),
        };
        let password = self.password_file.as_deref().map(|path| password("password_file", path)).transpose()?;
        let node = access(address.node().clone(), (self.user.as_deref(), password.as_deref()));
        let (sentinels, name) = match address {
            Address::One(_) => return Ok(node.client(None).map_err(bad_address)?.into()),
            Address::Cluster { seeds } => {
                let login = (self.user.as_deref(), password.as_deref());
                let clients = seeds.into_iter().map(|info| access(info, login).client(None));
                let clients = clients.collect::<Result<Vec<_>, _>>().map_err(bad_address)?;
                return Ok(Primary::of_slot(Arc::new(Cluster::new(clients, Arc::new(node))), 0));
            }
            Address::Sentinels { sentinels, name, .. } => (sentinels, name),
        };
        let password = self.sentinel_password_file.as_deref();
        let password = password.map(|path| self::password("sentinel_password_file", path)).transpose()?;
        let login = (self.sentinel_user.as_deref(), password.as_deref());
        let clients = sentinels.into_iter().map(|info| access(info, login).client(None));
        let clients = clients.collect::<Result<Vec<_>, _>>().map_err(bad_address)?;
        Ok(Primary::named_by(Sentinels::new(clients, &name), node))
    }

    fn certificates(&self) -> Result<TlsCertificates, ConnectError> {
        let client_tls = match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => {
                let (client_cert, client_key) = (read("cert_file", certificate)?, read("key_file", key)?);
                Some(ClientTlsConfig { client_cert, client_key })
            }
            _ => None,
        };
        let root_cert = self.ca_file.as_deref().map(|path| read("ca_file", path)).transpose()?;
        Ok(TlsCertificates { client_tls, root_cert })
    }
}

fn has_tls(url: &str) -> bool {
    url.starts_with("rediss")
}

/// The same, with the user and the password that are set.
fn with_login(info: ConnectionInfo, (user, password): (Option<&str>, Option<&str>)) -> ConnectionInfo {
    let mut settings = info.redis_settings().clone();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    info.set_redis_settings(settings)
}

fn password(key: &'static str, path: &Path) -> Result<String, ConnectError> {
    let password = read(key, path)?;
    Ok(String::from_utf8_lossy(&password).trim_end_matches(['\r', '\n']).to_owned())
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, ConnectError> {
    std::fs::read(path).map_err(|error| ConnectError::File {
        section: "redis",
        key,
        why: format!("{}: {error}", path.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s6_keys_that_do_not_fit_are_named() {
        let file = || Some(PathBuf::from("f"));
        let bad = |url: &str, access: RedisAccess| access.check("redis", url).err().map(|error| error.field);
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
        let login = RedisAccess { sentinel_password_file: file(), ..RedisAccess::default() };
        assert_eq!(bad(plain, login.clone()).as_deref(), Some("redis.sentinel_password_file"));
        assert_eq!(bad("redis-sentinel://h:1#m", login.clone()), None);
        let login = RedisAccess { sentinel_user: Some("u".to_owned()), sentinel_password_file: None, ..login };
        assert_eq!(bad("redis-sentinel://h:1#m", login).as_deref(), Some("redis.sentinel_password_file"));
    }

    #[test]
    fn s6_a_file_that_is_missing_is_named() {
        let access = RedisAccess { password_file: Some("/no/such/file".into()), ..RedisAccess::default() };
        let error = access.primary("redis://h:1").err().expect("no file").to_string();
        assert!(error.starts_with("redis.password_file: /no/such/file"), "{error}");
    }
}
