//! The archive of events (N15): how fast events move there, how large they are, and how fast they are counted again. First all
//! events are added and rolled up; then the archiver works alone, and after it the recount, one call at a time.

use super::adds::{AddSource, CounterMix, now_ms};
use super::load::add_all;
use super::plan::{CONNECTIONS, CountersPlan, FILL_ACCEPT_LIMIT_MS};
use super::service::{CountersUnderTest, NAMESPACE};
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::{Context, Result, ensure};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_client::{CounterClient, NamespaceConfig, Period};
use tallystone_counters::log::WINDOW_MS;
use tallystone_counters::redis::{ArchivePass, RedisNamespace};
use tallystone_counters::{ArchiveConfig, Change, Checkpoints, CounterName, Events};

/// Adds per call.
const BATCH: usize = 1_000;
const ROLLED_UP_LIMIT: Duration = Duration::from_secs(600);
/// No archiver of the service works during the figure.
const NEVER_MS: u64 = 3_600_000;
/// Counters that are counted again in the second row of that kind: in the order of their events.
const MANY: usize = 100;
/// The largest page of ListEvents.
const PAGE: u32 = 1_000;

/// The samples of each row.
#[derive(Default)]
struct Measured {
    archived: Samples,
    bytes: Samples,
    one: Samples,
    many: Samples,
    pages: Samples,
    audits: Samples,
    sums: Samples,
    /// Events of the most frequent counter, and of the many.
    events: [u64; 2],
    passes: Vec<u64>,
}

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let counters = CounterMix::zipf(plan.sizes.batch_counters);
    let mut all = Measured::default();
    for run in 0..plan.runs {
        sample(plan, rig, &counters, run, &mut all).await?;
    }
    let events = plan.sizes.archive_events;
    let of = format!("{} events of {} counters", grouped(events), grouped(counters.names().len() as u64));
    let [one, many] = all.events.map(grouped);
    let row = |what: String, unit: &'static str, samples: &Samples, goal: Goal| {
        Row::new(what, unit, samples, Reference::None, goal)
    };
    let million = Goal::AtLeast(1_000_000.0);
    Ok(vec![
        row(format!("archived, {of} that are rolled up"), "events/s", &all.archived, Goal::AtLeast(200_000.0))
            .with("passes", all.passes),
        row(format!("objects of the archive per event, {of}"), "B", &all.bytes, Goal::AtMost(25.0)),
        row(
            format!("counted again from the archive, the most frequent counter ({one} events)"),
            "events/s",
            &all.one,
            million,
        ),
        row(
            format!("the same, the {MANY} most frequent counters ({many} events), one by one"),
            "events/s",
            &all.many,
            Goal::None,
        ),
        row(
            format!("the most frequent counter by ListEvents, pages of {}", grouped(PAGE.into())),
            "events/s",
            &all.pages,
            Goal::None,
        ),
        row("the most frequent counter by AuditCounter".to_owned(), "events/s", &all.audits, Goal::None),
        row("the most frequent counter by hour, GetSums".to_owned(), "events/s", &all.sums, Goal::None),
    ])
}

async fn sample(
    plan: &CountersPlan,
    rig: &Rig,
    counters: &Arc<CounterMix>,
    run: u32,
    all: &mut Measured,
) -> Result<()> {
    rig.flush().await?;
    let (dir, events) = (tempfile::tempdir()?, plan.sizes.archive_events);
    let url = Some(format!("file://{}/archive", dir.path().display()));
    let archive = ArchiveConfig { url, interval_ms: NEVER_MS, keep_ms: 0, ..ArchiveConfig::default() };
    let archive = archive.open()?.context("it has an address")?;
    let accept_limit_ms = Some(FILL_ACCEPT_LIMIT_MS);
    let coalesce_ms = Some(plan.sizes.near_coalesce_ms);
    let config = NamespaceConfig { archived: Some(true), accept_limit_ms, coalesce_ms, ..NamespaceConfig::default() };
    let service = CountersUnderTest::start_with_archive(plan, rig, config, archive).await?;
    let callers = service.callers(CONNECTIONS).await?;
    let seed = |caller| u64::from(run) * CONNECTIONS as u64 + caller;
    add_all(callers, events, BATCH, |caller| AddSource::new(counters, seed(caller))).await?;
    service.all_rolled_up(ROLLED_UP_LIMIT).await?;
    let store = service.store().await?;

    let began = Instant::now();
    let (passes, archived) = plan.profiled(rig, "ours, the archiver", archive_all(&store)).await?;
    note(&mut all.archived, archived.events, began);
    ensure!(archived.events == events, "{} of {events} events are archived", archived.events);
    all.bytes.push(Sample { value: archived.bytes as f64 / events as f64, ..Sample::default() });
    all.passes.push(passes);

    for (which, count) in [1, MANY].into_iter().enumerate() {
        let (began, names) = (Instant::now(), &counters.names()[..count]);
        all.events[which] = plan.profiled(rig, "ours, counted again", recounted(&store, names)).await?;
        note([&mut all.one, &mut all.many][which], all.events[which], began);
    }
    let began = Instant::now();
    let listed = plan.profiled(rig, "ours, ListEvents", listed(&service.url(), &counters.names()[0])).await?;
    note(&mut all.pages, listed, began);
    let began = Instant::now();
    let audited = plan.profiled(rig, "ours, AuditCounter", audited(&service.url(), &counters.names()[0])).await?;
    ensure!(audited == listed, "{audited} of {listed} events are in the audit");
    note(&mut all.audits, audited, began);
    let began = Instant::now();
    let summed = plan.profiled(rig, "ours, GetSums", summed(&service.url(), &counters.names()[0])).await?;
    ensure!(summed == listed, "{summed} of {listed} events are in the sums");
    note(&mut all.sums, summed, began);
    service.stop().await
}

fn note(samples: &mut Samples, events: u64, began: Instant) {
    samples.push(Sample { value: events as f64 / began.elapsed().as_secs_f64(), ..Sample::default() });
}

/// Does what an archiver does with a job. Returns the number of passes, and what they did together.
async fn archive_all(store: &RedisNamespace) -> Result<(u64, ArchivePass)> {
    let (mut passes, mut all) = (0, ArchivePass::default());
    loop {
        let pass = store.archive_pass().await?;
        passes += 1;
        all.events += pass.events;
        all.bytes += pass.bytes;
        if !pass.is_behind {
            return Ok((passes, all));
        }
    }
}

/// Counts these counters again, one by one, as ListEvents reads them. Returns the number of their events.
async fn recounted(store: &RedisNamespace, names: &[String]) -> Result<u64> {
    let mut events = 0;
    for name in names {
        let counter = CounterName::parse(name)?;
        let (mut next, end, mut sum) = (0, now_ms() / WINDOW_MS + 1, 0);
        while next < end {
            let scan = store.scan(&counter, next..end, usize::MAX).await?;
            next = scan.next_window;
            events += scan.events.len() as u64;
            let deltas = scan.events.iter().map(|event| match event.change {
                Change::Add(delta) => delta,
                Change::Clear => 0,
            });
            sum += deltas.sum::<i64>();
        }
        let counts = store.read(std::slice::from_ref(&counter)).await?;
        let count = counts.first().context("one counter was read")?.count;
        ensure!(sum == count, "{name}: its events add up to {sum}, its count is {count}");
    }
    Ok(events)
}

/// Audits a counter as `tallystone counter audit` does. Returns the number of its events.
async fn audited(url: &str, name: &str) -> Result<u64> {
    let audit = CounterClient::connect(url).await?.audit(NAMESPACE, name).await?;
    ensure!(audit.agrees, "{name}: {audit:?}");
    Ok(audit.events)
}

/// Lists the events of a counter. Returns their number.
async fn listed(url: &str, name: &str) -> Result<u64> {
    let (client, mut events, mut page_token) = (CounterClient::connect(url).await?, 0, String::new());
    loop {
        let page = client.list_events(NAMESPACE, name, 1, 0, PAGE, &page_token).await?;
        events += page.items.len() as u64;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok(events);
        }
    }
}

/// Sums the adds of a counter by hour. Returns their number.
async fn summed(url: &str, name: &str) -> Result<u64> {
    let (client, mut adds, mut page_token) = (CounterClient::connect(url).await?, 0, String::new());
    loop {
        let found = client.sums(NAMESPACE, name, Period::Hour, 1, 0, &page_token).await?;
        adds += found.page.items.iter().map(|sum| sum.adds).sum::<u64>();
        page_token = found.page.next_page_token;
        if page_token.is_empty() {
            return Ok(adds);
        }
    }
}
