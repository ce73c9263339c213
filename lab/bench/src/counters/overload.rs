//! The counters under overload: AddCounts by ever more callers, over gRPC and over HTTP, and the first add after Redis has
//! hung.

use super::adds::{AddSource, CounterMix};
use super::plan::CountersPlan;
use super::service::{NAMESPACE, RollupParts, Rollups};
use crate::child::signal;
use crate::curve::{self, CALLERS, CONNECTIONS, CallOutcome, Caller, DEADLINE, MANY, Point, call_until, retry_delay};
use crate::program::Program;
use crate::report::{Goal, Row, grouped};
use crate::rig::Rig;
use anyhow::{Context, Result, ensure};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_client::{CounterClient, NamespaceConfig, connect};
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_proto::counter::v1::{AddCount, AddCountRequest, AddCountsRequest, add_count_result};
use tempfile::TempDir;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

/// Adds per call.
const BATCH: usize = 1_000;
/// Different calls: a caller draws one of them each time.
const REQUESTS: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
        let queue_url = rollups.queue_url().context("there is a queue")?;
        let (redis_url, dir) = (rig.url(), tempfile::tempdir()?);
        let arguments = ["counters", "--redis-url", &redis_url, "--server", &queue_url];
        let (mut program, url) = Program::serve(plan.args.counters_program.as_deref(), dir.path(), &arguments).await?;
        CounterClient::connect(&url).await?.put_namespace(NAMESPACE, NamespaceConfig::default()).await?;
        let idle_mib = program.resident()?.now_mib;
        Ok(Service { program, rollups, url, idle_mib, _dir: dir })
    }

    async fn grpc_callers(&self, count: usize, requests: &Arc<Requests>) -> Result<Vec<GrpcCaller>> {
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS.min(count) {
            let endpoint = Endpoint::from_shared(self.url.clone())?;
            channels.push(CountersClient::new(connect(endpoint, CONNECT_TIMEOUT).await?));
        }
        let caller = |(next, client): (usize, &CountersClient<Channel>)| GrpcCaller {
            client: client.clone(),
            requests: requests.clone(),
            next,
        };
        Ok(channels.iter().cycle().take(count).enumerate().map(caller).collect())
    }

    /// Each has a connection.
    fn http_callers(&self, count: usize, requests: &Arc<Requests>) -> Result<Vec<HttpCaller>> {
        let client = reqwest::Client::builder().no_proxy().http1_only().build()?;
        let url = format!("{}/v1/add_counts", self.url);
        let caller = |next| HttpCaller { client: client.clone(), url: url.clone(), requests: requests.clone(), next };
        Ok((0..count).map(caller).collect())
    }

    async fn stop(self) -> Result<()> {
        self.program.stop().await?;
        self.rollups.stop().await
    }
}

/// Calls with adds without tokens, which may be sent again and again; and the same as JSON.
struct Requests {
    grpc: Vec<AddCountsRequest>,
    json: Vec<bytes::Bytes>,
}

impl Requests {
    fn new(plan: &CountersPlan) -> Arc<Requests> {
        let mut source = AddSource::new(&CounterMix::zipf(plan.sizes.counters), 0).without_tokens();
        let mut request = || {
            let adds = source.adds(BATCH).into_iter();
            let adds =
                adds.map(|add| AddCount { counter: add.counter, delta: add.delta, ..Default::default() }).collect();
            AddCountsRequest { namespace: NAMESPACE.to_owned(), adds }
        };
        let grpc: Vec<AddCountsRequest> = (0..REQUESTS).map(|_| request()).collect();
        let json = grpc.iter().map(|request| {
            let adds: Vec<_> =
                request.adds.iter().map(|add| json!({"counter": add.counter, "delta": add.delta})).collect();
            json!({"namespace": NAMESPACE, "adds": adds}).to_string().into()
        });
        Arc::new(Requests { json: json.collect(), grpc })
    }
}

/// A caller over gRPC.
struct GrpcCaller {
    client: CountersClient<Channel>,
    requests: Arc<Requests>,
    next: usize,
}

impl Caller for GrpcCaller {
    async fn call(&mut self) -> Result<CallOutcome> {
        let adds = &self.requests.grpc[self.next % REQUESTS];
        self.next += 1;
        let mut request = Request::new(adds.clone());
        request.set_timeout(DEADLINE);
        let results = match self.client.add_counts(request).await {
            Ok(answer) => answer.into_inner().results,
            Err(status) => return Ok(curve::failed(&status)),
        };
        let is_ok = |outcome| matches!(outcome, Some(add_count_result::Outcome::Ok(_)));
        ensure!(results.len() == adds.adds.len(), "{} results", results.len());
        ensure!(results.into_iter().all(|result| is_ok(result.outcome)), "an add was refused");
        Ok(CallOutcome::Done(BATCH))
    }
}

/// A caller over HTTP/1.1.
struct HttpCaller {
    client: reqwest::Client,
    url: String,
    requests: Arc<Requests>,
    next: usize,
}

impl Caller for HttpCaller {
    async fn call(&mut self) -> Result<CallOutcome> {
        let body = self.requests.json[self.next % REQUESTS].clone();
        self.next += 1;
        let sent = self.client.post(&self.url).header(CONTENT_TYPE, "application/json").body(body).send().await;
        let Ok(response) = sent else { return Ok(CallOutcome::Missing) };
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            return Ok(CallOutcome::Refused(Duration::from_secs(seconds.context("no Retry-After")?)));
        }
        let status = response.status();
        let Ok(body) = response.bytes().await else { return Ok(CallOutcome::Missing) };
        if status == StatusCode::SERVICE_UNAVAILABLE {
            return Ok(CallOutcome::Missing);
        }
        ensure!(status == StatusCode::OK, "{status}: {}", String::from_utf8_lossy(&body));
        Ok(CallOutcome::Done(BATCH))
    }
}

pub(super) async fn measure(plan: &CountersPlan, rig: &Rig) -> Result<Vec<Row>> {
    let requests = Requests::new(plan);
    let mut rows = Vec::new();
    let mut points = Vec::new();
    for callers in CALLERS {
        let mut service = Service::start(plan, rig).await?;
        let calls = service.grpc_callers(callers, &requests).await?;
        let until = Instant::now() + plan.sizes.overload;
        let point = Point::measure(&mut service.program, service.idle_mib, calls, until);
        points.push(plan.profiled(rig, &format!("{callers} callers over gRPC"), point).await?);
        service.stop().await?;
    }
    rows.extend(curve::rows(&format!("AddCounts without tokens, batches of {BATCH}"), "adds/s", &points));
    points.clear();
    for callers in CALLERS {
        let mut service = Service::start(plan, rig).await?;
        let calls = service.http_callers(callers, &requests)?;
        let until = Instant::now() + plan.sizes.overload;
        let point = Point::measure(&mut service.program, service.idle_mib, calls, until);
        points.push(plan.profiled(rig, &format!("{callers} callers over HTTP"), point).await?);
        service.stop().await?;
    }
    rows.extend(curve::rows(&format!("HTTP add_counts without tokens, batches of {BATCH}"), "adds/s", &points));
    rows.extend(stall(plan, rig, &requests).await?);
    Ok(rows)
}

/// Redis hangs under the load of many callers; when it continues, the callers have gone, and one makes an add.
async fn stall(plan: &CountersPlan, rig: &Rig, requests: &Arc<Requests>) -> Result<Vec<Row>> {
    let mut service = Service::start(plan, rig).await?;
    let callers = service.grpc_callers(MANY, requests).await?;
    let mut one = callers[0].client.clone();
    signal(rig.pid(), "-STOP")?;
    let until = Instant::now() + plan.sizes.stall;
    // Those whose calls are not answered by then leave.
    let _ = tokio::time::timeout_at(until.into(), call_until(callers, until)).await;
    signal(rig.pid(), "-CONT")?;
    let began = Instant::now();
    let add =
        AddCountRequest { namespace: NAMESPACE.to_owned(), counter: "next".to_owned(), delta: 1, ..Default::default() };
    while let Err(status) = one.add_count(add.clone()).await {
        let delay = retry_delay(&status).with_context(|| format!("the next add: {status}"))?;
        tokio::time::sleep(delay).await;
    }
    let took_ms = began.elapsed().as_secs_f64() * 1_000.0;
    let grown_mib = service.program.resident()?.peak_mib - service.idle_mib;
    service.stop().await?;
    let (stalled_s, callers) = (plan.sizes.stall.as_secs_f64(), grouped(MANY as u64));
    let stalled = format!("Redis stood still for {stalled_s:.0} s under {callers} callers");
    Ok(vec![
        Row::once(format!("the next add after {stalled}"), "ms", took_ms, Goal::AtMost(1_000.0)),
        Row::once(format!("memory of the service when {stalled}"), "MiB", grown_mib, Goal::AtMost(100.0)),
    ])
}
