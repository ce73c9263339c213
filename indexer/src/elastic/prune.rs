//! Removes what is past the retention: transitions by whole days, messages that are gone one by one.

use super::bulk::{Action, Bulk, ExternalVersion, Target};
use super::cluster::Cluster;
use super::filter::Filter;
use super::response::SearchResponse;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Days dropped in one step. Their names are in the request line, which the server limits to 4 KiB.
const DAYS: usize = 20;
/// Messages removed in one step.
const MESSAGES: usize = 2_000;

pub(super) async fn prune(cluster: &Cluster, now_ms: u64) -> Result<bool, HistoryError> {
    let before_ms = now_ms.saturating_sub(cluster.options.retention_ms);
    let more_days = drop_days(cluster, before_ms).await?;
    let more_messages = remove_messages(cluster, before_ms).await?;
    Ok(more_days || more_messages)
}

/// Drops days that are past the retention as a whole.
async fn drop_days(cluster: &Cluster, before_ms: u64) -> Result<bool, HistoryError> {
    let names = &cluster.names;
    let path = format!("{}/_settings", names.historic);
    // Closed indices too.
    let query = [("expand_wildcards", "all"), ("filter_path", "*.settings.index.uuid")];
    let found: Map<String, Value> = cluster.client.send(Method::Get, &path, &query, None).await?.read()?;
    let mut old: Vec<(u64, &String)> = found
        .keys()
        .filter_map(|index| Some((names.day_ends_ms(index)?, index)))
        .filter(|(ends_ms, _)| *ends_ms <= before_ms)
        .collect();
    old.sort();
    let more = old.len() > DAYS;
    old.truncate(DAYS);
    if !old.is_empty() {
        let indices: Vec<&str> = old.iter().map(|(_, index)| index.as_str()).collect();
        let query = [("ignore_unavailable", "true")];
        cluster.client.send(Method::Delete, &indices.join(","), &query, None).await?.done()?;
        tracing::info!(?indices, "deleted the indices of days that are older than the retention");
    }
    Ok(more)
}

#[derive(Deserialize)]
struct MessageVersion {
    version: u32,
}

/// Removes messages that are gone, with their payloads.
async fn remove_messages(cluster: &Cluster, before_ms: u64) -> Result<bool, HistoryError> {
    let names = &cluster.names;
    let filter = Filter::default().term("gone", true).range("changed_at_ms", None, Some(before_ms));
    let body = json!({
        "size": MESSAGES,
        "track_total_hits": false,
        "query": filter.query(),
        "sort": ["_doc"],
        "_source": ["version"],
    });
    let found: SearchResponse<MessageVersion> = cluster.client.search(&names.current, &body).await?;
    let found = found.hits();
    let mut bulk = Bulk::default();
    for (number, hit) in found.iter().enumerate() {
        let version = ExternalVersion::of(hit.source.version.into());
        bulk.push(number, &Action::Delete(Target { index: &names.current, id: &hit.id, version }), None::<&()>);
        // The id of a document names one message for ever, so no newer message can have this payload.
        let payload = Target { index: &names.payload, id: &hit.id, version: None };
        bulk.push(number, &Action::Delete(payload), None::<&()>);
    }
    // The refresh keeps the next step from finding the same messages.
    if let Some(refused) = bulk.send(&cluster.client, &[("refresh", "true")]).await?.first() {
        return Err(HistoryError::Failed(refused.why.clone()));
    }
    Ok(found.len() == MESSAGES)
}
