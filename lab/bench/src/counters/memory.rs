//! Redis memory, as growth of used_memory: per event that is not rolled up, including its share of the counter's pending
//! state; and per counter that is rolled up and has nothing pending. Events stay for `delete_after_ms` in any case, so the
//! figure of an idle counter excludes them.

use super::adds::{AddSource, CounterMix};
use super::latency::fill;
use super::load::Adder;
use super::plan::{BATCH, CONNECTIONS, CountersPlan};
use super::service::{CountersUnderTest, Rollups};
use crate::pace::Pace;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::Result;
use std::ops::RangeInclusive;
use tallystone_client::NamespaceConfig;

/// Lengths in hex digits: part of a UUID, a UUID, an order id. Records keep hex digits in half the bytes.
const TOKEN_BYTES: RangeInclusive<usize> = 16..=32;
/// The keys of the events of all shards and buckets.
const EVENTS: &str = "tc:*:events:*";

/// One sample is enough: bytes do not vary as times do.
pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    Ok(vec![per_event(plan, rig).await?, per_counter(plan, rig).await?])
}

async fn per_event(plan: &CountersPlan, rig: &Rig) -> Result<Row> {
    rig.flush().await?;
    let counters = CounterMix::zipf(plan.sizes.counters);
    let service = CountersUnderTest::start(plan, rig, NamespaceConfig::default(), Rollups::Without).await?;
    let callers = service.callers(CONNECTIONS).await?;
    tokio::time::sleep(plan.sizes.settle).await;
    let before = used(rig).await?;
    let mut source = AddSource::new(&counters, 0).with_token_bytes(TOKEN_BYTES);
    let batches = plan.sizes.memory_events.div_ceil(BATCH as u64);
    let pace = Pace::of(batches, plan.sizes.per_s as f64 / BATCH as f64);
    let load = pace.run(move |number| {
        let mut caller = callers[number as usize % callers.len()].clone();
        let adds = source.adds(BATCH);
        async move { caller.add(adds).await }
    });
    plan.profiled(rig, "ours, events", load).await?;
    tokio::time::sleep(plan.sizes.settle).await;
    let after = used(rig).await?;
    let records = after - without_events(rig).await?;
    service.stop().await?;

    let events = (batches * BATCH as u64) as f64;
    let rate = grouped(plan.sizes.per_s);
    let what = format!(
        "Redis memory per event that is not rolled up, {} at {rate}/s, tokens of {} to {} hex digits",
        grouped(events as u64),
        TOKEN_BYTES.start(),
        TOKEN_BYTES.end()
    );
    let row = row(what, (after - before) / events, 60.0);
    Ok(row
        .with("bytes_of_that_records", (records / events * 10.0).round() / 10.0)
        .with("counters", plan.sizes.counters))
}

async fn per_counter(plan: &CountersPlan, rig: &Rig) -> Result<Row> {
    rig.flush().await?;
    let counters = CounterMix::zipf(plan.sizes.counters);
    let config = plan.sizes.namespace(plan.sizes.near_coalesce_ms);
    let service = CountersUnderTest::start(plan, rig, config, Rollups::by_worker()).await?;
    tokio::time::sleep(plan.sizes.settle).await;
    let before = used(rig).await?;
    plan.profiled(rig, "ours, rollup of each counter", fill(&service, &counters)).await?;
    service.stop().await?;
    tokio::time::sleep(plan.sizes.settle).await;
    // The queue's outbox is bounded, whatever is counted.
    let (outbox, _) = rig.streams().await?;
    let after = without_events(rig).await? - outbox as f64;

    let count = counters.names().len();
    let name_bytes = counters.names()[0].len();
    let what = format!("Redis memory per idle counter of {}, names of {name_bytes} bytes", grouped(count as u64));
    Ok(row(what, (after - before) / count as f64, 200.0).with("outbox_bytes", outbox))
}

fn row(what: String, bytes: f64, goal: f64) -> Row {
    let mut samples = Samples::new();
    samples.push(Sample { value: bytes, ..Sample::default() });
    Row::new(what, "B", &samples, Reference::None, Goal::AtMost(goal))
}

async fn used(rig: &Rig) -> Result<f64> {
    rig.info_number("memory", "used_memory").await
}

/// Deletes all events directly in Redis and returns the memory used then.
async fn without_events(rig: &Rig) -> Result<f64> {
    let mut connection = rig.connect().await?;
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg(EVENTS).query_async(&mut connection).await?;
    for key in keys {
        redis::cmd("DEL").arg(key).query_async::<()>(&mut connection).await?;
    }
    used(rig).await
}
