//! rpc IndexedDepth (Q20).

use super::{status, watermark, wire};
use crate::store::{DepthQuery, HistoryStore};
use tallystone_proto::history::v1 as pb;
use tonic::Status;

pub(super) async fn handle(
    store: &impl HistoryStore,
    request: pb::IndexedDepthRequest,
) -> Result<pb::IndexedDepthResponse, Status> {
    let query = DepthQuery { queue: wire::queue(&request.queue)?, metadata: wire::metadata(request.metadata)? };
    let reached = watermark::reached(store).await?;
    let depth = store.depth(&query).await.map_err(status::of_store)?;
    let [invisible, pending, running, completed, canceled, errored] = depth;
    let watermark = Some(reached.watermark());
    Ok(pb::IndexedDepthResponse { invisible, pending, running, completed, canceled, errored, watermark })
}
