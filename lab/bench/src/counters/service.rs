//! The services under test, all in this process: the queue, the counters and one rollup worker, on the Redis of the rig;
//! and their callers, which use the generated clients over loopback.

use super::adds::{Add, now_ms};
use super::load::Adder;
use super::plan::{CONNECTIONS, CountersPlan};
use crate::ours::Ours;
use crate::own_threads::{OwnThreads, serve};
use crate::rig::Rig;
use anyhow::{Context, Result, anyhow, ensure};
use std::time::{Duration, Instant};
use tallystone_assembly::{ClientConfig, RollupWorker, attach_counters, connect_namespaces, queue_client};
use tallystone_client::{Client, CounterClient, NamespaceConfig};
use tallystone_counters::redis::{RedisNamespace, RedisNamespaces};
use tallystone_counters::{Checkpoints, CounterName, CountersConfig, EventArchive, NamespaceName};
use tallystone_link::RedisConfig;
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_proto::counter::v1::{AddCount, AddCountsRequest, IdempotencyToken, add_count_result};
use tallystone_serving::{Host, Running};
use tallystone_workers::WorkerOptions;
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
    /// A queue; the worker is started later.
    Later,
}

impl Rollups {
    /// A worker with default options.
    pub(super) fn by_worker() -> Rollups {
        Rollups::By(WorkerOptions { name: "worker".to_owned(), ..WorkerOptions::default() })
    }
}

/// The queue and the worker of the rollups, in this process.
pub(super) struct RollupParts {
    worker: Option<OwnThreads<RollupWorker>>,
    queue: Option<Ours>,
}

impl RollupParts {
    pub(super) async fn start(threads: usize, rig: &Rig, rollups: Rollups) -> Result<RollupParts> {
        let queue = match rollups {
            Rollups::Without => None,
            Rollups::By(_) | Rollups::Later => Some(Ours::start(rig, threads).await?),
        };
        let mut parts = RollupParts { worker: None, queue };
        if let Rollups::By(options) = rollups {
            parts.start_worker(threads, rig, options).await?;
        }
        Ok(parts)
    }

    /// Starts the worker of the counters on this Redis.
    async fn start_worker(&mut self, threads: usize, rig: &Rig, options: WorkerOptions) -> Result<()> {
        let (queue_url, redis_url) = (self.queue_url().context("there is a queue")?, rig.url());
        let start = async move { Ok(RollupWorker::start(connect(&redis_url).await?, client(&queue_url)?, options)) };
        self.worker = Some(OwnThreads::start("worker", threads, start).await?);
        Ok(())
    }

    pub(super) fn queue_url(&self) -> Option<String> {
        self.queue.as_ref().map(Ours::url)
    }

    /// Stops the worker, which uses the counters and the queue. Returns the queue.
    async fn stop_worker(self) -> Result<Option<Ours>> {
        if let Some(worker) = self.worker {
            worker
                .stop(async |worker| {
                    worker.stop().await;
                    Ok(())
                })
                .await?;
        }
        Ok(self.queue)
    }

    pub(super) async fn stop(self) -> Result<()> {
        match self.stop_worker().await? {
            Some(queue) => queue.stop().await,
            None => Ok(()),
        }
    }
}

/// The running services.
pub(super) struct CountersUnderTest {
    counters: OwnThreads<Running>,
    rollups: RollupParts,
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
        CountersUnderTest::start_on(plan.args.server_threads, rig, rig, config, rollups, None).await
    }

    /// Starts them without a worker, and the queue on another Redis.
    pub(super) async fn start_without_worker(
        plan: &CountersPlan,
        rig: &Rig,
        queue_rig: &Rig,
        config: NamespaceConfig,
    ) -> Result<CountersUnderTest> {
        CountersUnderTest::start_on(plan.args.server_threads.max(1), rig, queue_rig, config, Rollups::Later, None).await
    }

    /// The same on dedicated threads: under a steady load the service must not wait for its callers' threads.
    pub(super) async fn start_on_own_threads(
        plan: &CountersPlan,
        rig: &Rig,
        config: NamespaceConfig,
    ) -> Result<CountersUnderTest> {
        CountersUnderTest::start_on(plan.args.server_threads.max(1), rig, rig, config, Rollups::by_worker(), None).await
    }

    /// Starts them with an archive, which the worker does not have: the figure archives.
    pub(super) async fn start_with_archive(
        plan: &CountersPlan,
        rig: &Rig,
        config: NamespaceConfig,
        archive: EventArchive,
    ) -> Result<CountersUnderTest> {
        let (threads, rollups) = (plan.args.server_threads, Rollups::by_worker());
        CountersUnderTest::start_on(threads, rig, rig, config, rollups, Some(archive)).await
    }

    async fn start_on(
        threads: usize,
        rig: &Rig,
        queue_rig: &Rig,
        config: NamespaceConfig,
        rollups: Rollups,
        archive: Option<EventArchive>,
    ) -> Result<CountersUnderTest> {
        let redis_url = rig.url();
        let rollups = RollupParts::start(threads, queue_rig, rollups).await?;
        let (queue_url, namespaces) = (rollups.queue_url(), connect(&redis_url).await?.with_archive(archive.clone()));
        let start = async move {
            let queue = queue_url.map(|url| client(&url)).transpose()?;
            let waiting = CountersConfig::default().waiting();
            let namespaces = connect(&redis_url).await?.with_archive(archive);
            serve(attach_counters(Host::new(), namespaces, queue, waiting)).await
        };
        let counters = OwnThreads::start("counters", threads, start).await?;
        let service = CountersUnderTest { counters, rollups, namespaces };
        CounterClient::connect(service.url()).await?.put_namespace(NAMESPACE, config).await?;
        Ok(service)
    }

    pub(super) fn url(&self) -> String {
        self.counters.part.url()
    }

    /// Starts the worker that was left out.
    pub(super) async fn start_worker(&mut self, plan: &CountersPlan, rig: &Rig) -> Result<()> {
        let Rollups::By(options) = Rollups::by_worker() else { return Ok(()) };
        self.rollups.start_worker(plan.args.server_threads.max(1), rig, options).await
    }

    /// `count` callers, spread over the connections.
    pub(super) async fn callers(&self, count: usize) -> Result<Vec<Caller>> {
        callers_of(&self.url(), count).await
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

    /// Waits until no counter waits for a rollup. Unlike [`rolled_up`](Self::rolled_up), it needs no list of counters that
    /// have adds.
    pub(super) async fn all_rolled_up(&self, limit: Duration) -> Result<()> {
        let (tag, began) = (self.store().await?.tag().to_owned(), Instant::now());
        while self.namespaces.have_dirty(std::slice::from_ref(&tag)).await?.contains(&true) {
            ensure!(began.elapsed() < limit, "counters still wait for rollups after {limit:?}");
            tokio::time::sleep(ROLLED_UP_POLL).await;
        }
        Ok(())
    }

    pub(super) async fn stop(self) -> Result<()> {
        let queue = self.rollups.stop_worker().await?;
        self.counters.stop(async |counters| counters.stop().await.context("the counters failed")).await?;
        match queue {
            Some(queue) => queue.stop().await,
            None => Ok(()),
        }
    }
}

/// `count` callers of the counters at this URL, spread over the connections.
pub(super) async fn callers_of(url: &str, count: usize) -> Result<Vec<Caller>> {
    let mut channels = Vec::new();
    for _ in 0..CONNECTIONS.min(count) {
        let endpoint = Endpoint::from_shared(url.to_owned())?;
        channels.push(tallystone_client::connect(endpoint, TIMEOUT).await?);
    }
    let channels = channels.iter().cycle().take(count);
    Ok(channels.map(|channel| Caller(CountersClient::new(channel.clone()))).collect())
}

async fn connect(redis_url: &str) -> Result<RedisNamespaces> {
    let redis = RedisConfig { url: redis_url.to_owned(), ..RedisConfig::default() };
    Ok(connect_namespaces(&redis).await?)
}

fn client(queue: &str) -> Result<Client> {
    Ok(queue_client("queue", queue, &ClientConfig::default())?)
}

/// One caller.
#[derive(Clone)]
pub(super) struct Caller(pub(super) CountersClient<Channel>);

impl Adder for Caller {
    async fn add(&mut self, adds: Vec<Add>) -> Result<()> {
        let (sent, now_ms) = (adds.len(), now_ms());
        let adds = adds.into_iter().map(|Add { counter, delta, token }| {
            let token = token.map(|token| IdempotencyToken { token, generation_time_ms: now_ms as i64 });
            AddCount { counter, delta, token, ..Default::default() }
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
