//! All principals at one time, found by their credentials.

use super::rule::Rules;
use super::token::{TokenHash, id_of};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;
use tokio_util::sync::CancellationToken;

/// The principals of a file.
#[derive(Debug, Default)]
pub struct Book {
    principals: HashMap<String, PrincipalSummary>,
    tokens: HashMap<String, (TokenHash, Arc<Grant>)>,
    certificates: HashMap<String, Arc<Grant>>,
}

/// What a file says about a principal.
#[derive(Clone, Debug, Default)]
pub struct PrincipalSummary {
    /// Its rules.
    pub rules: Rules,
    /// The number of its tokens.
    pub tokens: usize,
    /// The number of its certificates.
    pub certificates: usize,
}

/// What a credential grants.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) principal: String,
    /// Of a token of a provider, whose principals are others than those of the file.
    pub(super) issuer: Option<Arc<str>>,
    pub(super) rules: Rules,
    pub(super) expires_at: Option<SystemTime>,
    /// Cancelled once the file has another grant for the credential, or none.
    pub(super) withdrawn: CancellationToken,
}

impl Grant {
    pub(super) fn new(principal: &str, rules: Rules, expires_at: Option<SystemTime>) -> Arc<Grant> {
        let (principal, withdrawn) = (principal.to_owned(), CancellationToken::new());
        Arc::new(Grant { principal, issuer: None, rules, expires_at, withdrawn })
    }

    fn is_same(&self, other: &Grant) -> bool {
        self.principal == other.principal && self.rules == other.rules && self.expires_at == other.expires_at
    }
}

/// A caller that is known.
#[derive(Debug)]
pub(super) struct Identified {
    pub(super) grant: Arc<Grant>,
    /// When its token or its certificate expires; `None`: never.
    pub(super) expires_at: Option<SystemTime>,
}

/// Why a credential grants nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The call has none.
    Missing,
    /// No principal has it.
    Bad,
    /// It was valid until some time ago.
    Expired,
    /// The key of the token is unknown, and the server fetches the keys of the provider.
    KeyPending,
}

impl Book {
    /// What the file says about a principal.
    pub fn summary(&self, principal: &str) -> Option<&PrincipalSummary> {
        self.principals.get(principal)
    }

    /// The names of all principals.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.principals.keys().map(String::as_str)
    }

    pub(super) fn add_principal(&mut self, name: &str, rules: Rules) -> Result<(), String> {
        let summary = PrincipalSummary { rules, ..PrincipalSummary::default() };
        unique(self.principals.insert(name.to_owned(), summary), || "is there twice".to_owned())
    }

    pub(super) fn add_token(&mut self, id: &str, hash: TokenHash, grant: Arc<Grant>) -> Result<(), String> {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(format!("the id of token {id:?} must have letters and digits only"));
        }
        self.summary_of(&grant).tokens += 1;
        unique(self.tokens.insert(id.to_owned(), (hash, grant)), || format!("token {id:?} is there twice"))
    }

    pub(super) fn add_certificate(&mut self, name: &str, grant: Arc<Grant>) -> Result<(), String> {
        self.summary_of(&grant).certificates += 1;
        unique(self.certificates.insert(name.to_owned(), grant), || format!("certificate {name:?} is there twice"))
    }

    fn summary_of(&mut self, grant: &Grant) -> &mut PrincipalSummary {
        self.principals.entry(grant.principal.clone()).or_default()
    }

    /// What a token grants at a time.
    pub(super) fn by_token(&self, token: &str, now: SystemTime) -> Result<Arc<Grant>, Unknown> {
        let (hash, grant) = id_of(token).and_then(|id| self.tokens.get(id)).ok_or(Unknown::Bad)?;
        match grant.expires_at {
            _ if !hash.is_of(token) => Err(Unknown::Bad),
            Some(expires_at) if expires_at <= now => Err(Unknown::Expired),
            _ => Ok(grant.clone()),
        }
    }

    /// What a certificate with these names grants.
    pub(super) fn by_certificate(&self, names: &[String]) -> Result<Arc<Grant>, Unknown> {
        names.iter().find_map(|name| self.certificates.get(name)).cloned().ok_or(match names.is_empty() {
            true => Unknown::Missing,
            false => Unknown::Bad,
        })
    }

    /// Keeps the grants of `before` that are the same here, and withdraws the others.
    pub(super) fn replace(&mut self, before: &Book) {
        for (id, (hash, old)) in &before.tokens {
            match self.tokens.get_mut(id) {
                Some((new_hash, new)) if new_hash == hash && new.is_same(old) => *new = old.clone(),
                _ => old.withdrawn.cancel(),
            }
        }
        for (name, old) in &before.certificates {
            match self.certificates.get_mut(name) {
                Some(new) if new.is_same(old) => *new = old.clone(),
                _ => old.withdrawn.cancel(),
            }
        }
    }
}

fn unique<T>(replaced: Option<T>, twice: impl FnOnce() -> String) -> Result<(), String> {
    if replaced.is_some() { Err(twice()) } else { Ok(()) }
}
