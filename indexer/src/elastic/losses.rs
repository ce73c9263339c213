//! Losses: one document per shard that has one. Its external version is the time up to which transitions were lost, so an
//! earlier loss changes nothing.

use super::bulk::{Action, Bulk, ExternalVersion, Target};
use super::cluster::Cluster;
use super::filter::Filter;
use super::response::SearchResponse;
use crate::store::{HistoryError, Queues};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tallystone_model::{Loss, QueueName, Shard};

/// Losses in one response.
const PAGE: usize = 1_000;

/// The loss of one shard.
#[derive(Serialize, Deserialize)]
struct LossDocument {
    queue: String,
    shard: u16,
    lost_to_ms: u64,
}

pub(super) async fn record(cluster: &Cluster, losses: &[Loss]) -> Result<(), HistoryError> {
    let mut bulk = Bulk::default();
    for (number, loss) in losses.iter().enumerate() {
        let (queue, shard) = (loss.shard.queue.to_string(), loss.shard.number);
        let document = LossDocument { queue, shard, lost_to_ms: loss.lost_to_ms };
        let (key, version) = (key(&loss.shard), ExternalVersion::of(loss.lost_to_ms));
        let target = Target { index: &cluster.shared().losses, id: &key, version };
        bulk.push(number, &Action::Index(target), Some(&document));
    }
    write(cluster, bulk, &[]).await
}

/// Removes the losses, unless there is a later one.
pub(super) async fn settle(cluster: &Cluster, losses: &[Loss]) -> Result<(), HistoryError> {
    let mut bulk = Bulk::default();
    for (number, loss) in losses.iter().enumerate() {
        let (key, version) = (key(&loss.shard), ExternalVersion::of(loss.lost_to_ms));
        bulk.push(number, &Action::Delete(Target { index: &cluster.shared().losses, id: &key, version }), None::<&()>);
    }
    // With the refresh, the caller's next query does not show them any more.
    write(cluster, bulk, &[("refresh", "true")]).await
}

async fn write(cluster: &Cluster, bulk: Bulk, query: &[(&str, &str)]) -> Result<(), HistoryError> {
    match cluster.write(bulk.send(&cluster.client, query)).await?.first() {
        None => Ok(()),
        Some(refused) => Err(HistoryError::Failed(refused.why.clone())),
    }
}

pub(super) async fn losses(cluster: &Cluster, queues: &Queues) -> Result<Vec<Loss>, HistoryError> {
    let mut losses: Vec<Loss> = Vec::new();
    loop {
        let mut body = json!({
            "size": PAGE,
            "track_total_hits": false,
            "query": Filter::default().queues(queues).query(),
            "sort": [{ "queue": "asc" }, { "shard": "asc" }],
        });
        if let Some(last) = losses.last() {
            body["search_after"] = json!([last.shard.queue.as_str(), last.shard.number]);
        }
        let found: SearchResponse<LossDocument> = cluster.client.search(&cluster.shared().losses, &body).await?;
        let is_full = found.len() == PAGE;
        for LossDocument { queue, shard, lost_to_ms } in found.into_sources() {
            let queue = QueueName::parse("queue", &queue).map_err(|error| HistoryError::Failed(error.to_string()))?;
            losses.push(Loss { shard: Shard { queue, number: shard }, lost_to_ms });
        }
        if !is_full {
            return Ok(losses);
        }
    }
}

fn key(shard: &Shard) -> String {
    format!("{}/{}", shard.queue, shard.number)
}
