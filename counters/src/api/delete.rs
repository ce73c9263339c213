//! DeleteCounter (N14).

use super::status::of_call;
use super::wire::{change_request, namespace};
use crate::log::{Appended, Change};
use crate::service::{ChangeRequest, CounterService};
use tallystone_proto::counter::v1 as wire;
use tonic::Status;

pub(super) async fn one(
    counters: &CounterService,
    request: wire::DeleteCounterRequest,
) -> Result<wire::DeleteCounterResponse, Status> {
    let name = namespace(request.namespace)?;
    let change = change_request(request.counter, Change::Clear, request.token).map_err(of_call)?;
    let ChangeRequest { counter, event, .. } = change;
    let Appended { time_ms, duplicate } = counters.delete_counter(&name, &counter, event).await.map_err(of_call)?;
    Ok(wire::DeleteCounterResponse { event_time_ms: time_ms as i64, duplicate })
}
