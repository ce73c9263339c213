//! The reference of the indexer: prepared requests, sent directly to the server.

use anyhow::{Result, bail};
use bytes::Bytes;
use elasticsearch::http::Method;
use elasticsearch::http::headers::{CONTENT_TYPE, HeaderMap, HeaderValue};
use elasticsearch::http::transport::Transport;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Only the errors of a response: the smallest response that a sender can request.
const QUERY: &[(&str, &str)] = &[("filter_path", "items.*.error.type,items.*.error.reason")];
const TOO_MANY: u16 = 429;
const OVERLOADED: Duration = Duration::from_millis(100);
/// The index holds a newer version of the document, as must happen when requests overtake each other.
const CONFLICT: &str = "version_conflict_engine_exception";

#[derive(Default, Deserialize)]
struct BulkResponse {
    #[serde(default)]
    /// Each by its operation.
    items: Vec<BTreeMap<String, BulkItem>>,
}

#[derive(Deserialize)]
struct BulkItem {
    error: BulkError,
}

#[derive(Deserialize)]
struct BulkError {
    r#type: String,
    #[serde(default)]
    reason: String,
}

/// Sends all requests, `at_once` at a time. Returns the time from the first request to the last response.
pub(super) async fn send(transport: &Transport, requests: &[Bytes], at_once: usize) -> Result<Duration> {
    let began = Instant::now();
    let sent = stream::iter(requests.iter().map(|body| send_one(transport, body.clone())));
    sent.buffer_unordered(at_once).try_for_each(async |()| Ok(())).await?;
    Ok(began.elapsed())
}

async fn send_one(transport: &Transport, body: Bytes) -> Result<()> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    loop {
        let sent = transport.send(Method::Post, "_bulk", headers.clone(), Some(QUERY), Some(body.clone()), None);
        let response = sent.await?;
        if response.status_code() != TOO_MANY {
            return judge(&response.error_for_status_code()?.bytes().await?);
        }
        // The indexer waits as long.
        tokio::time::sleep(OVERLOADED).await;
    }
}

fn judge(response: &[u8]) -> Result<()> {
    let response: BulkResponse =
        if response.is_empty() { BulkResponse::default() } else { serde_json::from_slice(response)? };
    let mut refused = response.items.into_iter().flat_map(BTreeMap::into_values).map(|refused| refused.error);
    match refused.find(|error| error.r#type != CONFLICT) {
        Some(error) => bail!("a document was refused: {}: {}", error.r#type, error.reason),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_document_is_an_error_unless_a_newer_one_exists() {
        let response =
            |kind: &str| format!(r#"{{"items":[{{"index":{{"error":{{"type":"{kind}","reason":"r"}}}}}}]}}"#);
        assert!(judge(b"{}").is_ok() && judge(b"").is_ok());
        assert!(judge(response(CONFLICT).as_bytes()).is_ok());
        assert!(judge(response("mapper_parsing_exception").as_bytes()).is_err());
    }
}
