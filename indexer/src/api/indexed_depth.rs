//! rpc IndexedDepth (Q20).

use super::{fields, status, watermark};
use crate::store::{DepthQuery, HistoryStore};
use tallystone_proto::history::v1 as pb;
use tallystone_proto::queue::v1::StateCounts;
use tonic::Status;

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: pb::IndexedDepthRequest,
) -> Result<pb::IndexedDepthResponse, Status> {
    let query = DepthQuery { queue: fields::queue(&request.queue)?, metadata: fields::metadata(request.metadata)? };
    let reached = watermark::reached(store).await?;
    let depth = store.depth(&query).await.map_err(status::of_store)?;
    let [invisible, pending, running, completed, canceled, errored] = depth;
    let counts = Some(StateCounts { invisible, pending, running, completed, canceled, errored });
    Ok(pb::IndexedDepthResponse { counts, watermark: Some(reached.watermark()) })
}
