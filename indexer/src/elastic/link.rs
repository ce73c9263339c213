//! One request to the server, and what its refusals mean. Plain media types and no client headers: OpenSearch does
//! not know those of Elastic.

use super::options::ElasticOptions;
use crate::store::HistoryError;
use backon::{ExponentialBuilder, Retryable};
use bytes::Bytes;
use elasticsearch::auth::Credentials;
use elasticsearch::http::headers::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use elasticsearch::http::transport::{SingleNodeConnectionPool, Transport, TransportBuilder};
use elasticsearch::http::{Method, Url};
use futures::FutureExt;
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::error::Error;
use std::time::Duration;

/// How much of the server's words a message repeats: they can hold a whole document.
const WORDS_MAX: usize = 400;
/// A search that finds no index finds nothing; one that cannot read a shard fails rather than leave it out.
pub(super) const SEARCH: &[(&str, &str)] =
    &[("ignore_unavailable", "true"), ("allow_no_indices", "true"), ("allow_partial_search_results", "false")];

/// What the server calls it when it has nobody to ask, of one shard and of all.
const SHARD_STARTS: [&str; 2] = ["no_shard_available_action_exception", "503 search_phase_execution_exception"];
/// Some three seconds in all.
const AGAIN: usize = 6;
const AGAIN_AFTER: Duration = Duration::from_millis(50);

/// The connections to the server.
pub(super) struct Link {
    transport: Transport,
}

/// What came back, whatever it says.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl Link {
    pub(super) fn new(options: &ElasticOptions) -> Result<Link, HistoryError> {
        let unusable = |why: String| HistoryError::Failed(format!("the address of Elasticsearch: {why}"));
        let mut url = Url::parse(&options.url).map_err(|error| unusable(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.cannot_be_a_base() {
            return Err(unusable("it begins with neither http:// nor https://".to_owned()));
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let (user, password) = (decoded(url.username()), decoded(url.password().unwrap_or_default()));
        let credentials = (!user.is_empty()).then_some(Credentials::Basic(user, password));
        // They would be sent twice, and stand in every message that names the address.
        let _ = (url.set_username(""), url.set_password(None));
        let agent = HeaderValue::from_static(concat!("tallystone/", env!("CARGO_PKG_VERSION")));
        let mut builder = TransportBuilder::new(SingleNodeConnectionPool::new(url))
            .timeout(options.request_timeout)
            .enable_meta_header(false)
            .header(USER_AGENT, agent)
            // A proxy of the environment is for what lies outside.
            .disable_proxy();
        if let Some(credentials) = credentials {
            builder = builder.auth(credentials);
        }
        let transport = builder.build().map_err(|error| unusable(error.to_string()))?;
        Ok(Link { transport })
    }

    /// Sends JSON, or nothing.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Reply, HistoryError> {
        self.exchange(method, path, query, HeaderMap::new(), body.map(|body| body.to_string().into())).await
    }

    /// Sends a bulk of lines.
    pub(super) async fn send_lines(&self, query: &[(&str, &str)], lines: Bytes) -> Result<Reply, HistoryError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        self.exchange(Method::Post, "_bulk", query, headers, Some(lines)).await
    }

    /// Searches; answers as `T` reads it.
    pub(super) async fn search<T: DeserializeOwned>(&self, indices: &str, body: &Value) -> Result<T, HistoryError> {
        let path = format!("{indices}/_search");
        let asked = || self.send(Method::Post, &path, SEARCH, Some(body)).map(|reply| reply?.read());
        once_settled(asked).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        query: &[(&str, &str)],
        headers: HeaderMap,
        body: Option<Bytes>,
    ) -> Result<Reply, HistoryError> {
        // The transport's own timeout, which covers the whole exchange, is in force.
        let sent = self.transport.send(method, path, headers, Some(query), body, None).await;
        let response = sent.map_err(|error| unreachable(&error))?;
        let status = response.status_code().as_u16();
        let body = response.bytes().await.map_err(|error| unreachable(&error))?;
        Ok(Reply { status, body })
    }
}

/// A question, asked again for a moment while a shard that it needs is not there yet: a new index, of each new day for
/// one, can be seen by others before its shard has started.
pub(super) async fn once_settled<T, A>(ask: impl FnMut() -> A) -> Result<T, HistoryError>
where
    A: Future<Output = Result<T, HistoryError>>,
{
    let starts = |error: &HistoryError| match error {
        HistoryError::Unavailable(why) => SHARD_STARTS.iter().any(|kind| why.contains(kind)),
        HistoryError::Failed(_) => false,
    };
    let pace = ExponentialBuilder::new().with_min_delay(AGAIN_AFTER).with_max_times(AGAIN);
    ask.retry(pace).when(starts).await
}

impl Reply {
    pub(super) fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body, if the server did what it was asked to.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, HistoryError> {
        self.done()?;
        serde_json::from_slice(&self.body)
            .map_err(|error| HistoryError::Failed(format!("the answer cannot be read: {error}")))
    }

    /// Nothing but whether the server did what it was asked to.
    pub(super) fn done(&self) -> Result<(), HistoryError> {
        if self.is_ok() {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let error = &body["error"];
        // Searches that fail say why in the first of their root causes.
        let cause = error["root_cause"].get(0).filter(|cause| cause.is_object()).unwrap_or(error);
        let text = |key: &str| cause[key].as_str().unwrap_or_default();
        Err(refusal(self.status, text("type"), text("reason")))
    }
}

/// What a refusal means, of a request or of one write of a bulk.
pub(super) fn refusal(status: u16, kind: &str, reason: &str) -> HistoryError {
    let why = words(status, kind, reason);
    // Overload, a server that starts or has lost a node; and what an operator mends while we wait: a disk above its
    // flood stage, a closed index, no room for one more shard.
    let waits = matches!(status, 408 | 429 | 500..)
        || matches!(
            kind,
            "cluster_block_exception" | "index_closed_exception" | "validation_exception" | "index_not_found_exception"
        )
        || reason.contains("maximum normal shards open");
    if waits { HistoryError::Unavailable(why) } else { HistoryError::Failed(why) }
}

/// The server's words, as much of them as one wants to read.
pub(super) fn words(status: u16, kind: &str, reason: &str) -> String {
    let short: String = reason.chars().take(WORDS_MAX).collect();
    let more = if short.len() < reason.len() { " …" } else { "" };
    format!("{status} {kind}: {short}{more}")
}

/// No answer. The causes say more than the error does, and repeat it at times.
fn unreachable(error: &elasticsearch::Error) -> HistoryError {
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let text = deeper.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        cause = deeper.source();
    }
    HistoryError::Unavailable(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waiting_mends_is_unavailable() {
        let unavailable = |status, kind, reason| matches!(refusal(status, kind, reason), HistoryError::Unavailable(_));
        assert!(unavailable(429, "es_rejected_execution_exception", ""));
        assert!(unavailable(503, "", ""));
        assert!(unavailable(403, "cluster_block_exception", "read-only"));
        assert!(unavailable(400, "illegal_argument_exception", "has [4]/[1] maximum normal shards open;"));
        assert!(!unavailable(403, "security_exception", ""));
        assert!(!unavailable(401, "", ""));
        assert!(!unavailable(400, "parsing_exception", ""));
    }

    #[test]
    fn the_servers_words_are_kept_short() {
        assert_eq!(words(400, "a", "é"), "400 a: é");
        let long = words(400, "a", &"é".repeat(WORDS_MAX + 1));
        assert!(long.ends_with("é …") && long.chars().count() < WORDS_MAX + 20, "{long}");
    }

    #[test]
    fn an_address_is_refused_without_its_password() {
        for bad in ["", "search:9200", "ftp://u:secret@x", "http://"] {
            let error = Link::new(&ElasticOptions::new(bad)).err().expect(bad).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
