//! AddCount while counters are audited: an audit reads the events of all counters of its time from the same Redis (N12).

use super::adds::{AddSource, CounterMix};
use super::latency::{added, note};
use super::load::add_all;
use super::plan::{CONNECTIONS, CountersPlan, FILL_ACCEPT_LIMIT_MS};
use super::service::{CountersUnderTest, NAMESPACE};
use crate::pace::Pace;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::Samples;
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tallystone_client::{CounterClient, NamespaceConfig};
use tokio_util::task::AbortOnDropHandle;

/// Callers that audit one counter after the other.
const AUDITORS: u64 = 4;
/// The rate is this part of that of `add_latency`, which takes all of a machine: there, whatever else works makes adds late.
const RATE_PART: u64 = 4;
/// Adds per call while the log is filled.
const FILL_BATCH: usize = 1_000;
const ROLLED_UP_LIMIT: Duration = Duration::from_secs(600);

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = CounterMix::zipf(plan.sizes.counters);
    let (mut with, mut without, mut rates) = (Samples::new(), Samples::new(), Vec::new());
    let (audits, per_s) = (Arc::new(AtomicU64::new(0)), plan.sizes.per_s / RATE_PART);
    for run in 0..plan.runs {
        rig.flush().await?;
        let config = NamespaceConfig {
            accept_limit_ms: Some(FILL_ACCEPT_LIMIT_MS),
            coalesce_ms: Some(plan.sizes.near_coalesce_ms),
            ..NamespaceConfig::default()
        };
        let service = CountersUnderTest::start_on_own_threads(plan, rig, config).await?;
        let seed = |caller| u64::from(run) * CONNECTIONS as u64 + caller;
        let callers = service.callers(CONNECTIONS).await?;
        add_all(callers, plan.sizes.audited_events, FILL_BATCH, |caller| AddSource::new(&counters, seed(caller)))
            .await?;
        service.all_rolled_up(ROLLED_UP_LIMIT).await?;
        for (samples, is_audited) in [(&mut without, false), (&mut with, true)] {
            let mut auditors = Vec::new();
            for auditor in 0..if is_audited { AUDITORS } else { 0 } {
                let client = CounterClient::connect(service.url()).await?;
                let source = AddSource::new(&counters, seed(auditor));
                auditors.push(AbortOnDropHandle::new(tokio::spawn(audit(client, source, audits.clone()))));
            }
            // Tokens that the log does not have yet.
            let fresh = seed(0) + u64::from(plan.runs) * CONNECTIONS as u64 + u64::from(is_audited);
            let (callers, source) = (service.callers(CONNECTIONS).await?, AddSource::new(&counters, fresh));
            let calls =
                Pace::lasting(per_s as f64, plan.sizes.latency).after(plan.sizes.warm_up).run(added(callers, source));
            let label = if is_audited { "ours, AddCount and audits" } else { "ours, AddCount" };
            note(plan.profiled(rig, label, calls).await?, samples, &mut rates);
            for auditor in &auditors {
                ensure!(!auditor.is_finished(), "an audit failed");
            }
        }
        service.stop().await?;
    }
    let (per_s, events) = (grouped(per_s), grouped(plan.sizes.audited_events));
    let what = format!("AddCount at {per_s}/s while {AUDITORS} callers audit counters, {events} events in Redis: p99");
    let reference = Reference::Measured("without audits", &without);
    Ok(vec![
        Row::new(what, "ms", &with, reference, Goal::RatioAtMost(1.5))
            .with("rates_reached_per_s", rates)
            .with("audits", audits.load(Ordering::Relaxed)),
    ])
}

/// Audits one counter after the other; ends with the first failure.
async fn audit(client: CounterClient, mut source: AddSource, audits: Arc<AtomicU64>) -> Result<()> {
    loop {
        client.audit(NAMESPACE, &source.counter()).await?;
        audits.fetch_add(1, Ordering::Relaxed);
    }
}
