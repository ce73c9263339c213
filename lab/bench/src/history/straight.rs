//! The reference of the indexer: requests that were made before, sent straight to the server.

use anyhow::{Result, bail};
use bytes::Bytes;
use elasticsearch::http::Method;
use elasticsearch::http::headers::{CONTENT_TYPE, HeaderMap, HeaderValue};
use elasticsearch::http::transport::Transport;
use futures::stream::{self, StreamExt, TryStreamExt};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Of the answer only what went wrong: the least that a sender can ask for.
const QUERY: &[(&str, &str)] = &[("filter_path", "items.*.error.type,items.*.error.reason")];
const TOO_MANY: u16 = 429;
const OVERLOADED: Duration = Duration::from_millis(100);
/// A newer version of the document was there: where requests overtake each other, so it must be.
const CONFLICT: &str = "version_conflict_engine_exception";

#[derive(Default, Deserialize)]
struct Answer {
    #[serde(default)]
    /// Each by what was asked for.
    items: Vec<BTreeMap<String, Refused>>,
}

#[derive(Deserialize)]
struct Refused {
    error: Why,
}

#[derive(Deserialize)]
struct Why {
    r#type: String,
    #[serde(default)]
    reason: String,
}

/// Sends all of them, so many at a time; from the first sent to the last answered.
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
        // As the indexer does.
        tokio::time::sleep(OVERLOADED).await;
    }
}

fn judge(answer: &[u8]) -> Result<()> {
    let answer: Answer = if answer.is_empty() { Answer::default() } else { serde_json::from_slice(answer)? };
    let mut refused = answer.items.into_iter().flat_map(BTreeMap::into_values).map(|refused| refused.error);
    match refused.find(|error| error.r#type != CONFLICT) {
        Some(error) => bail!("a document was refused: {}: {}", error.r#type, error.reason),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_an_error_unless_a_newer_one_is_there() {
        let answer = |kind: &str| format!(r#"{{"items":[{{"index":{{"error":{{"type":"{kind}","reason":"r"}}}}}}]}}"#);
        assert!(judge(b"{}").is_ok() && judge(b"").is_ok());
        assert!(judge(answer(CONFLICT).as_bytes()).is_ok());
        assert!(judge(answer("mapper_parsing_exception").as_bytes()).is_err());
    }
}
