//! The latency of a dequeue with a filter that one message in 10,000 passes; reference: a dequeue without a filter on
//! the same queue. The calls alternate, one at a time. And the time to build an index that a filter first needs, and what
//! other callers notice of it.

use super::plan::QueuePlan;
use super::rounds::fill;
use crate::load::{Draft, LoadClient, Traffic, pair, priority};
use crate::ours::{OurClient, Ours, simple_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{CallStats, Sample, Samples};
use anyhow::{Context, Result, ensure};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tallystone_client::Client;
use tallystone_proto::queue::v1::{Filter, FilterIndex, QueueConfig};
use tonic::Code;
use tonic_types::StatusExt;

const QUEUE: &str = "bench";
/// The metadata key whose index is declared with the queue.
const DECLARED: &str = "region";
/// The key without a declared index.
const UNDECLARED: &str = "carrier";
const UNDECLARED_VALUES: u64 = 16;
/// How often to repeat the call while an index is being built, and for how long.
const BUILD_POLL: Duration = Duration::from_millis(10);
const BUILD_LIMIT: Duration = Duration::from_secs(300);
/// The goal for the time to build an index over a million messages, in ms.
const BUILD_MS_MAX: f64 = 5_000.0;

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let sizes = &plan.sizes;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    let index = FilterIndex { keys: vec![DECLARED.to_owned()] };
    ours.create_queue(QUEUE, QueueConfig { indexes: vec![index], ..simple_queue() }).await?;
    let values = sizes.filter_values;
    // Every value is equally frequent: the n-th message has value n modulo the number of values.
    let traffic = Traffic::new(move |number, rng| (priority(rng), metadata(number % values, rng)));
    fill(&ours, QUEUE, sizes.filter_pending, &traffic).await?;

    let [mut filtered, mut unfiltered] = [const { Samples::new() }; 2];
    let mut clients = ours.clients(QUEUE, 2, 2).await?;
    let (mut caller, mut client) = (clients.remove(1), clients.remove(0));
    for run in 0..plan.runs {
        let work = sample(&mut client, &traffic, u64::from(run), values, sizes.filter_calls);
        let (with, without) = plan.profiled(rig, "ours, filtered and unfiltered alternately", work).await?;
        filtered.push(with);
        unfiltered.push(without);
    }
    let build_ms = build(&mut client, pair(UNDECLARED, 0)).await?.as_secs_f64() * 1e3;
    declare(&ours).await?;
    // The set of both keys has a separate index.
    let both = [pair(DECLARED, 0), pair(UNDECLARED, 0)].into_iter().flatten().collect();
    let meanwhile = calls_during(build(&mut client, both), &mut caller, &traffic, values).await?;
    ours.stop().await?;
    let pending = grouped(sizes.filter_pending);
    let what = format!("dequeue by a filter that 1 in {} of {pending} pending passes: p50", grouped(values));
    let reference = Reference::Measured("ours without a filter", &unfiltered);
    let row = Row::new(what, "ms", &filtered, reference, Goal::RatioAtMost(2.0));
    let what = format!("first dequeue by an undeclared key: index of {pending} built");
    let build = Row::once(what, "ms", build_ms, Goal::AtMost(BUILD_MS_MAX));
    let what = "dequeue without a filter while an index is built: p99";
    let mut waited = Samples::new();
    waited.push(meanwhile.sample(meanwhile.quantile_ms(0.99).unwrap_or_default()));
    let meanwhile = Row::new(what, "ms", &waited, Reference::None, Goal::None).with("calls", meanwhile.messages);
    Ok(vec![row.with("calls", sizes.filter_calls), build, meanwhile])
}

/// Declares the index that has been built as well: a queue with so many messages has one undeclared index at most.
async fn declare(ours: &Ours) -> Result<()> {
    let indexes = Some([DECLARED, UNDECLARED].map(|key| vec![key.to_owned()]).to_vec());
    let admin = Client::builder(ours.url()).connect().await?;
    admin.update_queue(QUEUE, tallystone_client::QueueConfig { indexes, ..Default::default() }).await?;
    Ok(())
}

fn metadata(value: u64, rng: &mut SmallRng) -> BTreeMap<String, String> {
    let mut metadata = pair(DECLARED, value);
    metadata.append(&mut pair(UNDECLARED, rng.random_range(0..UNDECLARED_VALUES)));
    metadata
}

/// Dequeues alternately with and without the filter. Each message is then completed and replaced, which is not measured.
async fn sample(
    client: &mut OurClient,
    traffic: &Traffic,
    run: u64,
    values: u64,
    calls: u64,
) -> Result<(Sample, Sample)> {
    let mut rng = SmallRng::seed_from_u64(run);
    let mut source = traffic.source(run);
    let mut stats = [CallStats::new(), CallStats::new()];
    for call in 0..2 * calls {
        let mut request = client.request(1);
        let value = rng.random_range(0..values);
        if call % 2 == 0 {
            request.filters = vec![Filter { equals: pair(DECLARED, value) }];
        }
        let began = Instant::now();
        let leases = client.lease(request).await?;
        stats[call as usize % 2].note(1, began.elapsed());
        ensure!(leases.len() == 1, "{} messages for a limit of one", leases.len());
        client.complete(leases).await?;
        // Replaced by one with the same value after a filtered dequeue, with any value after another: the counts stay
        // about even.
        let draft = source.draft(value);
        client.enqueue(vec![Draft { metadata: metadata(value, &mut rng), ..draft }]).await?;
    }
    Ok(stats.each_ref().map(|stats| stats.sample(stats.quantile_ms(0.5).unwrap_or_default())).into())
}

/// The dequeues of one caller while an index is built.
async fn calls_during(
    build: impl Future<Output = Result<Duration>>,
    caller: &mut OurClient,
    traffic: &Traffic,
    values: u64,
) -> Result<CallStats> {
    let mut stats = CallStats::new();
    let mut rng = SmallRng::seed_from_u64(values);
    let mut source = traffic.source(values);
    let calls = async {
        loop {
            let began = Instant::now();
            let leases = caller.lease(caller.request(1)).await?;
            stats.note(1, began.elapsed());
            ensure!(leases.len() == 1, "{} messages for a limit of one", leases.len());
            caller.complete(leases).await?;
            let value = rng.random_range(0..values);
            let draft = source.draft(value);
            caller.enqueue(vec![Draft { metadata: metadata(value, &mut rng), ..draft }]).await?;
        }
    };
    let ended: Result<()> = tokio::select! {
        built = build => built.map(drop),
        failed = calls => failed,
    };
    ended.map(|()| stats)
}

/// From the first dequeue by this filter to the first that is answered.
async fn build(client: &mut OurClient, equals: BTreeMap<String, String>) -> Result<Duration> {
    let began = Instant::now();
    while began.elapsed() < BUILD_LIMIT {
        let mut request = client.request(1);
        request.filters = vec![Filter { equals: equals.clone() }];
        match client.lease(request).await {
            Ok(_) => return Ok(began.elapsed()),
            Err(status) if is_building(&status) => tokio::time::sleep(BUILD_POLL).await,
            Err(status) => return Err(status).context("first dequeue by an undeclared key"),
        }
    }
    anyhow::bail!("the index is not built after {} s", BUILD_LIMIT.as_secs());
}

fn is_building(status: &tonic::Status) -> bool {
    let reason = status.get_details_error_info().map(|info| info.reason);
    status.code() == Code::FailedPrecondition && reason.as_deref() == Some("INDEX_BUILDING")
}
