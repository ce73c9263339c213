//! The file of principals (`auth.principals_file`).

use super::book::{Book, Grant};
use super::rule::{Rule, Rules};
use super::token::TokenHash;
use serde::Deserialize;
use std::path::Path;
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Why a file of principals is not used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// It is no TOML, or has a key or a value that it may not have.
    #[error("{0}")]
    Toml(String),
    /// An entry of it has a fault.
    #[error("principal {principal:?}: {why}")]
    Principal {
        /// The name of the principal.
        principal: String,
        /// The fault.
        why: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    principal: Vec<Principal>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Principal {
    name: String,
    rights: Vec<String>,
    #[serde(default)]
    certificates: Vec<String>,
    #[serde(default)]
    tokens: Vec<TokenEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenEntry {
    id: String,
    sha256: String,
    expires_at: Option<String>,
}

impl Book {
    /// Reads a file of principals.
    pub fn read(path: &Path) -> Result<Book, FileError> {
        Book::parse(&std::fs::read_to_string(path)?)
    }

    /// Reads the text of such a file. No error shows a hash.
    pub fn parse(text: &str) -> Result<Book, FileError> {
        let file: File = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
            FileError::Toml(format!("line {line}: {}", error.message()))
        })?;
        let mut book = Book::default();
        for principal in file.principal {
            let name = principal.name.clone();
            add(&mut book, principal).map_err(|why| FileError::Principal { principal: name, why })?;
        }
        Ok(book)
    }
}

fn add(book: &mut Book, principal: Principal) -> Result<(), String> {
    let Principal { name, rights, certificates, tokens } = principal;
    if name.is_empty() || name.len() > 128 {
        return Err("the name must have 1 to 128 bytes".to_owned());
    }
    let rules: Rules = rights.iter().map(|rule| rule.parse::<Rule>()).collect::<Result<_, _>>()?;
    book.add_principal(&name, rules.clone())?;
    for certificate in certificates {
        book.add_certificate(&certificate, Grant::new(&name, rules.clone(), None))?;
    }
    for TokenEntry { id, sha256, expires_at } in tokens {
        let hash = TokenHash::parse(&sha256)
            .ok_or_else(|| format!("sha256 of token {id:?} must have 64 hexadecimal digits"))?;
        let expires_at = expires_at.map(|text| time(&id, &text)).transpose()?;
        book.add_token(&id, hash, Grant::new(&name, rules.clone(), expires_at))?;
    }
    Ok(())
}

fn time(id: &str, text: &str) -> Result<SystemTime, String> {
    let parsed = OffsetDateTime::parse(text, &Rfc3339);
    parsed
        .map(SystemTime::from)
        .map_err(|_| format!("expires_at of token {id:?} is {text:?}; must be a time such as 2027-01-31T00:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Right;

    const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn error(text: &str) -> String {
        Book::parse(text).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn s3_a_file_of_principals_is_read() {
        let book = Book::parse(&format!(
            "[[principal]]\nname = 'a'\nrights = ['read:*']\n\
             [[principal.tokens]]\nid = 't1'\nsha256 = '{HASH}'\nexpires_at = '2027-01-31T00:00:00Z'\n\
             [[principal.tokens]]\nid = 't2'\nsha256 = '{HASH}'\n\
             [[principal]]\nname = 'b'\nrights = []\ncertificates = ['CN=b', 'spiffe://b']"
        ));
        let book = book.unwrap();
        assert_eq!(book.summary("a").map(|summary| (summary.tokens, summary.certificates)), Some((2, 0)));
        assert_eq!(book.summary("b").map(|summary| (summary.tokens, summary.certificates)), Some((0, 2)));
        assert!(book.summary("a").unwrap().rules.on(Right::Read, "q").is_granted());
        assert!(Book::parse("").unwrap().summary("a").is_none());
    }

    #[test]
    fn s3_each_fault_of_a_file_is_named() {
        let principal = |rest: &str| format!("[[principal]]\nname = 'a'\nrights = ['read:*']\n{rest}");
        let token = |id: &str, hash: &str, rest: &str| {
            principal(&format!("[[principal.tokens]]\nid = '{id}'\nsha256 = '{hash}'\n{rest}"))
        };
        for (text, words) in [
            ("[[principal]]\nname = 'a'".to_owned(), "rights"),
            (principal("color = 1"), "line 4: unknown field `color`"),
            ("[[principal]]\nname = ''\nrights = []".to_owned(), "the name must have"),
            ("[[principal]]\nname = 'a'\nrights = ['fly:*']".to_owned(), "\"fly\" is no right"),
            (token("t", "12", ""), "64 hexadecimal digits"),
            (token("t", HASH, "expires_at = 'soon'"), "\"soon\"; must be a time"),
            (token("", HASH, ""), "id"),
            (format!("{}{}", token("t", HASH, ""), "[[principal.tokens]]\nid='t'\nsha256='x'"), "64 hex"),
            (token("t", HASH, &format!("[[principal.tokens]]\nid='t'\nsha256='{HASH}'")), "token \"t\" is there twice"),
            (principal("certificates = ['x', 'x']"), "certificate \"x\" is there twice"),
            (principal("[[principal]]\nname = 'a'\nrights = []"), "there twice"),
        ] {
            let error = error(&text);
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains(HASH), "{error}");
        }
    }
}
