//! Claims: at most one program drops an index at a time. A program that dies leaves its claim, which another takes over
//! after a while, and continues.

use super::client::ElasticClient;
use super::names::IndexNames;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use serde_json::json;

/// How long a claim holds. Dropping an index takes a few requests, each of which has a timeout.
const CLAIMED_MS: u64 = 3 * 60_000;

#[derive(Deserialize)]
struct ClaimHit {
    #[serde(rename = "_seq_no")]
    seq_no: u64,
    #[serde(rename = "_primary_term")]
    primary_term: u64,
    #[serde(rename = "_source")]
    claim: Claim,
}

#[derive(Deserialize)]
struct Claim {
    from_ms: u64,
}

/// Whose turn it is to drop an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// No program has a claim.
    Free,
    /// This program may take over the claim of another one, which is older than it holds: the version of the claim.
    Abandoned { seq_no: u64, primary_term: u64 },
    /// Another program's.
    Taken,
}

fn path(names: &IndexNames, operation: &str, index: &str) -> String {
    format!("{}/{operation}/drop-{index}", names.hours)
}

/// Whose turn it is now.
pub(super) async fn turn(
    client: &ElasticClient,
    names: &IndexNames,
    index: &str,
    now_ms: u64,
) -> Result<Turn, HistoryError> {
    let reply = client.send(Method::Get, &path(names, "_doc", index), &[], None).await?;
    if reply.status == 404 {
        return Ok(Turn::Free);
    }
    let ClaimHit { seq_no, primary_term, claim } = reply.read()?;
    let is_held = now_ms < claim.from_ms.saturating_add(CLAIMED_MS);
    Ok(if is_held { Turn::Taken } else { Turn::Abandoned { seq_no, primary_term } })
}

/// Claims the index. `false`: another program was faster.
pub(super) async fn claim(
    client: &ElasticClient,
    names: &IndexNames,
    index: &str,
    turn: Turn,
    now_ms: u64,
) -> Result<bool, HistoryError> {
    let claim = json!({ "kind": "drop", "from_ms": now_ms, "index": index });
    let reply = match turn {
        Turn::Taken => return Ok(false),
        Turn::Free => client.send(Method::Put, &path(names, "_create", index), &[], Some(&claim)).await?,
        Turn::Abandoned { seq_no, primary_term } => {
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
    let reply = client.send(Method::Delete, &path(names, "_doc", index), &[], None).await?;
    if reply.status == 404 { Ok(()) } else { reply.done() }
}
