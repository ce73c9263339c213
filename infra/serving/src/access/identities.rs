//! The file of principals, read again when it changes.

use super::book::{Book, Unknown};
use super::caller_access::Access;
use super::file::FileError;
use super::refusal::unknown_caller;
use crate::stamp::Stamp;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;
use tonic::Status;

/// The principals of this moment.
pub(crate) struct Identities {
    path: PathBuf,
    current: RwLock<Current>,
}

struct Current {
    stamp: Stamp,
    book: Arc<Book>,
}

impl Identities {
    pub(crate) fn open(path: &Path) -> Result<Identities, FileError> {
        // The stamp is older than what is read: a change in between is read again.
        let stamp = Stamp::of([path]);
        let book = Arc::new(Book::read(path)?);
        Ok(Identities { path: path.to_owned(), current: RwLock::new(Current { stamp, book }) })
    }

    /// Reads the file again if it has changed. A file with a fault changes nothing.
    pub(crate) fn refresh(&self) {
        let stamp = Stamp::of([&self.path]);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).stamp == stamp {
            return;
        }
        let read = Book::read(&self.path);
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        current.stamp = stamp;
        match read {
            Ok(mut book) => {
                book.replace(&current.book);
                current.book = Arc::new(book);
                tracing::info!(file = %self.path.display(), "the principals were read again");
            }
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "the principals stay as they were: the file is faulty");
            }
        }
    }

    /// The access of a caller with these headers, whose certificate has these names.
    pub(super) fn identify(&self, headers: &HeaderMap, certificate: &[String]) -> Result<Access, Status> {
        let book = self.current.read().unwrap_or_else(PoisonError::into_inner).book.clone();
        let mut credentials = headers.get_all(AUTHORIZATION).into_iter();
        let grant = match (credentials.next(), credentials.next()) {
            (None, _) => book.by_certificate(certificate),
            (Some(value), None) => match value.to_str().ok().and_then(bearer) {
                Some(token) => book.by_token(token, SystemTime::now()),
                None => Err(Unknown::Bad),
            },
            (Some(_), Some(_)) => Err(Unknown::Bad),
        };
        grant.map(Access::granted).map_err(unknown_caller)
    }
}

/// The token of `Bearer TOKEN`; the scheme's case does not matter.
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Right, Token};
    use std::time::Duration;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn principal(token: &Token, rest: &str) -> String {
        let Token { id, sha256, .. } = token;
        format!(
            "[[principal]]\nname = 'a'\nrights = ['read:*']\ncertificates = ['CN=a']\n\
             [[principal.tokens]]\nid = '{id}'\nsha256 = '{sha256}'\n{rest}"
        )
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (AUTHORIZATION, value.parse().unwrap())).collect()
    }

    fn reason(identified: Result<Access, Status>) -> String {
        use tonic_types::StatusExt as _;
        let refused = identified.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unauthenticated);
        refused.get_details_error_info().unwrap().reason
    }

    #[test]
    fn s3_a_caller_is_identified_by_its_token_or_its_certificate() {
        let [token, expired] = [Token::new().unwrap(), Token::new().unwrap()];
        let more = format!(
            "[[principal.tokens]]\nid = '{}'\nsha256 = '{}'\nexpires_at = '2020-01-01T00:00:00Z'",
            expired.id, expired.sha256
        );
        let file = file(&principal(&token, &more));
        let identities = Identities::open(file.path()).unwrap();
        let by = |values: &[&str]| identities.identify(&headers(values), &[]);
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let access = by(&[&format!("{scheme} {}", token.text)]).unwrap();
            assert!(access.allows(Right::Read, "q") && !access.allows(Right::Produce, "q"));
        }
        let good = format!("Bearer {}", token.text);
        assert_eq!(reason(by(&[])), "NO_CREDENTIAL");
        assert_eq!(reason(by(&[&format!("Bearer {}", expired.text)])), "EXPIRED");
        let forged = format!("Bearer {}x", &token.text[..token.text.len() - 1]);
        let of_other = format!("Bearer ts_{}_{}", token.id, expired.text.rsplit_once('_').unwrap().1);
        for bad in ["", "Bearer", "Bearer ts_a_b", &token.text, &forged, &of_other, "Basic YTpi"] {
            assert_eq!(reason(by(&[bad])), "BAD_CREDENTIAL", "{bad}");
        }
        assert_eq!(reason(by(&[&good, &good])), "BAD_CREDENTIAL");
        let named = |name: &str| identities.identify(&HeaderMap::new(), &[name.to_owned()]);
        assert!(named("CN=a").is_ok());
        assert_eq!(reason(named("CN=b")), "BAD_CREDENTIAL");
        // A token that is given counts, whatever the certificate says.
        assert_eq!(reason(identities.identify(&headers(&["Bearer x"]), &["CN=a".to_owned()])), "BAD_CREDENTIAL");
    }

    #[tokio::test]
    async fn s3_a_changed_file_withdraws_only_what_it_changes() {
        let [stays, goes] = [Token::new().unwrap(), Token::new().unwrap()];
        let more = format!("[[principal.tokens]]\nid = '{}'\nsha256 = '{}'", goes.id, goes.sha256);
        let file = file(&principal(&stays, &more));
        let identities = Identities::open(file.path()).unwrap();
        let by = |token: &Token| identities.identify(&headers(&[&format!("Bearer {}", token.text)]), &[]);
        let [stayed, gone] = [by(&stays).unwrap(), by(&goes).unwrap()];
        let rewrite = |text: &str| {
            std::fs::write(file.path(), text).unwrap();
            identities.refresh();
        };
        rewrite("nonsense");
        assert!(by(&goes).is_ok(), "a faulty file changes nothing");
        rewrite(&principal(&stays, ""));
        assert_eq!(gone.withdrawn().await.code(), tonic::Code::Unauthenticated);
        assert_eq!(reason(by(&goes)), "BAD_CREDENTIAL");
        assert!(tokio::time::timeout(Duration::from_millis(20), stayed.withdrawn()).await.is_err());
        rewrite(&principal(&stays, "").replace("read:*", "read:a"));
        stayed.withdrawn().await;
        assert!(!by(&stays).unwrap().allows(Right::Read, "b"));
    }

    #[tokio::test(start_paused = true)]
    async fn s3_a_token_expires_while_a_stream_is_open() {
        let token = Token::new().unwrap();
        let file = file(&principal(&token, "expires_at = '2999-01-01T00:00:00Z'"));
        let identities = Identities::open(file.path()).unwrap();
        let access = identities.identify(&headers(&[&format!("Bearer {}", token.text)]), &[]).unwrap();
        access.withdrawn().await;
    }
}
