//! With which user and which files a process reaches a Redis (S6).

use crate::ConnectError;
use crate::address::Address;
use crate::cluster::Cluster;
use crate::nodes::{FileFault, NodeAccess, TlsFiles};
use crate::primary::Primary;
use crate::sentinels::Sentinels;
use crate::topology::TopologyNode;
use redis::{ConnectionInfo, RedisError};
use std::path::PathBuf;
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

    /// Where the primary of an address is. The files are read now, and again for each connection.
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
        let access = |info: ConnectionInfo, user: &Option<String>, key, password_file: &Option<PathBuf>| {
            let password_file = password_file.clone().map(|path| (key, path));
            NodeAccess { info, user: user.clone(), password_file, tls: has_tls(url).then(|| self.tls_files()) }
        };
        let of_node = |info: ConnectionInfo| access(info, &self.user, "password_file", &self.password_file);
        let node = of_node(address.node().clone());
        node.check_files().map_err(unreadable)?;
        node.client(None).map_err(bad_address)?;
        let topology_nodes = |all: Vec<NodeAccess>| all.into_iter().map(TopologyNode::new).collect::<Vec<_>>();
        match address {
            Address::One(_) => Ok(Primary::at(node)),
            Address::Cluster { seeds } => {
                let seeds = seeds.into_iter().map(of_node).collect();
                Ok(Primary::of_slot(Arc::new(Cluster::new(topology_nodes(seeds), Arc::new(node))), 0))
            }
            Address::Sentinels { sentinels, name, .. } => {
                let (key, user) = ("sentinel_password_file", &self.sentinel_user);
                let of_sentinel = |info| access(info, user, key, &self.sentinel_password_file);
                let sentinels: Vec<NodeAccess> = sentinels.into_iter().map(of_sentinel).collect();
                for sentinel in &sentinels {
                    sentinel.check_files().map_err(unreadable)?;
                    sentinel.client(None).map_err(bad_address)?;
                }
                Ok(Primary::named_by(Sentinels::new(topology_nodes(sentinels), &name), node))
            }
        }
    }

    fn tls_files(&self) -> TlsFiles {
        TlsFiles { ca_file: self.ca_file.clone(), certificate: self.cert_file.clone().zip(self.key_file.clone()) }
    }
}

fn has_tls(url: &str) -> bool {
    url.starts_with("rediss")
}

fn unreadable(fault: FileFault) -> ConnectError {
    ConnectError::File { section: "redis", key: fault.key, why: fault.why }
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
    #[tokio::test]
    async fn s6_the_next_connection_has_what_the_files_have_then() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "first\n").unwrap();
        let access = RedisAccess { password_file: Some(file.path().to_owned()), ..RedisAccess::default() };
        let primary = access.primary("redis://h:1").unwrap();
        let password = async || {
            let client = primary.client().await.map_err(|error| error.to_string())?;
            Ok::<_, String>(client.get_connection_info().redis_settings().password().unwrap_or_default().to_owned())
        };
        assert_eq!(password().await.as_deref(), Ok("first"));
        std::fs::write(file.path(), "second\n").unwrap();
        assert_eq!(password().await.as_deref(), Ok("second"));
        std::fs::remove_file(file.path()).unwrap();
        let error = password().await.unwrap_err();
        assert!(error.contains("password_file") && !error.contains("second"), "{error}");
    }
}
