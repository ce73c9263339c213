//! The counters under overload: the rate, the latency and the memory of AddCounts with ever more callers, and the first add
//! after Redis has stood still. The service is a separate process, as users run it.

use super::adds::{AddSource, ZipfCounters};
use super::callers::{Called, Load, call_until, retry_delay};
use super::plan::CountersPlan;
use super::service::{NAMESPACE, RollupParts, Rollups};
use crate::program::Program;
use crate::report::{Goal, Reference, Row, grouped};
use crate::rig::Rig;
use crate::sample::{Sample, Samples};
use anyhow::{Context, Result, ensure};
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_client::{CounterClient, NamespaceConfig, connector};
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_proto::counter::v1::{AddCount, AddCountRequest, AddCountsRequest};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

/// Adds per call.
const BATCH: usize = 1_000;
/// Callers of the curve; the goals are for the second last.
const CALLERS: [usize; 6] = [1, 8, 64, 256, 1_000, 4_000];
const MANY: usize = 1_000;
/// Different calls: a caller draws one of them each time.
const REQUESTS: usize = 64;
const CONNECTIONS: usize = 16;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const START_LIMIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(50);

/// The service in its own process, on the rig's Redis, with a queue and a rollup worker in this process.
struct Service {
    program: Program,
    rollups: RollupParts,
    url: String,
    idle_mib: f64,
    _dir: TempDir,
}

impl Service {
    async fn start(plan: &CountersPlan, rig: &Rig) -> Result<Service> {
        rig.flush().await?;
        let rollups = RollupParts::start(plan.args.server_threads, rig, Rollups::by_worker()).await?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.to_string();
        let queue_url = rollups.queue_url().context("there is a queue")?;
        let (redis_url, dir) = (rig.url(), tempfile::tempdir()?);
        let arguments = ["counters", "--listen", &free, "--redis-url", &redis_url, "--server", &queue_url];
        let mut program = match &plan.args.counters_program {
            Some(other) => Program::start_other(other, dir.path(), &arguments, &[])?,
            None => Program::start(dir.path(), &arguments, &[])?,
        };
        let (url, give_up_at) = (format!("http://{free}"), Instant::now() + START_LIMIT);
        let client = loop {
            match CounterClient::connect(&url).await {
                Ok(client) => break client,
                Err(error) => ensure!(Instant::now() < give_up_at, "the counters do not start: {error}"),
            }
            tokio::time::sleep(START_POLL).await;
        };
        client.put_namespace(NAMESPACE, NamespaceConfig::default()).await?;
        let idle_mib = program.resident()?.now_mib;
        Ok(Service { program, rollups, url, idle_mib, _dir: dir })
    }

    async fn channels(&self, callers: usize) -> Result<Vec<CountersClient<Channel>>> {
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS.min(callers) {
            let endpoint = Endpoint::from_shared(self.url.clone())?;
            channels.push(CountersClient::new(endpoint.connect_with_connector(connector(CONNECT_TIMEOUT)).await?));
        }
        Ok(channels.iter().cycle().take(callers).cloned().collect())
    }

    /// How much its peak is beyond its memory at the start.
    fn grown_mib(&mut self) -> Result<f64> {
        Ok(self.program.resident()?.peak_mib - self.idle_mib)
    }

    async fn stop(self) -> Result<()> {
        self.program.stop().await?;
        self.rollups.stop().await
    }
}

/// One point of the curve.
struct Point {
    callers: usize,
    called: Called,
    rate: f64,
    grown_mib: f64,
}

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let requests = requests(plan);
    let mut points = Vec::new();
    for callers in CALLERS {
        points.push(point(plan, rig, callers, &requests).await?);
    }
    let best = points.iter().map(|point| point.rate).fold(0.0, f64::max);
    let mut rows: Vec<Row> = points.iter().map(|point| rate_row(point, best)).collect();
    if let Some(many) = points.iter().find(|point| point.callers == MANY) {
        let p99_ms = many.called.stats.quantile_ms(0.99).unwrap_or_default();
        rows.push(row(format!("latency of a call that is not refused, {MANY} callers: p99"), "ms", p99_ms, 2_000.0));
        let what = format!("memory of the service with {MANY} callers, beyond that at its start");
        rows.push(row(what, "MiB", many.grown_mib, 100.0));
    }
    rows.extend(stall(plan, rig, &requests).await?);
    Ok(rows)
}

/// Calls with adds without tokens, which may be sent again and again.
fn requests(plan: &CountersPlan) -> Arc<Vec<AddCountsRequest>> {
    let mut source = AddSource::new(&ZipfCounters::zipf(plan.sizes.counters), 0).without_tokens();
    let mut request = || {
        let adds =
            source.adds(BATCH).into_iter().map(|add| AddCount { counter: add.counter, delta: add.delta, token: None });
        AddCountsRequest { namespace: NAMESPACE.to_owned(), adds: adds.collect() }
    };
    Arc::new((0..REQUESTS).map(|_| request()).collect())
}

async fn point(plan: &CountersPlan, rig: &Rig, callers: usize, requests: &Arc<Vec<AddCountsRequest>>) -> Result<Point> {
    let mut service = Service::start(plan, rig).await?;
    let began = Instant::now();
    let load = Load { requests: requests.clone(), until: began + plan.sizes.overload };
    let label = format!("{callers} callers");
    let called = plan.profiled(rig, &label, call_until(service.channels(callers).await?, &load)).await?;
    let elapsed = called.stats.last.max(load.until) - began;
    let grown_mib = service.grown_mib()?;
    service.stop().await?;
    Ok(Point { callers, rate: called.stats.messages as f64 / elapsed.as_secs_f64(), called, grown_mib })
}

fn rate_row(point: &Point, best: f64) -> Row {
    let Point { callers, called, rate, grown_mib } = point;
    let (mut ours, mut best_samples) = (Samples::new(), Samples::new());
    ours.push(called.stats.sample(*rate));
    best_samples.push(Sample { value: best, ..Sample::default() });
    let goal = if *callers == MANY { Goal::RatioAtLeast(0.8) } else { Goal::None };
    let reference = Reference::Measured("the best of these rates", &best_samples);
    let what = format!("AddCounts without tokens, batches of {BATCH}, {} callers", grouped(*callers as u64));
    Row::new(what, "adds/s", &ours, reference, goal)
        .with("refused_calls", called.refused)
        .with("failed_calls", called.failed)
        .with("grown_mib", grown_mib.round())
}

/// Redis stands still under the load of many callers; when it goes on, the callers have gone, and one makes an add.
async fn stall(plan: &CountersPlan, rig: &Rig, requests: &Arc<Vec<AddCountsRequest>>) -> Result<Vec<Row>> {
    let mut service = Service::start(plan, rig).await?;
    let clients = service.channels(MANY).await?;
    let mut one = clients[0].clone();
    signal(rig, "-STOP")?;
    let load = Load { requests: requests.clone(), until: Instant::now() + plan.sizes.stall };
    // Those whose calls are not answered by then leave.
    let _ = tokio::time::timeout_at(load.until.into(), call_until(clients, &load)).await;
    signal(rig, "-CONT")?;
    let began = Instant::now();
    let add = AddCountRequest { namespace: NAMESPACE.to_owned(), counter: "next".to_owned(), delta: 1, token: None };
    while let Err(status) = one.add_count(add.clone()).await {
        let delay = retry_delay(&status).with_context(|| format!("the next add: {status}"))?;
        tokio::time::sleep(delay).await;
    }
    let took_ms = began.elapsed().as_secs_f64() * 1_000.0;
    let grown_mib = service.grown_mib()?;
    service.stop().await?;
    let stalled = format!("Redis stood still for {:.0} s under {MANY} callers", plan.sizes.stall.as_secs_f64());
    Ok(vec![
        row(format!("the next add after {stalled}"), "ms", took_ms, 1_000.0),
        row(format!("memory of the service when {stalled}"), "MiB", grown_mib, 100.0),
    ])
}

fn signal(rig: &Rig, signal: &str) -> Result<()> {
    let status = Command::new("kill").arg(signal).arg(rig.pid().to_string()).status()?;
    ensure!(status.success(), "kill {signal} failed");
    Ok(())
}

fn row(what: String, unit: &'static str, value: f64, goal: f64) -> Row {
    let mut samples = Samples::new();
    samples.push(Sample { value, ..Sample::default() });
    Row::new(what, unit, &samples, Reference::None, Goal::AtMost(goal))
}
