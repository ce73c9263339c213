//! rpc ExtendLease (Q10, Q11).

use super::batch::Parsed;
use super::{status, wire};
use crate::engine::Engine;
use prost::Message as _;
use tallystone_model::Store;
use tallystone_model::limits::REQUEST_ID_BYTES_MAX;
use tallystone_proto::queue::v1 as pb;
use tonic::Status;

pub(super) async fn handle<S: Store>(
    engine: &Engine<S>,
    request: pb::ExtendLeaseRequest,
) -> Result<pb::ExtendLeaseResponse, Status> {
    let bytes = request.encoded_len();
    let queue = wire::queue(&request.queue)?;
    let request_id = wire::text("request_id", request.request_id, REQUEST_ID_BYTES_MAX).map_err(status::of_call)?;
    let ids: Vec<String> = request.extensions.iter().map(|extension| extension.id.clone()).collect();
    let parse = |extension| {
        let extension = wire::lease_extension(extension, &request_id)?;
        engine.context.tenants.check_lease(&queue, extension.lease_ms)?;
        Ok(extension)
    };
    let extensions = Parsed::new("extensions", request.extensions, parse)?;
    let results = extensions.through(|extensions| engine.extend_lease(&queue, extensions, bytes)).await?;
    let results = std::iter::zip(ids, results).map(|(id, result)| wire::to_extension_result(id, result));
    Ok(pb::ExtendLeaseResponse { results: results.collect() })
}
