//! Claims: at most one program drops an index at a time. A program that dies leaves its claim, which another takes over,
//! and continues. It does so once it has seen the same claim for a while, by its own clock: the clocks of two programs
//! may differ.

use super::client::ElasticClient;
use super::names::IndexNames;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// How long a program sees a claim before it takes it over. Dropping an index takes a few requests, each of which has a
/// timeout.
const CLAIMED_MS: u64 = 3 * 60_000;

/// The version of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ClaimVersion {
    #[serde(rename = "_seq_no")]
    seq_no: u64,
    #[serde(rename = "_primary_term")]
    primary_term: u64,
}

/// The claims of others by their indices, and since when this program sees them, Unix ms.
#[derive(Default)]
pub(super) struct SeenClaims(Mutex<HashMap<String, (ClaimVersion, u64)>>);

impl SeenClaims {
    /// For how long this program sees the claim, ms.
    fn seen_ms(&self, index: &str, found: ClaimVersion, now_ms: u64) -> u64 {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (version, since_ms) = seen.entry(index.to_owned()).or_insert((found, now_ms));
        // Also after the clock was set back.
        if *version != found || now_ms < *since_ms {
            (*version, *since_ms) = (found, now_ms);
        }
        now_ms - *since_ms
    }

    fn forget(&self, index: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(index);
    }
}

/// Who has the claim on dropping an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimState {
    /// No program has a claim.
    Free,
    /// This program may take over the claim of another one.
    Abandoned(ClaimVersion),
    /// Another program's.
    Taken,
}

fn path(names: &IndexNames, operation: &str, index: &str) -> String {
    format!("{}/{operation}/drop-{index}", names.hours)
}

/// Who has the claim now.
pub(super) async fn claim_state(
    client: &ElasticClient,
    names: &IndexNames,
    seen: &SeenClaims,
    index: &str,
    now_ms: u64,
) -> Result<ClaimState, HistoryError> {
    let reply = client.send(Method::Get, &path(names, "_doc", index), &[], None).await?;
    if reply.status == 404 {
        seen.forget(index);
        return Ok(ClaimState::Free);
    }
    let version: ClaimVersion = reply.read()?;
    let is_held = seen.seen_ms(index, version, now_ms) < CLAIMED_MS;
    Ok(if is_held { ClaimState::Taken } else { ClaimState::Abandoned(version) })
}

/// Claims the index. `false`: another program was faster.
pub(super) async fn claim(
    client: &ElasticClient,
    names: &IndexNames,
    index: &str,
    state: ClaimState,
    now_ms: u64,
) -> Result<bool, HistoryError> {
    let claim = json!({ "kind": "drop", "from_ms": now_ms, "index": index });
    let reply = match state {
        ClaimState::Taken => return Ok(false),
        ClaimState::Free => client.send(Method::Put, &path(names, "_create", index), &[], Some(&claim)).await?,
        ClaimState::Abandoned(ClaimVersion { seq_no, primary_term }) => {
            let (seq_no, primary_term) = (seq_no.to_string(), primary_term.to_string());
            let query = [("if_seq_no", seq_no.as_str()), ("if_primary_term", primary_term.as_str())];
            client.send(Method::Put, &path(names, "_doc", index), &query, Some(&claim)).await?
        }
    };
    if reply.status == 409 {
        return Ok(false);
    }
    reply.done()?;
    Ok(true)
}

/// Gives the claim back.
pub(super) async fn release(client: &ElasticClient, names: &IndexNames, index: &str) -> Result<(), HistoryError> {
    client.send(Method::Delete, &path(names, "_doc", index), &[], None).await?.done_or_missing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_a_claim_is_seen_from_its_first_sight_and_again_when_it_changes() {
        let seen = SeenClaims::default();
        let version = |seq_no| ClaimVersion { seq_no, primary_term: 1 };
        assert_eq!([5, 9].map(|now_ms| seen.seen_ms("i", version(1), now_ms)), [0, 4]);
        assert_eq!(seen.seen_ms("other", version(1), 9), 0);
        assert_eq!([10, 12].map(|now_ms| seen.seen_ms("i", version(2), now_ms)), [0, 2], "another program's");
        assert_eq!([3, 4].map(|now_ms| seen.seen_ms("i", version(2), now_ms)), [0, 1], "the clock was set back");
        seen.forget("i");
        assert_eq!(seen.seen_ms("i", version(2), 9), 0);
    }
}
