//! The public keys of a provider (JWKS, RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// With more keys, a set is faulty.
const KEYS_MAX: usize = 100;

/// The keys of one moment.
#[derive(Default)]
pub(super) struct KeySet {
    keys: Vec<Arc<Key>>,
}

/// One key.
pub(super) struct Key {
    jwk: Jwk,
    pub(super) decoding: DecodingKey,
    /// What it may sign with. Never a shared secret: a server that verifies could sign.
    pub(super) algorithms: Vec<Algorithm>,
    /// Cancelled once the provider has withdrawn the key.
    pub(super) withdrawn: CancellationToken,
}

impl KeySet {
    /// Reads a set. Keys for other uses than signatures, and of unknown kinds, are left out.
    pub(super) fn parse(text: &str) -> Result<KeySet, String> {
        let set: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let keys = set.get("keys").and_then(serde_json::Value::as_array).ok_or("it has no list \"keys\"")?;
        if keys.len() > KEYS_MAX {
            return Err(format!("it has {} keys, more than {KEYS_MAX}", keys.len()));
        }
        // A provider may have keys of kinds that are not known here.
        let known = keys.iter().filter_map(|key| serde_json::from_value(key.clone()).ok()).collect();
        let JwkSet { keys } = JwkSet { keys: known };
        let mut known = Vec::new();
        for jwk in keys {
            if jwk.common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature) {
                continue;
            }
            let (algorithms, decoding) = (algorithms(&jwk), DecodingKey::from_jwk(&jwk));
            if let (false, Ok(decoding)) = (algorithms.is_empty(), decoding) {
                let withdrawn = CancellationToken::new();
                known.push(Arc::new(Key { jwk, decoding, algorithms, withdrawn }));
            }
        }
        match known.is_empty() {
            true => Err("it has no key that verifies signatures".to_owned()),
            false => Ok(KeySet { keys: known }),
        }
    }

    /// The keys that may have signed a token: those of its id, or all. Several keys may have the same id, or none.
    pub(super) fn find(&self, id: Option<&str>) -> impl Iterator<Item = &Arc<Key>> {
        self.keys.iter().filter(move |key| id.is_none() || key.jwk.common.key_id.as_deref() == id)
    }

    /// Keeps the keys of `before` that are the same here, and withdraws the others.
    pub(super) fn replace(&mut self, before: &KeySet) {
        for old in &before.keys {
            match self.keys.iter_mut().find(|new| new.is_same(old)) {
                Some(new) => *new = old.clone(),
                None => old.withdrawn.cancel(),
            }
        }
    }
}

impl Key {
    /// Its certificates may differ.
    fn is_same(&self, other: &Key) -> bool {
        let of = |key: &Key| (key.jwk.common.key_id.clone(), key.jwk.algorithm.clone());
        of(self) == of(other) && self.algorithms == other.algorithms
    }
}

fn algorithms(jwk: &Jwk) -> Vec<Algorithm> {
    use Algorithm::*;
    let of_kind = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => vec![ES256],
            EllipticCurve::P384 => vec![ES384],
            _ => Vec::new(),
        },
        AlgorithmParameters::OctetKeyPair(_) => vec![EdDSA],
        AlgorithmParameters::OctetKey(_) => Vec::new(),
    };
    match jwk.common.key_algorithm {
        Some(only) => of_kind.into_iter().filter(|algorithm| format!("{algorithm:?}") == only.to_string()).collect(),
        None => of_kind,
    }
}
