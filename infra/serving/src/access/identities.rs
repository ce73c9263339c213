//! Who a caller is, by its token or its certificate. The files behind that are read again when they change.

use super::book::{Book, Grant, Identified, Unknown};
use super::config::AuthConfig;
use super::file::FileError;
use super::jwt::{JwtConfig, JwtVerifier};
use super::refusal::unknown_caller;
use super::token::is_of_principal;
use crate::tls::ClientCertificate;
use crate::watched::Watched;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use tallystone_model::ConfigError;
use tonic::Status;

/// Who may call at this moment.
pub(crate) struct Identities {
    file: Option<(PathBuf, Watched<Book>)>,
    jwt: Option<JwtVerifier>,
}

impl Identities {
    /// The principals of the file, and the callers with tokens of the provider; `None`: neither is configured.
    pub(crate) fn open(auth: &AuthConfig, jwt: &JwtConfig) -> Result<Option<Identities>, ConfigError> {
        let file = auth.principals_file.as_ref().map(|path| {
            let why = |error| ConfigError::new("auth.principals_file", format!("{}: {error}", path.display()));
            let book = Watched::open("principals", vec![path.clone()], || Book::read(path)).map_err(why)?;
            Ok::<_, ConfigError>((path.clone(), book))
        });
        let (file, jwt) = (file.transpose()?, JwtVerifier::open(jwt)?);
        Ok((file.is_some() || jwt.is_some()).then_some(Identities { file, jwt }))
    }

    /// Begins the metrics of its files at 0.
    pub(crate) fn begin_metrics(&self) {
        self.file.iter().for_each(|(_, book)| book.begin_metrics());
        self.jwt.iter().for_each(JwtVerifier::begin_metrics);
    }

    /// Reads the files again that have changed. A file with a fault changes nothing.
    pub(crate) fn refresh(&self) {
        if let Some((path, book)) = &self.file {
            book.refresh(|before| {
                let mut book = Book::read(path)?;
                book.replace(before);
                Ok::<_, FileError>(book)
            });
        }
        self.jwt.iter().for_each(JwtVerifier::refresh);
    }

    /// What a caller with these headers and this certificate may do.
    pub(super) fn identify(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Identified, Status> {
        let (mut credentials, now) = (headers.get_all(AUTHORIZATION).into_iter(), SystemTime::now());
        let known = match (credentials.next(), credentials.next(), certificate) {
            (None, _, Some(certificate)) => self.by_certificate(certificate, now),
            (None, _, None) => Err(Unknown::Missing),
            (Some(value), None, _) => {
                let token = value.to_str().ok().and_then(bearer).ok_or(Unknown::Bad);
                let grant = token.and_then(|token| self.by_token(token, now));
                grant.map(|grant| Identified { expires_at: grant.expires_at, grant })
            }
            (Some(_), Some(_), _) => Err(Unknown::Bad),
        };
        known.map_err(unknown_caller)
    }

    /// The handshake has refused a certificate that had expired then.
    fn by_certificate(&self, certificate: &ClientCertificate, now: SystemTime) -> Result<Identified, Unknown> {
        let (_, book) = self.file.as_ref().ok_or(Unknown::Missing)?;
        let grant = book.get().by_certificate(&certificate.names)?;
        match certificate.expires_at <= now {
            true => Err(Unknown::Expired),
            false => Ok(Identified { grant, expires_at: Some(certificate.expires_at) }),
        }
    }

    /// Tokens of principals have an own form; all others are those of the provider.
    fn by_token(&self, token: &str, now: SystemTime) -> Result<Arc<Grant>, Unknown> {
        match (&self.file, &self.jwt) {
            (_, Some(jwt)) if !is_of_principal(token) => jwt.verify(token, now),
            (Some((_, book)), _) => book.get().by_token(token, now),
            (None, _) => Err(Unknown::Bad),
        }
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
    use crate::access::{Access, Right, Token};
    use std::time::Duration;
    use tokio::time::Instant;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn open(file: &tempfile::NamedTempFile) -> Identities {
        let auth = AuthConfig { principals_file: Some(file.path().to_owned()) };
        Identities::open(&auth, &JwtConfig::default()).unwrap().unwrap()
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

    fn access(known: Identified) -> Access {
        Access::new(Some(known), None)
    }

    fn reason(identified: Result<Identified, Status>) -> String {
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
        let identities = open(&file);
        let by = |values: &[&str]| identities.identify(&headers(values), None);
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let access = access(by(&[&format!("{scheme} {}", token.text)]).unwrap());
            assert!(access.allows(Right::Read, "q") && !access.allows(Right::Produce, "q"));
        }
        let good = format!("Bearer {}", token.text);
        assert_eq!(reason(by(&[])), "NO_CREDENTIAL");
        assert_eq!(reason(by(&[&format!("Bearer {}", expired.text)])), "EXPIRED");
        let (id, secret) = token.text.rsplit_once('_').unwrap();
        let first = if secret.starts_with('x') { 'y' } else { 'x' };
        let forged = format!("Bearer {id}_{first}{}", &secret[1..]);
        let of_other = format!("Bearer ts_{}_{}", token.id, expired.text.rsplit_once('_').unwrap().1);
        for bad in ["", "Bearer", "Bearer ts_a_b", &token.text, &forged, &of_other, "Basic YTpi"] {
            assert_eq!(reason(by(&[bad])), "BAD_CREDENTIAL", "{bad}");
        }
        assert_eq!(reason(by(&[&good, &good])), "BAD_CREDENTIAL");
        let certificate = |name: &str| ClientCertificate {
            names: vec![name.to_owned()],
            expires_at: SystemTime::now() + Duration::from_secs(60),
        };
        let named = |name: &str| identities.identify(&HeaderMap::new(), Some(&certificate(name)));
        assert!(named("CN=a").is_ok());
        assert_eq!(reason(named("CN=b")), "BAD_CREDENTIAL");
        // A token that is given counts, whatever the certificate says.
        assert_eq!(reason(identities.identify(&headers(&["Bearer x"]), Some(&certificate("CN=a")))), "BAD_CREDENTIAL");
    }

    #[tokio::test]
    async fn s3_a_changed_file_withdraws_only_what_it_changes() {
        let [stays, goes] = [Token::new().unwrap(), Token::new().unwrap()];
        let more = format!("[[principal.tokens]]\nid = '{}'\nsha256 = '{}'", goes.id, goes.sha256);
        let file = file(&principal(&stays, &more));
        let identities = open(&file);
        let by = |token: &Token| identities.identify(&headers(&[&format!("Bearer {}", token.text)]), None);
        let [stayed, gone] = [&stays, &goes].map(|token| access(by(token).unwrap()));
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
        assert!(!access(by(&stays).unwrap()).allows(Right::Read, "b"));
    }

    /// A clock that shows this time now, and goes on with the timers of the test.
    fn clock(begin: SystemTime) -> impl Fn() -> SystemTime {
        let from = Instant::now();
        move || begin + from.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn s3_a_token_expires_while_a_stream_is_open() {
        let token = Token::new().unwrap();
        let file = file(&principal(&token, "expires_at = '2999-01-01T00:00:00Z'"));
        let identities = open(&file);
        let known = identities.identify(&headers(&[&format!("Bearer {}", token.text)]), None).unwrap();
        let (from, hour) = (Instant::now(), Duration::from_secs(3_600));
        let clock = clock(known.expires_at.unwrap() - hour);
        access(known).withdrawn_by(clock).await;
        assert_eq!(from.elapsed().as_secs(), hour.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn s3_a_certificate_expires_while_its_connection_is_open() {
        let file = file(&principal(&Token::new().unwrap(), ""));
        let identities = open(&file);
        let valid_until = |expires_at| {
            let certificate = ClientCertificate { names: vec!["CN=a".to_owned()], expires_at };
            identities.identify(&HeaderMap::new(), Some(&certificate))
        };
        let now = SystemTime::now();
        assert_eq!(reason(valid_until(now - Duration::from_secs(1))), "EXPIRED");
        let [hour, minute] = [3_600, 60].map(Duration::from_secs);
        let valid = || access(valid_until(now + hour).unwrap());
        let from = Instant::now();
        valid().withdrawn_by(clock(now)).await;
        assert_eq!(from.elapsed().as_secs(), hour.as_secs());
        // Timers do not notice that the clock was set forward.
        let (from, clock) = (Instant::now(), clock(now));
        let corrected = || clock() + if from.elapsed().is_zero() { Duration::ZERO } else { hour };
        valid().withdrawn_by(corrected).await;
        assert!(from.elapsed() < minute);
    }
}
