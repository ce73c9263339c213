//! The section `[jwt]` of the configuration.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::path::PathBuf;
use tallystone_model::ConfigError;

/// `[jwt]`: the tokens of an identity provider (S3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JwtConfig {
    /// The provider: tokens must have it as `iss`. `None`: no tokens of a provider are accepted.
    pub issuer: Option<String>,
    /// This installation: tokens must have it in `aud`.
    pub audience: String,
    /// Where the provider's public keys are (JWKS), `https://` or `http://`.
    pub keys_url: Option<String>,
    /// The CAs of an `https://` address, PEM; `None`: those that the system trusts.
    pub keys_ca_file: Option<PathBuf>,
    /// The keys in a file, instead of an address. It is read again when it changes.
    pub keys_file: Option<PathBuf>,
    /// The claim that lists the rules of the caller, such as `["consume:orders/*"]`.
    pub rights_claim: String,
    /// By how much the clocks of the provider and of this server may differ, in ms.
    pub leeway_ms: u64,
}

impl Default for JwtConfig {
    fn default() -> Self {
        JwtConfig {
            issuer: None,
            audience: "tallystone".to_owned(),
            keys_url: None,
            keys_ca_file: None,
            keys_file: None,
            rights_claim: "tallystone".to_owned(),
            leeway_ms: 30_000,
        }
    }
}

impl JwtConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        let error = |key: &str, why: &str| Err(ConfigError::new(format!("jwt.{key}"), why));
        if self.issuer.is_none() {
            return match self.keys_url.is_some() || self.keys_file.is_some() {
                true => error("issuer", "is not set, but the keys of one are"),
                false => Ok(()),
            };
        }
        match (&self.keys_url, &self.keys_file) {
            (None, None) => return error("keys_url", "is not set, nor is jwt.keys_file; set one of them"),
            (Some(_), Some(_)) => return error("keys_file", "is set together with jwt.keys_url; set one of them"),
            (Some(url), None) => check_url(url)?,
            (None, Some(_)) => {}
        }
        if self.keys_ca_file.is_some() && !self.keys_url.as_ref().is_some_and(|url| url.starts_with("https://")) {
            return error("keys_ca_file", "is set, but jwt.keys_url is no https:// address");
        }
        for (key, value) in [("audience", &self.audience), ("rights_claim", &self.rights_claim)] {
            if value.is_empty() {
                return error(key, "is empty");
            }
        }
        ConfigError::unless_within("jwt.leeway_ms", self.leeway_ms, 0..=300_000)
    }
}

/// A host on the way that replaces the keys can grant every right. An address may have a password: the error does not show it.
fn check_url(url: &str) -> Result<(), ConfigError> {
    let error = |why: &str| Err(ConfigError::new("jwt.keys_url", why));
    match reqwest::Url::parse(url) {
        Ok(url) if url.scheme() == "https" && url.has_host() => Ok(()),
        Ok(url) if url.scheme() == "http" && is_loopback(&url) => Ok(()),
        Ok(url) if url.scheme() == "http" => error("must be an https:// address, except for this machine"),
        _ => error("is no https:// address"),
    }
}

fn is_loopback(url: &reqwest::Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_each_bad_field_is_named() {
        let good = JwtConfig {
            issuer: Some("https://idp".to_owned()),
            keys_url: Some("https://idp/keys".to_owned()),
            ..JwtConfig::default()
        };
        assert_eq!((JwtConfig::default().check(), good.check()), (Ok(()), Ok(())));
        for (field, config) in [
            ("jwt.issuer", JwtConfig { issuer: None, ..good.clone() }),
            ("jwt.keys_url", JwtConfig { keys_url: None, ..good.clone() }),
            ("jwt.keys_url", JwtConfig { keys_url: Some("idp/keys".to_owned()), ..good.clone() }),
            ("jwt.keys_url", JwtConfig { keys_url: Some("http://idp/keys".to_owned()), ..good.clone() }),
            ("jwt.keys_ca_file", {
                let keys_url = Some("http://[::1]/keys".to_owned());
                JwtConfig { keys_url, keys_ca_file: Some("ca.pem".into()), ..good.clone() }
            }),
            ("jwt.keys_file", JwtConfig { keys_file: Some("keys.json".into()), ..good.clone() }),
            ("jwt.audience", JwtConfig { audience: String::new(), ..good.clone() }),
            ("jwt.rights_claim", JwtConfig { rights_claim: String::new(), ..good.clone() }),
            ("jwt.leeway_ms", JwtConfig { leeway_ms: 300_001, ..good.clone() }),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }
}
