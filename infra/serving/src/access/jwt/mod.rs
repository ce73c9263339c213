//! Callers with JSON Web Tokens (RFC 7519), which an identity provider signs (S3).
//!
//! What lives here: the section of the configuration; `keys`, the provider's public keys (RFC 7517), from a file or an
//! address; `verifier`, what a token grants. What may not: how a token reaches this server (`identities`).

mod config;
mod keys;
mod source;
#[cfg(test)]
mod testing;
mod verifier;

pub use config::JwtConfig;
pub(super) use verifier::JwtVerifier;
