//! The services under test, all in this process: the queue, the counters and one rollup worker, on the Redis of the rig;
//! and their callers, which use the generated clients over loopback.

use super::adds::{Add, now_ms};
use super::load::Adder;
use super::plan::{CONNECTIONS, CountersPlan};
use crate::ours::Ours;
use crate::rig::Rig;
use anyhow::{Context, Result, anyhow, ensure};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};
use tallystone_assembly::{attach_counters, connect_namespaces, queue_client};
use tallystone_client::{Client, CounterClient, NamespaceConfig, connector};
use tallystone_counters::redis::{RedisNamespace, RedisNamespaces};
use tallystone_counters::{Checkpoints, CounterName, NamespaceName};
use tallystone_link::RedisConfig;
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_proto::counter::v1::{AddCount, AddCountsRequest, IdempotencyToken, add_count_result};
use tallystone_serving::Host;
use tallystone_workers::{RollupWorkers, WorkerOptions};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

/// The namespace of every figure.
pub(super) const NAMESPACE: &str = "bench";
const TIMEOUT: Duration = Duration::from_secs(5);
/// How often to check whether counters are rolled up, and how many per call.
const ROLLED_UP_POLL: Duration = Duration::from_millis(200);
const READ_MAX: usize = 1_000;

/// What rolls the counters up.
pub(super) enum Rollups {
    /// Nothing; there is no queue either.
    Without,
    /// A queue, and a worker with these options.
    By(WorkerOptions),
}

impl Rollups {
    /// A worker with default options.
    pub(super) fn by_worker() -> Rollups {
        Rollups::By(WorkerOptions { name: "worker".to_owned(), records: None })
    }
}

/// The running services.
pub(super) struct CountersUnderTest {
    address: SocketAddr,
    stopping: CancellationToken,
    served: JoinHandle<Result<()>>,
    /// The worker stops first: it uses both others.
    worker: Option<(CancellationToken, JoinHandle<Result<()>>)>,
    queue: Option<Ours>,
    /// The threads they run on, unless they run on those of the bench.
    runtimes: Vec<Runtime>,
    /// For what the bench itself reads from the store.
    namespaces: RedisNamespaces,
}

impl CountersUnderTest {
    /// Starts them on the rig's Redis, with one namespace.
    pub(super) async fn start(
        plan: &CountersPlan,
        rig: &Rig,
        config: NamespaceConfig,
        rollups: Rollups,
    ) -> Result<CountersUnderTest> {
        CountersUnderTest::start_on(plan.args.server_threads, rig, config, rollups).await
    }

    /// The same on dedicated threads: under a steady load the service must not wait for its callers' threads.
    pub(super) async fn start_on_own_threads(
        plan: &CountersPlan,
        rig: &Rig,
        config: NamespaceConfig,
    ) -> Result<CountersUnderTest> {
        CountersUnderTest::start_on(plan.args.server_threads.max(1), rig, config, Rollups::by_worker()).await
    }

    async fn start_on(
        threads: usize,
        rig: &Rig,
        config: NamespaceConfig,
        rollups: Rollups,
    ) -> Result<CountersUnderTest> {
        let redis_url = rig.url();
        let namespaces = connect(&redis_url).await?;
        let (mut runtimes, stopping) = (Vec::new(), CancellationToken::new());
        let (mut queue, mut worker) = (None, None);
        if let Rollups::By(options) = rollups {
            let ours = Ours::start(rig, threads).await?;
            let (url, redis_url, stop) = (ours.url(), redis_url.clone(), CancellationToken::new());
            let stopped = stop.clone();
            let working = on("worker", threads, &mut runtimes)?.spawn(async move {
                let (namespaces, queue) = (connect(&redis_url).await?, client(&url)?);
                RollupWorkers::new(namespaces, queue, options).run(stopped).await;
                Ok(())
            });
            (queue, worker) = (Some(ours), Some((stop, working)));
        }
        let (listening, on_listening) = oneshot::channel();
        let (queue_url, stop) = (queue.as_ref().map(Ours::url), stopping.clone());
        let served = on("counters", threads, &mut runtimes)?.spawn(async move {
            let queue = queue_url.map(|url| client(&url)).transpose()?;
            let host = attach_counters(Host::new(), connect(&redis_url).await?, queue);
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            // The receiver is gone only when the bench has given up; then `stop` is cancelled, too.
            let _ = listening.send(listener.local_addr()?);
            Ok(host.serve(listener, stop.cancelled_owned()).await?)
        });
        let address = match on_listening.await {
            Ok(address) => address,
            Err(_) => {
                let why = served.await?.err().unwrap_or_else(|| anyhow!("they ended"));
                return Err(why.context("the counters did not start"));
            }
        };
        let service = CountersUnderTest { address, stopping, served, worker, queue, runtimes, namespaces };
        CounterClient::connect(service.url()).await?.put_namespace(NAMESPACE, config).await?;
        Ok(service)
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `count` callers, spread over the connections.
    pub(super) async fn callers(&self, count: usize) -> Result<Vec<Caller>> {
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS.min(count) {
            let endpoint = Endpoint::from_shared(self.url())?;
            channels.push(endpoint.connect_with_connector(connector(TIMEOUT)).await?);
        }
        let channels = channels.iter().cycle().take(count);
        Ok(channels.map(|channel| Caller(CountersClient::new(channel.clone()))).collect())
    }

    /// The namespace's store: reading it makes no rollup due, unlike GetCount.
    pub(super) async fn store(&self) -> Result<RedisNamespace> {
        let namespace = self.namespaces.get(&NamespaceName::parse(NAMESPACE)?).await?.context("it has been put")?;
        Ok(self.namespaces.open(&namespace).await?)
    }

    /// Waits until all these counters are exact to this time or a later one. Returns the time that took.
    pub(super) async fn rolled_up(&self, counters: &[String], to_ms: u64, limit: Duration) -> Result<Duration> {
        let (store, began) = (self.store().await?, Instant::now());
        let mut left = counters.iter().map(CounterName::parse).collect::<Result<Vec<_>, _>>()?;
        while let Some(from) = left.len().checked_sub(1).map(|last| last - last % READ_MAX) {
            let checkpoints = store.read(&left[from..]).await?;
            let waiting = left.split_off(from).into_iter().zip(checkpoints);
            let waiting = waiting.filter(|(_, checkpoint)| checkpoint.exact_to_ms < to_ms).map(|(counter, _)| counter);
            let before = left.len();
            left.extend(waiting);
            if left.len() > before {
                ensure!(began.elapsed() < limit, "{} counters are not rolled up after {limit:?}", left.len());
                tokio::time::sleep(ROLLED_UP_POLL).await;
            }
        }
        Ok(began.elapsed())
    }

    pub(super) async fn stop(self) -> Result<()> {
        if let Some((stop, worker)) = self.worker {
            stop.cancel();
            worker.await?.context("the worker failed")?;
        }
        self.stopping.cancel();
        self.served.await?.context("the counters failed")?;
        if let Some(queue) = self.queue {
            queue.stop().await?;
        }
        self.runtimes.into_iter().for_each(Runtime::shutdown_background);
        Ok(())
    }
}

async fn connect(redis_url: &str) -> Result<RedisNamespaces> {
    let redis = RedisConfig { url: redis_url.to_owned(), ..RedisConfig::default() };
    Ok(connect_namespaces(&redis).await?)
}

fn client(queue: &str) -> Result<Client> {
    Ok(queue_client("queue", queue)?)
}

/// Dedicated threads with this name; 0: those of the bench.
fn on(name: &str, threads: usize, runtimes: &mut Vec<Runtime>) -> Result<Handle> {
    if threads == 0 {
        return Ok(Handle::current());
    }
    let runtime = Builder::new_multi_thread().worker_threads(threads).thread_name(name).enable_all().build()?;
    let handle = runtime.handle().clone();
    runtimes.push(runtime);
    Ok(handle)
}

/// One caller.
#[derive(Clone)]
pub(super) struct Caller(pub(super) CountersClient<Channel>);

impl Adder for Caller {
    async fn add(&mut self, adds: Vec<Add>) -> Result<()> {
        let (sent, now_ms) = (adds.len(), now_ms());
        let adds = adds.into_iter().map(|Add { counter, delta, token }| {
            let token = token.map(|token| IdempotencyToken { token, generation_time_ms: now_ms as i64 });
            AddCount { counter, delta, token }
        });
        let request = AddCountsRequest { namespace: NAMESPACE.to_owned(), adds: adds.collect() };
        let results = self.0.add_counts(request).await?.into_inner().results;
        ensure!(results.len() == sent, "{} results for {sent} adds", results.len());
        results.into_iter().try_for_each(|result| match result.outcome {
            Some(add_count_result::Outcome::Ok(added)) if !added.duplicate => Ok(()),
            other => Err(anyhow!("an add was refused: {other:?}")),
        })
    }
}
