//! Repairs of messages whose later events are lost.

use super::bulk::{Action, Bulk, ExternalVersion, Target};
use super::cluster::Cluster;
use super::document::CurrentDocument;
use super::get::get;
use super::names::{DATED_MS, Kind};
use crate::fold;
use crate::store::HistoryError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_proto::history::v1::IndexedMessage;

/// What decides whether a message is replaced, and whether it was.
#[derive(Deserialize)]
struct WrittenVersion {
    version: u32,
    #[serde(default)]
    repaired: bool,
}

/// A message with its number in the call, where its document is, and the document's id.
struct Placed<'a> {
    number: usize,
    message: &'a IndexedMessage,
    index: Arc<str>,
    key: String,
}

/// A message that can never be written is not repaired; the others are.
pub(super) async fn repair(cluster: &Cluster, messages: &[IndexedMessage]) -> Result<Vec<bool>, HistoryError> {
    cluster.ensure_templates().await?;
    let mut placed = Vec::with_capacity(messages.len());
    for (number, message) in messages.iter().enumerate() {
        let group = cluster.group_of(&message.queue);
        let enqueued_at_ms = message.enqueued_at_ms as u64;
        // No document has such a time.
        if !DATED_MS.contains(&enqueued_at_ms) {
            continue;
        }
        let place = cluster.places(group, [(Kind::Messages, enqueued_at_ms)].into_iter()).await?;
        let index = place.of(Kind::Messages, enqueued_at_ms)?;
        placed.push(Placed { number, message, index, key: fold::key_of_indexed(message) });
    }
    let mut bulk = Bulk::default();
    let found = written_versions(cluster, &placed).await?;
    for (Placed { number, message, index, key }, found) in placed.iter().zip(found) {
        // A message that is not here any more is past its retention. The server checks the version again when it writes.
        if found.is_some_and(|found| found.version < message.version) {
            let target = Target { index, id: key, version: ExternalVersion::above(message.version.into()) };
            bulk.push(*number, &Action::Index(target), Some(&CurrentDocument::repaired(message)));
        }
    }
    for refused in cluster.write(bulk.send(&cluster.client, &[])).await? {
        let IndexedMessage { queue, id, .. } = &messages[refused.number];
        tracing::warn!(
            queue,
            id,
            why = refused.why,
            "the repair of a message is refused: history keeps its old version"
        );
    }
    let mut repaired = vec![false; messages.len()];
    for (Placed { number, message, .. }, found) in placed.iter().zip(written_versions(cluster, &placed).await?) {
        repaired[*number] = found.is_some_and(|found| found.repaired && found.version == message.version);
    }
    Ok(repaired)
}

/// The documents as they are now, index by index.
async fn written_versions(
    cluster: &Cluster,
    placed: &[Placed<'_>],
) -> Result<Vec<Option<WrittenVersion>>, HistoryError> {
    let mut by_index: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, placed) in placed.iter().enumerate() {
        by_index.entry(&placed.index).or_default().push(number);
    }
    let mut versions: BTreeMap<usize, Option<WrittenVersion>> = BTreeMap::new();
    for (index, numbers) in by_index {
        let keys: Vec<&str> = numbers.iter().map(|number| placed[*number].key.as_str()).collect();
        versions.extend(numbers.into_iter().zip(get(&cluster.client, index, &keys).await?));
    }
    Ok(versions.into_values().collect())
}
