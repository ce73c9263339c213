//! The server's response to one request, and what its errors mean.

use crate::store::HistoryError;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tallystone_model::with_causes;

/// How much of the server's reason an error quotes: a reason can contain a whole document.
const REASON_CHARS_MAX: usize = 400;

/// A response, successful or not.
pub(super) struct HttpReply {
    pub(super) status: u16,
    pub(super) body: Bytes,
}

impl HttpReply {
    /// The decoded body of a successful response.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, HistoryError> {
        self.done()?;
        serde_json::from_slice(&self.body)
            .map_err(|error| HistoryError::Failed(format!("the response cannot be read: {error}")))
    }

    /// `Ok` if the response is successful, or what it is about does not exist.
    pub(super) fn done_or_missing(&self) -> Result<(), HistoryError> {
        if self.status == 404 { Ok(()) } else { self.done() }
    }

    /// `Ok` if the response is successful.
    pub(super) fn done(&self) -> Result<(), HistoryError> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        let error = &body["error"];
        // A failed search gives its reason in the first root cause.
        let cause = error["root_cause"].get(0).filter(|cause| cause.is_object()).unwrap_or(error);
        let text = |key: &str| cause[key].as_str().unwrap_or_default();
        Err(server_error(self.status, text("type"), text("reason")))
    }
}

/// What an error response means, of a request or of one write of a bulk.
pub(super) fn server_error(status: u16, kind: &str, reason: &str) -> HistoryError {
    let why = describe(status, kind, reason);
    if is_transient(status, kind, reason) { HistoryError::Unavailable(why) } else { HistoryError::Failed(why) }
}

/// What an operator repairs while the caller retries: a disk above its flood stage, a closed or missing index.
const REPAIRED_KINDS: [&str; 4] =
    ["cluster_block_exception", "index_closed_exception", "validation_exception", "index_not_found_exception"];
/// The same, of errors that have the kind of a bad document: no room for one more shard or document, and settings of an
/// index that name what is not there.
const REPAIRED_REASONS: [&str; 5] = [
    "maximum normal shards open",
    "Number of documents in the",
    "pipeline with id [",
    "no write index is defined",
    "are allowed in data streams",
];

/// Whether the same request may succeed later: overload, a server that starts or has lost a node, or what an operator
/// repairs.
pub(super) fn is_transient(status: u16, kind: &str, reason: &str) -> bool {
    matches!(status, 408 | 429 | 500..)
        || REPAIRED_KINDS.contains(&kind)
        || REPAIRED_REASONS.iter().any(|repaired| reason.contains(repaired))
}

/// Status, type and shortened reason of an error response.
pub(super) fn describe(status: u16, kind: &str, reason: &str) -> String {
    let short: String = reason.chars().take(REASON_CHARS_MAX).collect();
    let more = if short.len() < reason.len() { " …" } else { "" };
    format!("{status} {kind}: {short}{more}")
}

/// There was no response.
pub(super) fn no_response(error: &elasticsearch::Error) -> HistoryError {
    HistoryError::Unavailable(with_causes(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_errors_are_unavailable() {
        let unavailable =
            |status, kind, reason| matches!(server_error(status, kind, reason), HistoryError::Unavailable(_));
        assert!(unavailable(429, "es_rejected_execution_exception", ""));
        assert!(unavailable(503, "", ""));
        assert!(unavailable(403, "cluster_block_exception", "read-only"));
        assert!(unavailable(400, "illegal_argument_exception", "has [4]/[1] maximum normal shards open;"));
        assert!(unavailable(400, "illegal_argument_exception", "pipeline with id [p] does not exist"));
        assert!(!unavailable(403, "security_exception", ""));
        assert!(!unavailable(401, "", ""));
        assert!(!unavailable(400, "parsing_exception", ""));
    }

    #[test]
    fn a_long_reason_is_cut() {
        assert_eq!(describe(400, "a", "é"), "400 a: é");
        let long = describe(400, "a", &"é".repeat(REASON_CHARS_MAX + 1));
        assert!(long.ends_with("é …") && long.chars().count() < REASON_CHARS_MAX + 20, "{long}");
    }
}
