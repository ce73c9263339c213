//! Repairs of messages whose later events are lost.

use super::bulk::{Action, Bulk, ExternalVersion, Target};
use super::cluster::Cluster;
use super::document::CurrentDocument;
use super::get::get;
use crate::fold;
use crate::store::HistoryError;
use serde::Deserialize;
use tallystone_proto::history::v1::IndexedMessage;

/// What decides whether a message is replaced, and whether it was.
#[derive(Deserialize)]
struct WrittenVersion {
    version: u32,
    #[serde(default)]
    repaired: bool,
}

pub(super) async fn repair(cluster: &Cluster, messages: &[IndexedMessage]) -> Result<Vec<bool>, HistoryError> {
    let keys: Vec<String> = messages.iter().map(fold::key_of_indexed).collect();
    let mut bulk = Bulk::default();
    let found = written_versions(cluster, &keys).await?;
    for (number, ((message, key), found)) in messages.iter().zip(&keys).zip(found).enumerate() {
        // A message that is not here any more is past its retention. The server checks the version again when it writes.
        if found.is_some_and(|found| found.version < message.version) {
            let version = ExternalVersion::above(message.version.into());
            let target = Target { index: &cluster.names.current, id: key, version };
            bulk.push(number, &Action::Index(target), Some(&CurrentDocument::repaired(message)));
        }
    }
    if let Some(refused) = cluster.write(bulk.send(&cluster.client, &[])).await?.first() {
        return Err(HistoryError::Failed(refused.why.clone()));
    }
    let found = written_versions(cluster, &keys).await?;
    let is_written = |(message, found): (&IndexedMessage, Option<WrittenVersion>)| {
        found.is_some_and(|found| found.repaired && found.version == message.version)
    };
    Ok(messages.iter().zip(found).map(is_written).collect())
}

async fn written_versions(cluster: &Cluster, keys: &[String]) -> Result<Vec<Option<WrittenVersion>>, HistoryError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    get(&cluster.client, &cluster.names.current, keys).await
}
