//! Drops what is past the retention: days of transitions whole, messages that are gone one by one.

use super::Elastic;
use super::bulk::{Action, Bulk, External, Target};
use super::filter::Filter;
use super::search::Found;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Days dropped in one step: their names are in the request's first line, which the server bounds to 4 KiB.
const DAYS: usize = 20;
/// Messages removed in one step.
const MESSAGES: usize = 2_000;

pub(super) async fn prune(elastic: &Elastic, now_ms: u64) -> Result<bool, HistoryError> {
    let before_ms = now_ms.saturating_sub(elastic.options.retention_ms);
    let more_days = drop_days(elastic, before_ms).await?;
    let more_messages = remove_messages(elastic, before_ms).await?;
    Ok(more_days || more_messages)
}

/// A day is dropped when all of it is too old.
async fn drop_days(elastic: &Elastic, before_ms: u64) -> Result<bool, HistoryError> {
    let names = &elastic.names;
    let path = format!("{}/_settings", names.historic);
    // Closed ones, too.
    let query = [("expand_wildcards", "all"), ("filter_path", "*.settings.index.uuid")];
    let found: Map<String, Value> = elastic.link.send(Method::Get, &path, &query, None).await?.read()?;
    let mut old: Vec<(u64, &String)> = found
        .keys()
        .filter_map(|index| Some((names.day_ends_ms(index)?, index)))
        .filter(|(ends_ms, _)| *ends_ms <= before_ms)
        .collect();
    // The oldest first.
    old.sort();
    let more = old.len() > DAYS;
    old.truncate(DAYS);
    if !old.is_empty() {
        let indices: Vec<&str> = old.iter().map(|(_, index)| index.as_str()).collect();
        let query = [("ignore_unavailable", "true")];
        elastic.link.send(Method::Delete, &indices.join(","), &query, None).await?.done()?;
        tracing::info!(?indices, "dropped days of history past the retention");
    }
    Ok(more)
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// With what they carried.
async fn remove_messages(elastic: &Elastic, before_ms: u64) -> Result<bool, HistoryError> {
    let names = &elastic.names;
    let filter = Filter::default().term("gone", true).range("changed_at_ms", None, Some(before_ms));
    let body = json!({
        "size": MESSAGES,
        "track_total_hits": false,
        "query": filter.query(),
        "sort": ["_doc"],
        "_source": ["version"],
    });
    let found: Found<Versioned> = elastic.link.search(&names.current, &body).await?;
    let mut bulk = Bulk::default();
    for (number, hit) in found.hits.hits.iter().enumerate() {
        let version = External::version(hit.source.version.into());
        bulk.push(number, &Action::Delete(Target { index: &names.current, id: &hit.id, version }), None::<&()>);
        // A message that is gone never comes back, so there is no newer one whose payload this could be.
        let payload = Target { index: &names.payload, id: &hit.id, version: None };
        bulk.push(number, &Action::Delete(payload), None::<&()>);
    }
    // Shown at once: the next step must not find them again.
    if let Some(refused) = bulk.send(&elastic.link, &[("refresh", "true")]).await?.first() {
        return Err(HistoryError::Failed(refused.why.clone()));
    }
    Ok(found.hits.hits.len() == MESSAGES)
}
