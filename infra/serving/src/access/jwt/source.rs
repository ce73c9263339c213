//! Where the keys of a provider come from: a file, or an address.

use super::config::JwtConfig;
use super::keys::KeySet;
use crate::watched::{Watched, begin_reload_metrics, note_failed_reload};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tallystone_model::{ConfigError, with_causes};
use tokio::sync::Notify;

/// When keys are fetched.
#[derive(Clone, Copy)]
struct Periods {
    /// How often.
    every: Duration,
    /// The same while they cannot be fetched.
    retry: Duration,
    /// The least time between two fetches for keys that are not known.
    unknown: Duration,
}

const PERIODS: Periods =
    Periods { every: Duration::from_secs(600), retry: Duration::from_secs(5), unknown: Duration::from_secs(30) };
/// Names the keys in metrics.
const WHAT: &str = "jwt_keys";
const TIMEOUT: Duration = Duration::from_secs(10);
const BYTES_MAX: usize = 1024 * 1024;

/// The keys of a provider, kept up to date.
pub(super) enum KeySource {
    File { path: PathBuf, keys: Watched<KeySet> },
    Url(Arc<Fetched>),
}

/// Keys from an address.
pub(super) struct Fetched {
    url: String,
    http: reqwest::Client,
    periods: Periods,
    state: RwLock<State>,
    unknown: Notify,
}

#[derive(Default)]
struct State {
    keys: Arc<KeySet>,
    tried_at: Option<Instant>,
    /// The last fetch has brought no keys.
    has_failed: bool,
}

impl KeySource {
    /// Reads the file, or begins to fetch from the address: a provider that is down does not keep a server from starting.
    pub(super) fn open(config: &JwtConfig) -> Result<KeySource, ConfigError> {
        if let Some(path) = &config.keys_file {
            let why = |error| ConfigError::new("jwt.keys_file", format!("{}: {error}", path.display()));
            let keys = Watched::open(WHAT, vec![path.clone()], || read(path)).map_err(why)?;
            return Ok(KeySource::File { path: path.clone(), keys });
        }
        KeySource::fetch(config, PERIODS)
    }

    fn fetch(config: &JwtConfig, periods: Periods) -> Result<KeySource, ConfigError> {
        let (url, http) = (config.keys_url.clone().unwrap_or_default(), http(config)?);
        let fetched = Fetched { url, http, periods, state: RwLock::default(), unknown: Notify::new() };
        let fetched = Arc::new(fetched);
        tokio::spawn(fetch_again(Arc::downgrade(&fetched)));
        Ok(KeySource::Url(fetched))
    }

    pub(super) fn begin_metrics(&self) {
        begin_reload_metrics(WHAT);
    }

    /// The keys of this moment.
    pub(super) fn get(&self) -> Arc<KeySet> {
        match self {
            KeySource::File { keys, .. } => keys.get(),
            KeySource::Url(fetched) => fetched.state.read().unwrap_or_else(PoisonError::into_inner).keys.clone(),
        }
    }

    /// Reads the file again if it has changed. A file with a fault changes nothing.
    pub(super) fn refresh(&self) {
        if let KeySource::File { path, keys } = self {
            keys.refresh(|before| {
                let mut keys = read(path)?;
                keys.replace(before);
                Ok::<_, String>(keys)
            });
        }
    }

    /// A token names an unknown key. Returns whether a fetch will show if there is such a key.
    pub(super) fn note_unknown(&self) -> bool {
        let KeySource::Url(fetched) = self else { return false };
        let state = fetched.state.read().unwrap_or_else(PoisonError::into_inner);
        let is_due = state.tried_at.is_none_or(|at| at.elapsed() >= fetched.periods.unknown);
        if is_due {
            fetched.unknown.notify_one();
        }
        is_due || state.has_failed
    }
}

fn read(path: &PathBuf) -> Result<KeySet, String> {
    KeySet::parse(&std::fs::read_to_string(path).map_err(|error| error.to_string())?)
}

fn http(config: &JwtConfig) -> Result<reqwest::Client, ConfigError> {
    let mut builder = reqwest::Client::builder().timeout(TIMEOUT).redirect(reqwest::redirect::Policy::none());
    if let Some(path) = &config.keys_ca_file {
        let why = |error: &dyn std::fmt::Display| {
            ConfigError::new("jwt.keys_ca_file", format!("{}: {error}", path.display()))
        };
        let pem = std::fs::read(path).map_err(|error| why(&error))?;
        let cas = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| why(&error))?;
        builder =
            cas.into_iter().fold(builder.tls_built_in_root_certs(false), reqwest::ClientBuilder::add_root_certificate);
    }
    builder.build().map_err(|error| ConfigError::new("jwt.keys_url", error.to_string()))
}

/// Fetches the keys regularly, and when a token names one that is not known. Ends with the last verifier.
async fn fetch_again(fetched: std::sync::Weak<Fetched>) {
    loop {
        let Some(this) = fetched.upgrade() else { return };
        let keys = this.fetch().await;
        let Periods { every, retry, unknown } = this.periods;
        let wait = if keys.is_ok() { every } else { retry };
        this.take(keys);
        let called_for = async {
            tokio::time::sleep(unknown.min(wait)).await;
            this.unknown.notified().await;
        };
        let _ = tokio::time::timeout(wait, called_for).await;
    }
}

impl Fetched {
    async fn fetch(&self) -> Result<KeySet, String> {
        // Its errors would show the address, which may have a password.
        let shown = |error: reqwest::Error| with_causes(&error.without_url());
        let mut response =
            self.http.get(&self.url).send().await.and_then(reqwest::Response::error_for_status).map_err(shown)?;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(shown)? {
            body.extend_from_slice(&chunk);
            if body.len() > BYTES_MAX {
                return Err(format!("it has more than {BYTES_MAX} bytes"));
            }
        }
        KeySet::parse(std::str::from_utf8(&body).map_err(|error| error.to_string())?)
    }

    fn take(&self, keys: Result<KeySet, String>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        (state.tried_at, state.has_failed) = (Some(Instant::now()), keys.is_err());
        match keys {
            Ok(mut keys) => {
                keys.replace(&state.keys);
                state.keys = Arc::new(keys);
            }
            Err(error) => {
                note_failed_reload(WHAT);
                tracing::warn!(%error, "the keys of JSON Web Tokens stay as they were: they cannot be fetched")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Provider, SignedBy};
    use super::*;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Serves these keys over HTTP; `None`: the provider fails.
    async fn serve(keys: Arc<Mutex<Option<String>>>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let _ = socket.read(&mut [0; 4_096]).await;
                let keys = keys.lock().unwrap().clone();
                let status = if keys.is_some() { "200 OK" } else { "503 Service Unavailable" };
                let body = keys.unwrap_or_default();
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
                let _ = socket.write_all((head + &body).as_bytes()).await;
            }
        });
        url
    }

    #[tokio::test]
    async fn s3_keys_are_fetched_when_the_provider_is_back_and_when_a_token_names_a_new_one() {
        let [first, second] = ["a", "b"].map(SignedBy::new);
        let served = Arc::new(Mutex::new(None));
        let url = serve(served.clone()).await;
        let config = JwtConfig { issuer: Some("i".to_owned()), keys_url: Some(url), ..JwtConfig::default() };
        let short = Duration::from_millis(10);
        let periods = Periods { every: Duration::from_secs(600), retry: short, unknown: short };
        let source = KeySource::fetch(&config, Periods { unknown: Duration::from_secs(600), ..periods }).unwrap();
        let KeySource::Url(fetched) = &source else { unreachable!() };
        while fetched.state.read().unwrap().tried_at.is_none() {
            tokio::time::sleep(short).await;
        }
        assert!(source.note_unknown(), "the provider is down: the token may be a good one");
        let source = KeySource::fetch(&config, periods).unwrap();
        let known = async |id: &str| {
            while source.get().find(Some(id)).next().is_none() {
                source.note_unknown();
                tokio::time::sleep(short).await;
            }
        };
        *served.lock().unwrap() = Some(Provider::keys(&[&first]));
        known("a").await;
        let of_first = source.get().find(Some("a")).next().unwrap().withdrawn.clone();
        *served.lock().unwrap() = None;
        tokio::time::sleep(short).await;
        source.note_unknown();
        *served.lock().unwrap() = Some(Provider::keys(&[&second]));
        known("b").await;
        assert!(of_first.is_cancelled() && source.get().find(Some("a")).next().is_none());
    }
}
