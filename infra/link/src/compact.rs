//! `[compact]`: the Redis with the counter sets that rollups publish to.

use crate::access::RedisAccess;
use crate::address::Address;
use crate::{ConnectError, Primary, RedisConfig};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use tallystone_model::ConfigError;

/// `[compact]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompactConfig {
    /// As `redis.url`; `None`: the Redis of the counters, with the user and the files of `[redis]`.
    pub url: Option<String>,
    /// The ACL user; `None`: that of the address, or the default user.
    pub user: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The ACL user of the Sentinels; `None`: the default user.
    pub sentinel_user: Option<String>,
    /// The file with the password of the Sentinels.
    pub sentinel_password_file: Option<PathBuf>,
    /// The CAs of a `rediss://` address, PEM; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show to Redis, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
}

const SECTION: &str = "compact";

impl CompactConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Some(url) = &self.url else {
            return match *self == CompactConfig::default() {
                true => Ok(()),
                false => Err(ConfigError::new("compact.url", "is not set, but other keys of [compact] are; set both")),
            };
        };
        if let Err(why) = Address::parse(url) {
            // The value is not quoted: a password may be anywhere in what is not an address.
            return Err(ConfigError::new("compact.url", format!("{why}; must be like redis://127.0.0.1:6379")));
        }
        self.access().check(SECTION, url)
    }

    /// The address: its own, or that of the counters. It may have a password.
    pub fn url<'a>(&'a self, counters: &'a RedisConfig) -> &'a str {
        self.url.as_deref().unwrap_or(&counters.url)
    }

    /// Where it is; on a Redis Cluster the primary of slot 0. `counters`: the Redis that it is if no other one is configured.
    ///
    /// # Errors
    /// [`ConnectError::Address`], or [`ConnectError::File`] if a file cannot be used.
    pub fn primary(&self, counters: &RedisConfig) -> Result<Primary, ConnectError> {
        match &self.url {
            Some(url) => self.access().primary_of(SECTION, url),
            None => counters.access().first_primary(&counters.url),
        }
    }

    fn access(&self) -> RedisAccess {
        let CompactConfig { user, password_file, sentinel_user, sentinel_password_file, .. } = self.clone();
        let CompactConfig { ca_file, cert_file, key_file, .. } = self.clone();
        RedisAccess { user, password_file, sentinel_user, sentinel_password_file, ca_file, cert_file, key_file }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w6_keys_that_do_not_fit_are_named() {
        let bad = |config: CompactConfig| config.check().err().map(|error| error.field);
        let (url, file) = (Some("redis://h:1".to_owned()), Some(PathBuf::from("f")));
        assert_eq!(bad(CompactConfig::default()), None);
        let with_password = CompactConfig { password_file: file.clone(), ..CompactConfig::default() };
        assert_eq!(bad(with_password.clone()).as_deref(), Some("compact.url"));
        assert_eq!(bad(CompactConfig { url: url.clone(), ..with_password }), None);
        let ca = CompactConfig { url, ca_file: file, ..CompactConfig::default() };
        let error = ca.check().unwrap_err();
        assert_eq!(error.field, "compact.ca_file");
        assert!(error.why.contains("compact.url does not begin with rediss"), "{}", error.why);
        let no_address = CompactConfig { url: Some("http://h:pass".to_owned()), ..CompactConfig::default() };
        let error = no_address.check().unwrap_err();
        assert!(error.field == "compact.url" && !error.why.contains("pass"), "{error:?}");
        let missing = CompactConfig {
            url: Some("redis://h:1".to_owned()),
            password_file: Some("/no/such/file".into()),
            ..CompactConfig::default()
        };
        let error = missing.primary(&RedisConfig::default()).err().expect("no file").to_string();
        assert!(error.starts_with("compact.password_file: /no/such/file"), "{error}");
    }
}
