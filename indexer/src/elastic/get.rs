//! Documents by id. Unlike a search, it returns the newest write, refreshed or not.

use super::client::ElasticClient;
use super::reply::server_error;
use super::retry::retry_while_shards_start;
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// The document of each id, in order; `None`: the document or its index is missing.
pub(super) async fn get<T: DeserializeOwned>(
    client: &ElasticClient,
    index: &str,
    ids: &[impl AsRef<str>],
) -> Result<Vec<Option<T>>, HistoryError> {
    let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
    retry_while_shards_start(|| get_once(client, index, &ids)).await
}

async fn get_once<T: DeserializeOwned>(
    client: &ElasticClient,
    index: &str,
    ids: &[&str],
) -> Result<Vec<Option<T>>, HistoryError> {
    let query = [("filter_path", "docs._id,docs._source,docs.error.type,docs.error.reason")];
    let reply = client.send(Method::Post, &format!("{index}/_mget"), &query, Some(&json!({ "ids": ids }))).await?;
    let response: MultiGetResponse<T> = reply.read()?;
    let document = |found: FoundDocument<T>| match found.error {
        Some(error) if error.kind != "index_not_found_exception" => Err(server_error(503, &error.kind, &error.reason)),
        _ => Ok(found.source),
    };
    response.docs.into_iter().map(document).collect()
}

#[derive(Deserialize)]
struct MultiGetResponse<T> {
    docs: Vec<FoundDocument<T>>,
}

#[derive(Deserialize)]
struct FoundDocument<T> {
    #[serde(rename = "_source")]
    source: Option<T>,
    error: Option<DocumentError>,
}

#[derive(Deserialize)]
struct DocumentError {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    reason: String,
}
