//! ListTopCounters (N16).

use super::list::entry;
use super::status::of_call;
use super::wire::{WAIT_MS_MAX, answer_items, gives_up, namespace};
use crate::names::CounterName;
use crate::service::CounterService;
use tallystone_proto::counter::v1 as wire;
use tallystone_serving::Access;
use tonic::{Request, Status};

pub(super) async fn counters(
    counters: &CounterService,
    request: Request<wire::ListTopCountersRequest>,
) -> Result<wire::ListTopCountersResponse, Status> {
    let access = Access::of(request.extensions());
    let answer_by = tallystone_proto::answer_by(request.metadata());
    let wire::ListTopCountersRequest { namespace: name, prefix, limit } = request.into_inner();
    let name = namespace(name)?;
    CounterName::check_prefix("prefix", &prefix).map_err(of_call)?;
    let limit = answer_items(limit).map_err(of_call)?;
    let until = gives_up(WAIT_MS_MAX as i64, answer_by).map_err(of_call)?;
    let top = tokio::select! {
        top = counters.top(&name, &prefix, until) => top.map_err(of_call)?,
        // The caller has lost its right to read.
        withdrawn = access.withdrawn() => return Err(withdrawn),
    };
    Ok(wire::ListTopCountersResponse {
        counters: top.counters.iter().take(limit).cloned().map(entry).collect(),
        read_from_ms: top.read_from_ms as i64,
        read_to_ms: top.read_to_ms as i64,
    })
}
