//! Redis memory per pending message: the growth of used_memory without the payloads and without the outbox. The outbox
//! is bounded however many messages are pending; the row reports it separately.

use super::plan::QueuePlan;
use super::rounds::fill;
use crate::load::Traffic;
use crate::ours::{Ours, exclusive_queue, simple_queue};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use crate::shape::PAYLOAD_BYTES;
use anyhow::Result;
use std::time::Duration;
use tallystone_proto::queue::v1::QueueConfig;

const QUEUE: &str = "bench";
const KEY: &str = "key";
/// Time for Redis to free what calls needed and to finish rehashing.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn measure(plan: &QueuePlan, rig: &Rig) -> Result<Vec<Row>> {
    let keys = plan.sizes.keys;
    let simple = per_message(plan, rig, "simple", simple_queue(), &Traffic::plain(), 250.0).await?;
    let keyed = Traffic::keyed(KEY, keys);
    let exclusive = per_message(plan, rig, "exclusive", exclusive_queue(KEY), &keyed, 330.0).await?;
    Ok(vec![simple, exclusive.with("keys", keys)])
}

/// One sample is enough: bytes do not vary as times do.
async fn per_message(
    plan: &QueuePlan,
    rig: &Rig,
    kind: &str,
    config: QueueConfig,
    traffic: &Traffic,
    goal: f64,
) -> Result<Row> {
    let messages = plan.sizes.memory;
    rig.flush().await?;
    let ours = Ours::start(rig, plan.args.server_threads).await?;
    ours.create_queue(QUEUE, config).await?;
    tokio::time::sleep(SETTLE).await;
    let before = Usage::take(rig).await?;
    fill(&ours, QUEUE, messages, traffic).await?;
    tokio::time::sleep(SETTLE).await;
    let after = Usage::take(rig).await?;
    ours.stop().await?;

    let outbox = after.outbox - before.outbox;
    let beyond_payload = (after.used - before.used - outbox) / messages as f64 - PAYLOAD_BYTES as f64;
    let mut samples = Samples::new();
    samples.push(Sample { value: beyond_payload, ..Sample::default() });
    let what = format!("Redis memory per message beyond its payload, {kind} queue, {} pending", grouped(messages));
    let row = Row::new(what, "B", &samples, Reference::None, Goal::AtMost(goal));
    Ok(row.with("outbox_bytes", outbox).with("outbox_entries", after.outbox_entries).with("id_bytes", 36))
}

struct Usage {
    used: f64,
    outbox: f64,
    outbox_entries: u64,
}

impl Usage {
    async fn take(rig: &Rig) -> Result<Usage> {
        let used = rig.info_number("memory", "used_memory").await?;
        let (outbox, outbox_entries) = rig.streams().await?;
        Ok(Usage { used, outbox: outbox as f64, outbox_entries })
    }
}
