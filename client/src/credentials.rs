//! Which servers a client trusts, and how it proves who it is: the CA of the servers, its certificate, its token.

use crate::error::{Error, Result};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// The header with the token.
pub(crate) const AUTHORIZATION: &str = "authorization";
/// How often a token file is compared with what was read.
const REFRESH_EVERY: Duration = Duration::from_millis(500);

/// The files of a client, and its token.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
    pub(crate) token: Option<TokenSource>,
}

/// Where a token comes from.
#[derive(Clone)]
pub(crate) enum TokenSource {
    File(PathBuf),
    Text(String),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TokenSource::File(path) => f.debug_tuple("File").field(path).finish(),
            TokenSource::Text(_) => f.write_str("Text(***)"),
        }
    }
}

impl Credentials {
    /// How a connection to an `https://` address is encrypted.
    pub(crate) fn tls(&self, url: &str) -> Result<ClientTlsConfig> {
        let read = |path: &Path| read(url, path);
        let tls = match &self.ca_file {
            Some(path) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(path)?)),
            None => ClientTlsConfig::new().with_native_roots(),
        };
        Ok(match &self.certificate {
            Some((certificate, key)) => tls.identity(Identity::from_pem(read(certificate)?, read(key)?)),
            None => tls,
        })
    }

    /// Whether calls carry a token.
    pub(crate) fn has_token(&self) -> bool {
        self.token.is_some()
    }

    /// The token that calls to this address carry.
    pub(crate) fn token(&self, url: &str) -> Result<Option<Token>> {
        let Some(source) = &self.token else { return Ok(None) };
        let (header, path) = match source {
            TokenSource::Text(text) => (header(text), None),
            TokenSource::File(path) => (header(&String::from_utf8_lossy(&read(url, path)?)), Some(path.clone())),
        };
        let header = header.ok_or_else(|| Error::Connect {
            url: url.to_owned(),
            message: "the token must be one line of visible ASCII characters".to_owned(),
        })?;
        let modified = path.as_deref().and_then(modified);
        Ok(Some(Token { path, current: Mutex::new(Current { header, modified, checked_at: Instant::now() }) }))
    }
}

fn read(url: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::Connect {
        url: url.to_owned(),
        message: format!("cannot read {}: {error}", path.display()),
    })
}

/// The token of a client. A token in a file is read again when the file changes, so that a token can be replaced while
/// the client runs.
pub(crate) struct Token {
    path: Option<PathBuf>,
    current: Mutex<Current>,
}

struct Current {
    header: MetadataValue<Ascii>,
    modified: Option<SystemTime>,
    checked_at: Instant,
}

impl Token {
    /// Adds the token to a request.
    pub(crate) fn add_to<T>(&self, request: &mut tonic::Request<T>) {
        request.metadata_mut().insert(AUTHORIZATION, self.header());
    }

    fn header(&self) -> MetadataValue<Ascii> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(path) = &self.path
            && current.checked_at.elapsed() >= REFRESH_EVERY
        {
            current.checked_at = Instant::now();
            let now = modified(path);
            // A file that cannot be read now, or that is being written, leaves the token as it is.
            if now != current.modified
                && let Some(header) = std::fs::read_to_string(path).ok().as_deref().and_then(header)
            {
                current.header = header;
                current.modified = now;
            }
        }
        current.header.clone()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("path", &self.path).finish_non_exhaustive()
    }
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// `None`: no header can have it.
fn header(token: &str) -> Option<MetadataValue<Ascii>> {
    let token = token.trim();
    let is_visible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    let mut header: MetadataValue<Ascii> = is_visible.then(|| format!("Bearer {token}").parse().ok())??;
    // Not compressed into the table that a connection shares, and not shown.
    header.set_sensitive(true);
    Some(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn s3_a_token_in_a_file_can_be_replaced() {
        let dir = std::env::temp_dir().join(uuid::Uuid::new_v4().to_string());
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("token");
        let write = |token: &str, second: u64| {
            std::fs::write(&path, token).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        };
        write("one\n", 1);
        let credentials = Credentials { token: Some(TokenSource::File(path.clone())), ..Credentials::default() };
        let token = credentials.token("http://a").unwrap().unwrap();
        let sent = || {
            let mut request = tonic::Request::new(());
            token.add_to(&mut request);
            request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(sent(), "Bearer one");
        write("two", 2);
        assert_eq!(sent(), "Bearer one", "the file is not compared for each call");
        tokio::time::advance(REFRESH_EVERY).await;
        assert_eq!(sent(), "Bearer two");
        write("", 3);
        tokio::time::advance(REFRESH_EVERY).await;
        assert_eq!(sent(), "Bearer two", "a file that is being written");
        assert!(!format!("{token:?}").contains("two"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn s3_a_token_is_one_line_of_visible_characters() {
        for bad in ["", " \n", "a b", "a\nb", "\u{e9}"] {
            let credentials = Credentials { token: Some(TokenSource::Text(bad.to_owned())), ..Credentials::default() };
            assert!(credentials.token("http://a").is_err(), "{bad:?}");
        }
        let text = Credentials { token: Some(TokenSource::Text("s3cret".to_owned())), ..Credentials::default() };
        assert!(!format!("{text:?}").contains("s3cret"));
    }
}
