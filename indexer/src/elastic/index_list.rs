//! The indices of one kind that exist, closed ones included.

use super::client::ElasticClient;
use super::names::{IndexNames, Kind};
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde_json::{Map, Value};

/// One index.
#[derive(Debug)]
pub(super) struct ListedIndex {
    pub(super) name: String,
    /// The hour with which it begins, in hours since 1970.
    pub(super) begins: u64,
    /// Its primary shards.
    pub(super) shards: u64,
    pub(super) is_closed: bool,
}

/// The indices in the order of their start.
pub(super) async fn list(
    client: &ElasticClient,
    names: &IndexNames,
    kind: Kind,
) -> Result<Vec<ListedIndex>, HistoryError> {
    let path = format!("{}/_settings", names.pattern(kind));
    let settings = "*.settings.index.number_of_shards,*.settings.index.verified_before_close";
    let query = [("expand_wildcards", "all"), ("ignore_unavailable", "true"), ("filter_path", settings)];
    let reply = client.send(Method::Get, &path, &query, None).await?;
    if reply.status == 404 {
        return Ok(Vec::new());
    }
    let found: Map<String, Value> = reply.read()?;
    let listed = |(name, found): (String, Value)| {
        let begins = names.begins(kind, &name)?;
        let settings = &found["settings"]["index"];
        let shards = settings["number_of_shards"].as_str().and_then(|shards| shards.parse().ok()).unwrap_or(1);
        Some(ListedIndex { begins, shards, is_closed: settings["verified_before_close"] == "true", name })
    };
    let mut indices: Vec<ListedIndex> = found.into_iter().filter_map(listed).collect();
    // The index of a day and that of its first hour begin together; the second one is the later one.
    indices.sort_by(|one, other| (one.begins, &one.name).cmp(&(other.begins, &other.name)));
    Ok(indices)
}
