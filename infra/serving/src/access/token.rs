//! Tokens: `ts_ID_SECRET`. A secret has 256 random bits, so a plain SHA-256 of the token protects it as well as a slow
//! hash would.

use rand::distr::Alphanumeric;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq as _;

const PREFIX: &str = "ts_";
const ID_CHARS: usize = 10;
/// 43 characters of 62 have 256 bits.
const SECRET_CHARS: usize = 43;

/// A new token.
pub struct Token {
    /// What the caller sends. It is shown once.
    pub text: String,
    /// Its name in the file of principals; it is not secret.
    pub id: String,
    /// The SHA-256 of the text, in hexadecimal digits.
    pub sha256: String,
}

impl Token {
    /// A random token.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> std::io::Result<Token> {
        let mut random = StdRng::try_from_os_rng().map_err(std::io::Error::other)?;
        let mut text = |chars| (&mut random).sample_iter(Alphanumeric).take(chars).map(char::from).collect::<String>();
        let (id, secret) = (text(ID_CHARS), text(SECRET_CHARS));
        let text = format!("{PREFIX}{id}_{secret}");
        let sha256 = hex::encode(TokenHash::of(&text).0);
        Ok(Token { text, id, sha256 })
    }
}

/// Whether this has the form of a principal's token. A token of an identity provider has not.
pub(super) fn is_of_principal(token: &str) -> bool {
    token.starts_with(PREFIX)
}

/// The id of a token; `None`: it is no token.
pub(super) fn id_of(token: &str) -> Option<&str> {
    let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
    (!id.is_empty() && !secret.is_empty()).then_some(id)
}

/// The SHA-256 of a token.
#[derive(Clone, Debug)]
pub(super) struct TokenHash([u8; 32]);

impl TokenHash {
    fn of(token: &str) -> TokenHash {
        TokenHash(digest(&SHA256, token.as_bytes()).as_ref().try_into().expect("a SHA-256 has 32 bytes"))
    }

    /// Reads 64 hexadecimal digits.
    pub(super) fn parse(text: &str) -> Option<TokenHash> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(TokenHash(bytes))
    }

    /// Whether this is the hash of a token. How long it takes says nothing about the hash.
    pub(super) fn is_of(&self, token: &str) -> bool {
        *self == TokenHash::of(token)
    }
}

impl PartialEq for TokenHash {
    fn eq(&self, other: &TokenHash) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for TokenHash {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s3_a_new_token_has_its_id_and_its_hash() {
        let (token, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert_eq!(id_of(&token.text), Some(token.id.as_str()));
        assert_eq!(token.text.len(), PREFIX.len() + ID_CHARS + 1 + SECRET_CHARS);
        let hash = TokenHash::parse(&token.sha256).unwrap();
        assert!(hash.is_of(&token.text) && !hash.is_of(&other.text));
        assert_ne!((token.id, token.sha256), (other.id, other.sha256));
    }

    #[test]
    fn s3_only_tokens_have_ids_and_only_64_digits_are_hashes() {
        for no_token in ["", "ts_", "ts__x", "ts_x_", "ts_x", "tt_a_b", "Bearer ts_a_b"] {
            assert_eq!(id_of(no_token), None, "{no_token}");
        }
        let sha256_of_abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert!(TokenHash::parse(sha256_of_abc).unwrap().is_of("abc"));
        for bad in ["", "ba78", &sha256_of_abc[1..], &format!("{sha256_of_abc}0"), &sha256_of_abc.replace('b', "g")] {
            assert!(TokenHash::parse(bad).is_none(), "{bad}");
        }
    }
}
