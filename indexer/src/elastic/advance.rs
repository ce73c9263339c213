//! Watermarks: written per source after a refresh, so that everything before a watermark can be found. Each group with
//! its own topic has its own sources.

use super::cluster::Cluster;
use super::get::get;
use super::group::IndexGroup;
use crate::store::{HistoryError, Source};
use elasticsearch::http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::ops::Range;

/// The document of one source.
#[derive(Serialize, Deserialize)]
struct SourceProgress {
    source: u32,
    of: u32,
    up_to_ms: u64,
}

pub(super) async fn advance(
    cluster: &Cluster,
    group: &IndexGroup,
    source: Source,
    up_to_ms: u64,
) -> Result<(), HistoryError> {
    if source.number >= source.of || i64::try_from(up_to_ms).is_err() {
        return Err(HistoryError::Failed(format!("{source:?} cannot have the watermark {up_to_ms}")));
    }
    let advance = async {
        cluster.refreshes.refreshed(&cluster.client, &cluster.searched()).await?;
        write(cluster, group, source, up_to_ms).await
    };
    cluster.write(advance).await
}

/// The watermark is the document's external version, so a late write of an older one changes nothing.
async fn write(cluster: &Cluster, group: &IndexGroup, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
    let path = format!("{}/_doc/{}", group.names.progress, source.number);
    let version = up_to_ms.to_string();
    let query = [("version", version.as_str()), ("version_type", "external_gte")];
    let progress = json!(SourceProgress { source: source.number, of: source.of, up_to_ms });
    let reply = cluster.client.send(Method::Put, &path, &query, Some(&progress)).await?;
    if reply.status == 409 { Ok(()) } else { reply.done() }
}

/// The lowest watermark of all topics: the events of a queue may be in the topic that its group had before.
pub(super) async fn watermark(cluster: &Cluster) -> Result<Option<u64>, HistoryError> {
    let mut lowest = u64::MAX;
    for group in cluster.groups.iter().filter(|group| group.has_topic) {
        let Some(up_to_ms) = of_topic(cluster, group).await? else { return Ok(None) };
        lowest = lowest.min(up_to_ms);
    }
    Ok(Some(lowest))
}

async fn of_topic(cluster: &Cluster, group: &IndexGroup) -> Result<Option<u64>, HistoryError> {
    let mut found: Vec<SourceProgress> = Vec::new();
    let mut of = 1;
    // Each source's document has the number of sources. A topic may have grown, so the largest number counts.
    while found.len() < of {
        let Some(more) = read(cluster, group, found.len()..of).await? else { return Ok(None) };
        of = more.iter().map(|progress| progress.of as usize).fold(of, usize::max);
        found.extend(more);
    }
    Ok(found.iter().map(|progress| progress.up_to_ms).min())
}

/// The documents of these sources; `None`: at least one is missing.
async fn read(
    cluster: &Cluster,
    group: &IndexGroup,
    sources: Range<usize>,
) -> Result<Option<Vec<SourceProgress>>, HistoryError> {
    let ids: Vec<String> = sources.map(|number| number.to_string()).collect();
    let found = get(&cluster.client, &group.names.progress, &ids).await?;
    Ok(found.into_iter().collect())
}
