//! What a JSON Web Token grants.

use super::super::book::{Grant, Unknown};
use super::super::rule::{Rule, Rules};
use super::config::JwtConfig;
use super::keys::Key;
use super::source::KeySource;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tallystone_model::ConfigError;

/// A longer token is not read.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Tokens whose signatures need not be verified again.
const VERIFIED_MAX: usize = 10_000;
/// A token that does not name its key is refused if more keys may have signed it.
const WITHOUT_ID_MAX: usize = 4;
const PRINCIPAL_BYTES_MAX: usize = 128;

/// Verifies tokens.
pub(in crate::access) struct JwtVerifier {
    keys: KeySource,
    issuer: Arc<str>,
    audience: String,
    rights_claim: String,
    leeway: Duration,
    verified: Mutex<HashMap<[u8; 32], Arc<Grant>>>,
}

impl JwtVerifier {
    /// A verifier, if the configuration has an issuer.
    pub(in crate::access) fn open(config: &JwtConfig) -> Result<Option<JwtVerifier>, ConfigError> {
        config.check()?;
        let Some(issuer) = config.issuer.clone() else { return Ok(None) };
        Ok(Some(JwtVerifier {
            keys: KeySource::open(config)?,
            issuer: issuer.into(),
            audience: config.audience.clone(),
            rights_claim: config.rights_claim.clone(),
            leeway: Duration::from_millis(config.leeway_ms),
            verified: Mutex::default(),
        }))
    }

    /// Begins its metrics at 0.
    pub(in crate::access) fn begin_metrics(&self) {
        self.keys.begin_metrics();
    }

    /// Reads the keys again if their file has changed.
    pub(in crate::access) fn refresh(&self) {
        self.keys.refresh();
    }

    /// What a token grants at a time. A token that was verified before costs one hash.
    pub(in crate::access) fn verify(&self, token: &str, now: SystemTime) -> Result<Arc<Grant>, Unknown> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(Unknown::Bad);
        }
        let hash = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
        let hash: [u8; 32] = hash.as_ref().try_into().map_err(|_| Unknown::Bad)?;
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        let grant = match verified.get(&hash) {
            Some(grant) if !grant.withdrawn.is_cancelled() => grant.clone(),
            _ => {
                drop(verified);
                let grant = self.read(token)?;
                verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
                if verified.len() >= VERIFIED_MAX {
                    verified.retain(|_, grant| {
                        grant.expires_at.is_some_and(|at| at > now) && !grant.withdrawn.is_cancelled()
                    });
                }
                if verified.len() >= VERIFIED_MAX {
                    verified.clear();
                }
                verified.insert(hash, grant.clone());
                grant
            }
        };
        match grant.expires_at {
            Some(at) if at <= now => Err(Unknown::Expired),
            _ => Ok(grant),
        }
    }

    fn read(&self, token: &str) -> Result<Arc<Grant>, Unknown> {
        let header = decode_header(token).map_err(|_| Unknown::Bad)?;
        let keys = self.keys.get();
        let mut found = keys.find(header.kid.as_deref()).peekable();
        if found.peek().is_none() {
            return Err(if self.keys.note_unknown() { Unknown::KeyPending } else { Unknown::Bad });
        }
        let candidates: Vec<_> = found.filter(|key| key.algorithms.contains(&header.alg)).collect();
        // Each costs a verification, also for a token without a valid signature.
        if header.kid.is_none() && candidates.len() > WITHOUT_ID_MAX {
            return Err(Unknown::Bad);
        }
        let mut read = Err(Unknown::Bad);
        for key in candidates {
            read = self.claims(token, key).map(|claims| (key, claims));
            if !matches!(read, Err(Unknown::Bad)) {
                break;
            }
        }
        let (key, claims) = read?;
        let expires_at = claims.get("exp").and_then(Value::as_f64).ok_or(Unknown::Bad)?;
        let expires_at = Duration::try_from_secs_f64(expires_at).map_err(|_| Unknown::Bad)?;
        let expires_at = SystemTime::UNIX_EPOCH.checked_add(expires_at).and_then(|at| at.checked_add(self.leeway));
        let expires_at = Some(expires_at.ok_or(Unknown::Bad)?);
        if claims.get("nbf").is_some_and(|nbf| !nbf.is_number()) {
            return Err(Unknown::Bad);
        }
        let principal = claims.get("sub").and_then(Value::as_str).unwrap_or_default();
        if principal.is_empty() || principal.len() > PRINCIPAL_BYTES_MAX {
            return Err(Unknown::Bad);
        }
        let rules = self.rules(&claims).map_err(|why| {
            tracing::warn!(principal, why, "a JSON Web Token of the provider has faulty rights");
            Unknown::Bad
        })?;
        let withdrawn = key.withdrawn.child_token();
        Ok(Arc::new(Grant {
            principal: principal.to_owned(),
            issuer: Some(self.issuer.clone()),
            rules,
            expires_at,
            withdrawn,
        }))
    }

    fn claims(&self, token: &str, key: &Key) -> Result<Map<String, Value>, Unknown> {
        let mut validation = Validation::default();
        validation.algorithms.clone_from(&key.algorithms);
        // In whole seconds, upward; `verify` compares the end of the token exactly.
        validation.leeway = self.leeway.as_millis().div_ceil(1_000) as u64;
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        let decoded = decode::<Map<String, Value>>(token, &key.decoding, &validation);
        decoded.map(|decoded| decoded.claims).map_err(|error| match error.kind() {
            ErrorKind::ExpiredSignature => Unknown::Expired,
            _ => Unknown::Bad,
        })
    }

    fn rules(&self, claims: &Map<String, Value>) -> Result<Rules, String> {
        let claim = claims.get(&self.rights_claim).ok_or_else(|| format!("no claim {:?}", self.rights_claim))?;
        let rules = claim.as_array().ok_or_else(|| format!("claim {:?} is no list", self.rights_claim))?;
        let rule = |rule: &Value| rule.as_str().ok_or("a rule is no text".to_owned()).and_then(str::parse::<Rule>);
        rules.iter().map(rule).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Provider, SignedBy};
    use super::*;
    use crate::access::Right;
    use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
    use serde_json::json;

    fn seconds(from_now: i64) -> i64 {
        time::OffsetDateTime::now_utc().unix_timestamp() + from_now
    }

    fn claims() -> Value {
        json!({
            "iss": "https://idp", "aud": ["other", "tallystone"], "sub": "job-1", "exp": seconds(3_600),
            "tallystone": ["read:orders/*", "deny:read:orders/secret"],
        })
    }

    fn with(key: &str, value: Value) -> Value {
        let mut claims = claims();
        match value {
            Value::Null => drop(claims.as_object_mut().unwrap().remove(key)),
            value => claims[key] = value,
        }
        claims
    }

    fn verifier(file: &std::path::Path) -> JwtVerifier {
        let issuer = Some("https://idp".to_owned());
        let config = JwtConfig { issuer, keys_file: Some(file.to_owned()), leeway_ms: 5_000, ..JwtConfig::default() };
        JwtVerifier::open(&config).unwrap().unwrap()
    }

    #[test]
    fn s3_a_token_of_the_provider_grants_its_rules_and_no_other_token_does() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [key, foreign] = [SignedBy::new("a"), SignedBy::new("a")];
        std::fs::write(file.path(), Provider::keys(&[&key])).unwrap();
        let verifier = verifier(file.path());
        let by = |token: &str| verifier.verify(token, SystemTime::now());
        let token = key.token(&claims());
        let grant = by(&token).unwrap();
        assert_eq!(grant.principal, "job-1");
        assert!(grant.rules.on(Right::Read, "orders/eu").is_granted());
        assert!(!grant.rules.on(Right::Read, "orders/secret").is_granted());
        assert!(Arc::ptr_eq(&grant, &by(&token).unwrap()), "it is verified once");
        let later = SystemTime::now() + Duration::from_secs(3_700);
        assert!(matches!(verifier.verify(&token, later), Err(Unknown::Expired)));
        assert!(matches!(by(&key.token(&with("exp", json!(seconds(-60))))), Err(Unknown::Expired)));
        assert!(by(&key.token(&with("exp", json!(seconds(-2))))).is_ok(), "within the leeway");
        for (claim, value) in [
            ("iss", json!("https://other")),
            ("iss", Value::Null),
            ("aud", json!("other")),
            ("aud", Value::Null),
            ("exp", Value::Null),
            ("exp", json!("soon")),
            ("sub", Value::Null),
            ("sub", json!("")),
            ("nbf", json!(seconds(60))),
            ("nbf", json!(seconds(60).to_string())),
            ("exp", json!(u64::MAX)),
            ("tallystone", Value::Null),
            ("tallystone", json!("read:*")),
            ("tallystone", json!(["fly:*"])),
        ] {
            let refused = by(&key.token(&with(claim, value.clone())));
            assert!(matches!(refused, Err(Unknown::Bad)), "{claim} {value}");
        }
        // Another key under the same id, the public key as a shared secret, a shared secret of the set, no signature.
        let shared = |id: &str, secret: &[u8]| {
            let header = Header { kid: Some(id.to_owned()), ..Header::new(Algorithm::HS256) };
            encode(&header, &claims(), &EncodingKey::from_secret(secret)).unwrap()
        };
        let unsigned = format!("{}.{}.", "eyJhbGciOiJub25lIiwia2lkIjoiYSJ9", token.split('.').nth(1).unwrap());
        let long = key.token(&with("more", json!("x".repeat(TOKEN_BYTES_MAX))));
        let cut = &token[..token.len() - 2];
        for forged in [
            &foreign.token(&claims()),
            &shared("a", &key.public),
            &shared("shared", b"secret"),
            &unsigned,
            cut,
            &long,
            "",
            "a.b.c",
        ] {
            assert!(matches!(by(forged), Err(Unknown::Bad)), "{forged}");
        }
    }

    #[test]
    fn s3_a_token_without_a_key_id_is_tried_with_few_keys() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let keys: Vec<SignedBy> = (0..=WITHOUT_ID_MAX).map(|number| SignedBy::new(&number.to_string())).collect();
        let of_file = |count: usize| {
            let keys: Vec<&SignedBy> = keys[..count].iter().collect();
            std::fs::write(file.path(), Provider::keys(&keys)).unwrap();
            verifier(file.path())
        };
        let (few, many) = (of_file(WITHOUT_ID_MAX), of_file(WITHOUT_ID_MAX + 1));
        let without = keys[0].token_without_id(&claims());
        assert!(few.verify(&without, SystemTime::now()).is_ok());
        assert!(matches!(many.verify(&without, SystemTime::now()), Err(Unknown::Bad)));
        assert!(many.verify(&keys[0].token(&claims()), SystemTime::now()).is_ok(), "its id says which key");
    }

    #[test]
    fn s3_a_key_that_the_provider_withdraws_ends_its_tokens() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let [stays, goes] = ["a", "b"].map(SignedBy::new);
        std::fs::write(file.path(), Provider::keys(&[&stays, &goes])).unwrap();
        let verifier = verifier(file.path());
        let tokens = [&stays, &goes].map(|key| key.token(&claims()));
        let [stayed, gone] = tokens.each_ref().map(|token| verifier.verify(token, SystemTime::now()).unwrap());
        std::fs::write(file.path(), "{}").unwrap();
        verifier.refresh();
        assert!(!gone.withdrawn.is_cancelled(), "a faulty file changes nothing");
        std::fs::write(file.path(), Provider::keys(&[&stays])).unwrap();
        verifier.refresh();
        assert!(gone.withdrawn.is_cancelled() && !stayed.withdrawn.is_cancelled());
        let [stays, goes] = tokens.each_ref().map(|token| verifier.verify(token, SystemTime::now()).is_ok());
        assert!(stays && !goes);
    }
}
