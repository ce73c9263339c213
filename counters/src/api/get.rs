//! GetCount and its batch (N11).

use super::status::{of_call, of_item};
use super::wire::{batch, counter_type, merged, namespace, sorted};
use crate::names::CounterName;
use crate::service::{Count, CounterService};
use tallystone_proto::counter::v1 as wire;
use tonic::Status;

pub(super) async fn one(
    counters: &CounterService,
    request: wire::GetCountRequest,
) -> Result<wire::GetCountResponse, Status> {
    let name = namespace(request.namespace)?;
    let counter = CounterName::parse(request.counter).map_err(of_call)?;
    let counts = counters.get(&name, &[counter]).await.map_err(of_call)?;
    Ok(counted(counts[0]))
}

pub(super) async fn many(
    counters: &CounterService,
    request: wire::GetCountsRequest,
) -> Result<wire::GetCountsResponse, Status> {
    let name = namespace(request.namespace)?;
    batch("counters", request.counters.len())?;
    let (names, verdicts) = sorted(request.counters.into_iter().map(CounterName::parse));
    let counts = counters.get(&name, &names).await.map_err(of_call)?;
    let results =
        merged(verdicts, counts.into_iter().map(Ok)).enumerate().map(|(index, result)| wire::GetCountResult {
            outcome: Some(result.map(counted).map_err(|refusal| of_item("counters", index, &refusal)).into()),
        });
    Ok(wire::GetCountsResponse { results: results.collect() })
}

fn counted(Count { count, exact_to_ms, counter_type: promised }: Count) -> wire::GetCountResponse {
    let counter_type = counter_type(promised).into();
    wire::GetCountResponse { count, exact_to_ms: exact_to_ms as i64, counter_type }
}
