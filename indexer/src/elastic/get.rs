//! Documents by their names, as they were written last, shown or not.

use super::link::{Link, once_settled, refusal};
use crate::store::HistoryError;
use elasticsearch::http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Each of them; `None`: it is not there, or its index is not.
pub(super) async fn get<T: DeserializeOwned>(
    link: &Link,
    index: &str,
    ids: &[impl AsRef<str>],
) -> Result<Vec<Option<T>>, HistoryError> {
    let ids: Vec<&str> = ids.iter().map(AsRef::as_ref).collect();
    once_settled(|| get_now(link, index, &ids)).await
}

async fn get_now<T: DeserializeOwned>(link: &Link, index: &str, ids: &[&str]) -> Result<Vec<Option<T>>, HistoryError> {
    let query = [("filter_path", "docs._id,docs._source,docs.error.type,docs.error.reason")];
    let reply = link.send(Method::Post, &format!("{index}/_mget"), &query, Some(&json!({ "ids": ids }))).await?;
    let got: Got<T> = reply.read()?;
    let document = |document: Document<T>| match document.error {
        Some(error) if error.kind != "index_not_found_exception" => Err(refusal(503, &error.kind, &error.reason)),
        _ => Ok(document.source),
    };
    got.docs.into_iter().map(document).collect()
}

#[derive(Deserialize)]
struct Got<T> {
    docs: Vec<Document<T>>,
}

#[derive(Deserialize)]
struct Document<T> {
    #[serde(rename = "_source")]
    source: Option<T>,
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    reason: String,
}
