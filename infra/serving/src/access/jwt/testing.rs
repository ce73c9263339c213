//! A provider for tests: its keys, and tokens that it signs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

/// A key of the provider.
pub(super) struct SignedBy {
    pub(super) id: String,
    pkcs8: Vec<u8>,
    pub(super) public: Vec<u8>,
}

impl SignedBy {
    pub(super) fn new(id: &str) -> SignedBy {
        let (kind, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap().as_ref().to_vec();
        let public = EcdsaKeyPair::from_pkcs8(kind, &pkcs8, &random).unwrap().public_key().as_ref().to_vec();
        SignedBy { id: id.to_owned(), pkcs8, public }
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        self.signed(Some(self.id.clone()), claims)
    }

    pub(super) fn token_without_id(&self, claims: &Value) -> String {
        self.signed(None, claims)
    }

    fn signed(&self, kid: Option<String>, claims: &Value) -> String {
        let header = Header { kid, ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &EncodingKey::from_ec_der(&self.pkcs8)).unwrap()
    }
}

pub(super) struct Provider;

impl Provider {
    /// The set of these keys, with one of another use and one of an unknown kind.
    pub(super) fn keys(keys: &[&SignedBy]) -> String {
        let of = |key: &&SignedBy| {
            let [x, y] = [&key.public[1..33], &key.public[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
            json!({"kty": "EC", "crv": "P-256", "kid": key.id, "use": "sig", "alg": "ES256", "x": x, "y": y})
        };
        let mut all: Vec<Value> = keys.iter().map(of).collect();
        all.push(json!({"kty": "oct", "kid": "shared", "k": "c2VjcmV0"}));
        all.push(json!({"kty": "future", "kid": "z"}));
        json!({ "keys": all }).to_string()
    }
}
