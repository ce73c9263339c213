//! AddCount, AddAndGetCount and their batches (N2, N3).

use super::status::{of_call, of_item};
use super::wire::{batch, change_request, merged, namespace, sorted};
use crate::log::{Appended, Bounds, Change, Labels};
use crate::names::CounterName;
use crate::refusal::Refusal;
use crate::service::{ChangeRequest, Count, CounterService};
use tallystone_model::Applied;
use tallystone_proto::counter::v1 as wire;
use tonic::Status;

pub(super) async fn one(
    counters: &CounterService,
    mut request: wire::AddCountRequest,
) -> Result<wire::AddCountResponse, Status> {
    let name = namespace(std::mem::take(&mut request.namespace))?;
    let change = add(item(request)).map_err(of_call)?;
    let appended = counters.append(&name, vec![change]).await.map_err(of_call)?.remove(0).map_err(of_call)?;
    Ok(added(appended))
}

pub(super) async fn one_and_get(
    counters: &CounterService,
    mut request: wire::AddCountRequest,
) -> Result<wire::AddAndGetCountResponse, Status> {
    let name = namespace(std::mem::take(&mut request.namespace))?;
    let change = add(item(request)).map_err(of_call)?;
    let counter = [change.counter.clone()];
    let appended = counters.append(&name, vec![change]).await.map_err(of_call)?.remove(0).map_err(of_call)?;
    let count = counters.get(&name, &counter).await.map_err(|refusal| of_call(after_add(refusal)))?;
    Ok(added_and_got(appended, count[0]))
}

pub(super) async fn many(
    counters: &CounterService,
    request: wire::AddCountsRequest,
) -> Result<wire::AddCountsResponse, Status> {
    let name = namespace(request.namespace)?;
    batch("adds", request.adds.len())?;
    let (changes, verdicts) = sorted(adds(request.adds));
    let appended = counters.append(&name, changes).await.map_err(of_call)?;
    let results = merged(verdicts, appended).enumerate().map(|(index, result)| wire::AddCountResult {
        outcome: Some(result.map(added).map_err(|refusal| of_item("adds", index, &refusal)).into()),
    });
    Ok(wire::AddCountsResponse { results: results.collect() })
}

pub(super) async fn many_and_get(
    counters: &CounterService,
    request: wire::AddCountsRequest,
) -> Result<wire::AddAndGetCountsResponse, Status> {
    let name = namespace(request.namespace)?;
    batch("adds", request.adds.len())?;
    let (changes, verdicts) = sorted(adds(request.adds));
    let names: Vec<CounterName> = changes.iter().map(|change| change.counter.clone()).collect();
    let appended = counters.append(&name, changes).await.map_err(of_call)?;
    let counts = counters.get(&name, &names).await.map_err(|refusal| of_call(after_add(refusal)))?;
    let answers = appended.into_iter().zip(counts).map(|(appended, count)| appended.map(|appended| (appended, count)));
    let results = merged(verdicts, answers).enumerate().map(|(index, result)| {
        let result = result.map(|(appended, count)| added_and_got(appended, count));
        wire::AddAndGetCountResult { outcome: Some(result.map_err(|refusal| of_item("adds", index, &refusal)).into()) }
    });
    Ok(wire::AddAndGetCountsResponse { results: results.collect() })
}

fn adds(adds: Vec<wire::AddCount>) -> impl Iterator<Item = Result<ChangeRequest, Refusal>> {
    adds.into_iter().map(add)
}

/// The add of a request of one.
fn item(request: wire::AddCountRequest) -> wire::AddCount {
    let wire::AddCountRequest { namespace: _, counter, delta, token, min, max, source, event_item_key } = request;
    wire::AddCount { counter, delta, token, min, max, source, event_item_key }
}

fn add(add: wire::AddCount) -> Result<ChangeRequest, Refusal> {
    let wire::AddCount { counter, delta, token, min, max, source, event_item_key } = add;
    if let (Some(min), Some(max)) = (min, max)
        && min > max
    {
        return Err(Refusal::invalid("min", format!("is {min}, above max ({max})")));
    }
    let change = change_request(counter, Change::Add(delta), token)?;
    Ok(ChangeRequest { bounds: Bounds { min, max }, labels: Labels::parse(source, event_item_key)?, ..change })
}

/// The add has been made: whatever keeps its count from being read must not say that nothing has changed.
fn after_add(refusal: Refusal) -> Refusal {
    match refusal {
        // "Call again" would count again without a token.
        Refusal::Stale => Refusal::Unavailable { applied: Applied::Unknown, why: Refusal::Stale.to_string() },
        other => other.after_a_change(),
    }
}

fn added(Appended { time_ms, duplicate }: Appended) -> wire::AddCountResponse {
    wire::AddCountResponse { event_time_ms: time_ms as i64, duplicate }
}

fn added_and_got(Appended { time_ms, duplicate }: Appended, count: Count) -> wire::AddAndGetCountResponse {
    let Count { count, exact_to_ms, .. } = count;
    wire::AddAndGetCountResponse { event_time_ms: time_ms as i64, duplicate, count, exact_to_ms: exact_to_ms as i64 }
}
