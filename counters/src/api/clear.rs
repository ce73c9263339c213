//! ClearCount and its batch (N2): an event in the order of the adds.

use super::status::{of_call, of_item};
use super::wire::{batch, change_request, merged, namespace, sorted};
use crate::log::{Appended, Change};
use crate::service::CounterService;
use tallystone_proto::counter::v1 as wire;
use tonic::Status;

pub(super) async fn one(
    counters: &CounterService,
    request: wire::ClearCountRequest,
) -> Result<wire::ClearCountResponse, Status> {
    let name = namespace(request.namespace)?;
    let change = change_request(request.counter, Change::Clear, request.token).map_err(of_call)?;
    let appended = counters.append(&name, vec![change]).await.map_err(of_call)?.remove(0).map_err(of_call)?;
    Ok(cleared(appended))
}

pub(super) async fn many(
    counters: &CounterService,
    request: wire::ClearCountsRequest,
) -> Result<wire::ClearCountsResponse, Status> {
    let name = namespace(request.namespace)?;
    batch("clears", request.clears.len())?;
    let (changes, verdicts) =
        sorted(request.clears.into_iter().map(|clear| change_request(clear.counter, Change::Clear, clear.token)));
    let appended = counters.append(&name, changes).await.map_err(of_call)?;
    let results = merged(verdicts, appended).enumerate().map(|(index, result)| wire::ClearCountResult {
        outcome: Some(result.map(cleared).map_err(|refusal| of_item("clears", index, &refusal)).into()),
    });
    Ok(wire::ClearCountsResponse { results: results.collect() })
}

fn cleared(Appended { time_ms, duplicate }: Appended) -> wire::ClearCountResponse {
    wire::ClearCountResponse { event_time_ms: time_ms as i64, duplicate }
}
