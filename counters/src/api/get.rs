//! GetCount and its batch (N11), how fresh the counts must be (N19), and the counts in all regions (N12).

use super::status::{of_call, of_item};
use super::wire::{batch, counter_type, gives_up, merged, namespace, sorted};
use crate::names::{CounterName, NamespaceName};
use crate::namespace::CounterType;
use crate::refusal::Refusal;
use crate::regions::{GlobalCount, RegionCount};
use crate::service::{Count, CounterService, Freshness};
use tallystone_proto::counter::v1 as wire;
use tallystone_serving::Access;
use tokio::time::Instant;
use tonic::{Request, Status};

/// What a read of counters has in common with others.
struct Reading<'a> {
    counters: &'a CounterService,
    access: Access,
    /// When the caller needs its answer.
    answer_by: Option<Instant>,
}

pub(super) async fn one(
    counters: &CounterService,
    request: Request<wire::GetCountRequest>,
) -> Result<wire::GetCountResponse, Status> {
    let reading = Reading::new(counters, &request);
    let wire::GetCountRequest { namespace: name, counter, min_exact_to_ms, wait_ms, global } = request.into_inner();
    let name = namespace(name)?;
    let counter = CounterName::parse(counter).map_err(of_call)?;
    let freshness = reading.freshness(min_exact_to_ms, wait_ms).map_err(of_call)?;
    if global {
        let count = reading.global(&name, &[counter], freshness).await?.remove(0);
        return count.map_err(of_call);
    }
    let count = reading.counts(&name, &[counter], freshness).await?.remove(0);
    Ok(counted(count.map_err(of_call)?))
}

pub(super) async fn many(
    counters: &CounterService,
    request: Request<wire::GetCountsRequest>,
) -> Result<wire::GetCountsResponse, Status> {
    let reading = Reading::new(counters, &request);
    let wire::GetCountsRequest { namespace: name, counters, min_exact_to_ms, wait_ms, global } = request.into_inner();
    let name = namespace(name)?;
    batch("counters", counters.len())?;
    let freshness = reading.freshness(min_exact_to_ms, wait_ms).map_err(of_call)?;
    let (names, verdicts) = sorted(counters.into_iter().map(CounterName::parse));
    let counts = match global {
        true => reading.global(&name, &names, freshness).await?,
        false => {
            let counts = reading.counts(&name, &names, freshness).await?;
            counts.into_iter().map(|count| count.map(counted)).collect()
        }
    };
    let results = merged(verdicts, counts).enumerate().map(|(index, result)| wire::GetCountResult {
        outcome: Some(result.map_err(|refusal| of_item("counters", index, &refusal)).into()),
    });
    Ok(wire::GetCountsResponse { results: results.collect() })
}

impl<'a> Reading<'a> {
    fn new<R>(counters: &'a CounterService, request: &Request<R>) -> Reading<'a> {
        let access = Access::of(request.extensions());
        Reading { counters, access, answer_by: tallystone_proto::answer_by(request.metadata()) }
    }

    /// `None`: the counts may be those of the last rollups.
    fn freshness(&self, min_exact_to_ms: i64, wait_ms: i64) -> Result<Option<Freshness>, Refusal> {
        let bad_time =
            |_| Refusal::invalid("min_exact_to_ms", format!("is {min_exact_to_ms}; must be a time in Unix ms, or 0"));
        let min_exact_to_ms = u64::try_from(min_exact_to_ms).map_err(bad_time)?;
        let until = gives_up(wait_ms, self.answer_by)?;
        Ok((min_exact_to_ms > 0).then_some(Freshness { min_exact_to_ms, until }))
    }

    /// The counts, each or why it is not fresh enough. It ends when the caller loses its right to read.
    async fn counts(
        &self,
        namespace: &NamespaceName,
        counters: &[CounterName],
        freshness: Option<Freshness>,
    ) -> Result<Vec<Result<Count, Refusal>>, Status> {
        let Some(freshness) = freshness else {
            let counts = self.counters.get(namespace, counters).await.map_err(of_call)?;
            return Ok(counts.into_iter().map(Ok).collect());
        };
        tokio::select! {
            counts = self.counters.get_fresh(namespace, counters, freshness) => counts.map_err(of_call),
            withdrawn = self.access.withdrawn() => Err(withdrawn),
        }
    }

    /// The counts in all regions, or why there is none.
    async fn global(
        &self,
        namespace: &NamespaceName,
        counters: &[CounterName],
        freshness: Option<Freshness>,
    ) -> Result<Vec<Result<wire::GetCountResponse, Refusal>>, Status> {
        if freshness.is_some() {
            return Err(of_call(Refusal::invalid("global", "must not be set together with min_exact_to_ms")));
        }
        let (promised, counts) = self.counters.get_global(namespace, counters).await.map_err(of_call)?;
        Ok(counts.into_iter().map(|count| count.map(|count| globally_counted(count, promised))).collect())
    }
}

fn counted(Count { count, exact_to_ms, counter_type: promised }: Count) -> wire::GetCountResponse {
    let counter_type = counter_type(promised).into();
    wire::GetCountResponse { count, exact_to_ms: exact_to_ms as i64, counter_type, regions: Vec::new() }
}

fn globally_counted(global: GlobalCount, promised: CounterType) -> wire::GetCountResponse {
    let part = |RegionCount { region, count, exact_to_ms }: RegionCount| wire::RegionCount {
        region: region.to_string(),
        count,
        exact_to_ms: exact_to_ms as i64,
    };
    wire::GetCountResponse {
        count: global.count,
        exact_to_ms: global.exact_to_ms as i64,
        counter_type: counter_type(promised).into(),
        regions: global.parts.into_iter().map(part).collect(),
    }
}
