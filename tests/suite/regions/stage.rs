//! Three installations on one Kafka, each with its topics.

use super::mirror::{Mirror, create, send};
use crate::crash::machines::{Redis, Server};
use crate::system::program::{self, Running, SOON, until};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_client::{CounterClient, CounterType, GlobalCount, IdempotencyToken, NamespaceConfig, NewAdd, NewClear};
use tallystone_tests::TestKafka;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

pub(super) const NAMESPACE: &str = "spread";
pub(super) const REGIONS: [&str; 3] = ["eu", "us", "ap"];
const POLL: Duration = Duration::from_millis(50);

/// One installation.
pub(super) struct Installation {
    pub(super) redis: Redis,
    queue: Server,
    pub(super) counters: Server,
    workers: Vec<Option<Running>>,
    pub(super) client: CounterClient,
    config: PathBuf,
}

impl Installation {
    async fn start(config: PathBuf) -> Installation {
        let redis = Redis::start().await;
        let url = redis.url();
        let path = config.to_str().expect("a plain path");
        let queue = Server::start_as(&["server", "--redis-url", &url, "--log", "error"]).await;
        let queue_url = queue.url();
        let args = ["counters", "--config", path, "--redis-url", &url, "--server", &queue_url, "--log", "error"];
        let counters = Server::start_as(&args).await;
        // Repeats the same request for longer than any outage of these tests.
        let builder = CounterClient::builder(counters.url()).retry_for(Duration::from_secs(90));
        let client = builder.call_timeout(Duration::from_secs(5)).connect_lazy().expect("an address");
        let workers = vec![None, None];
        let mut installation = Installation { redis, queue, counters, workers, client, config };
        (0..2).for_each(|number| installation.start_worker(number));
        installation
    }

    pub(super) fn start_worker(&mut self, number: usize) {
        let (path, redis_url, queue_url) =
            (self.config.to_str().expect("a plain path"), self.redis.url(), self.queue.url());
        let args = ["rollup-worker", "--config", path, "--redis-url", &redis_url, "--server", &queue_url];
        self.workers[number] = Some(Running::start(program::command(&[&args[..], &["--log", "error"]].concat())));
    }

    /// Starts those again that found no Redis when they started: they have ended, and a supervisor would start them again.
    pub(super) fn start_missing_workers(&mut self) {
        for number in 0..self.workers.len() {
            if self.workers[number].as_mut().is_none_or(Running::has_ended) {
                self.start_worker(number);
            }
        }
    }

    /// kill -9.
    pub(super) async fn kill_worker(&mut self, number: usize) {
        if let Some(worker) = self.workers[number].take() {
            worker.kill().await;
        }
    }
}

/// What was counted.
#[derive(Default)]
struct Ledger {
    /// By counter: each add with its time.
    adds: BTreeMap<String, Vec<(u64, i64)>>,
    /// By counter: the time of the latest clear.
    cleared_ms: BTreeMap<String, u64>,
}

/// All of them, and what is expected.
pub(super) struct Stage {
    pub(super) regions: Vec<Installation>,
    pub(super) mirror: Mirror,
    brokers: String,
    /// What the names of the topics begin with.
    prefix: String,
    ledger: Arc<Mutex<Ledger>>,
    _dir: TempDir,
    _kafka: Arc<TestKafka>,
}

impl Stage {
    pub(super) async fn start(seed: u64) -> Stage {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let kafka = TestKafka::shared().await;
        let brokers = kafka.address();
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let prefix = format!("n12-{}-{number}-{:08x}", std::process::id(), rand::random::<u32>());
        let dir = TempDir::new().expect("a temporary folder");
        let (mut regions, mut pairs) = (Vec::new(), Vec::new());
        for own in REGIONS {
            // A region creates its topic itself.
            let topic = format!("{prefix}.{own}");
            let mut topics = Vec::new();
            for other in REGIONS.into_iter().filter(|other| *other != own) {
                let copy = format!("{prefix}.{other}.in.{own}");
                create(&brokers, &copy).await;
                pairs.push((format!("{prefix}.{other}"), copy.clone()));
                topics.push(format!("\"{copy}\""));
            }
            let config = dir.path().join(format!("{own}.toml"));
            let text = format!(
                "[kafka]\nbrokers = \"{brokers}\"\npartitions = 3\n[regions]\nname = \"{own}\"\ntopic = \"{topic}\"\ntopics = [{}]\n",
                topics.join(", ")
            );
            std::fs::write(&config, text).expect("a file");
            regions.push(Installation::start(config).await);
        }
        let mirror = Mirror::start(&brokers, &pairs, seed);
        Stage { regions, mirror, brokers, prefix, ledger: Arc::default(), _dir: dir, _kafka: kafka }
    }

    /// The namespace in each region, with short times.
    pub(super) async fn namespace(&self, counter_type: CounterType) {
        for region in 0..REGIONS.len() {
            self.put(region, NAMESPACE, counter_type, &REGIONS).await;
        }
    }

    /// A namespace of one region is spread over these regions from now on.
    pub(super) async fn put(&self, region: usize, namespace: &str, counter_type: CounterType, regions: &[&str]) {
        let config = NamespaceConfig {
            counter_type: Some(counter_type),
            accept_limit_ms: Some(1_000),
            coalesce_ms: Some(200),
            num_queues: Some(2),
            regions: Some(regions.iter().map(|name| (*name).to_owned()).collect()),
            ..NamespaceConfig::default()
        };
        self.regions[region].client.put_namespace(namespace, config).await.expect("a namespace");
    }

    /// Adds to the counter of a namespace in one region, and waits until another one has merged it.
    pub(super) async fn passes(&self, from: usize, to: usize, namespace: &str, counter: &str) {
        self.regions[from].client.add(namespace, NewAdd::new(counter, 1)).await.expect("an add");
        until(&format!("{counter} of {namespace} is merged"), async || {
            let global = self.regions[to].client.get_global(namespace, counter).await;
            let parts = global.map(|global| global.regions).unwrap_or_default();
            parts.iter().any(|part| part.region == REGIONS[from] && part.count > 0)
        })
        .await;
    }

    /// What adds and clears, and may be used by many tasks.
    pub(super) fn adder(&self) -> Adder {
        let clients = self.regions.iter().map(|region| region.client.clone()).collect();
        Adder { clients, ledger: self.ledger.clone() }
    }

    /// Waits until each region's global counts are those that the ledger has, and exact to a time after the last add.
    pub(super) async fn assert_exact(&self) {
        let expected: BTreeMap<String, (i64, u64)> = {
            let ledger = self.ledger.lock().expect("no panic");
            let of = |(counter, adds): (&String, &Vec<(u64, i64)>)| {
                let cleared_ms = ledger.cleared_ms.get(counter).copied().unwrap_or_default();
                let counted = adds.iter().filter(|(at_ms, _)| *at_ms > cleared_ms);
                let last_ms = adds.iter().map(|(at_ms, _)| *at_ms).max().unwrap_or_default();
                (counter.clone(), (counted.map(|(_, delta)| delta).sum(), last_ms.max(cleared_ms)))
            };
            ledger.adds.iter().map(of).collect()
        };
        let names: Vec<String> = expected.keys().cloned().collect();
        for (region, installation) in REGIONS.iter().zip(&self.regions) {
            let (mut give_up_at, mut best) = (Instant::now() + SOON, 0);
            loop {
                self.mirror.check();
                let counts = installation.client.get_many_global(NAMESPACE, names.clone()).await.expect("counts");
                let counts: Vec<GlobalCount> = counts.into_iter().map(|count| count.expect("a count")).collect();
                let is_right = |(count, (sum, last_ms)): (&GlobalCount, &(i64, u64))| {
                    count.count == *sum && count.exact_to_ms > *last_ms
                };
                let right = counts.iter().zip(expected.values()).filter(|of| is_right(*of)).count();
                if right == names.len() {
                    break;
                }
                if right > best {
                    (best, give_up_at) = (right, Instant::now() + SOON);
                }
                let all = counts.iter().zip(&expected).collect::<Vec<_>>();
                let wrong = all.iter().find(|(count, (_, expected))| !is_right((count, expected)));
                assert!(Instant::now() < give_up_at, "{region}: {right} of {} are right; {wrong:?}", names.len());
                sleep(POLL).await;
            }
        }
    }

    /// One region gets this record of another one and a counter, as if it had published it.
    pub(super) async fn send(&self, from: usize, to: usize, counter: &str, record: &serde_json::Value) {
        let topic = format!("{}.{}.in.{}", self.prefix, REGIONS[from], REGIONS[to]);
        let key = format!("{}/{NAMESPACE}/{counter}", REGIONS[from]);
        send(&self.brokers, &topic, &key, &record.to_string()).await;
    }

    /// The global count of a counter in a region.
    pub(super) async fn global(&self, region: usize, counter: &str) -> GlobalCount {
        self.regions[region].client.get_global(NAMESPACE, counter).await.expect("a count")
    }
}

/// Adds and clears, each until it is answered.
#[derive(Clone)]
pub(super) struct Adder {
    clients: Vec<CounterClient>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Adder {
    /// Until it counts: an add that is late because the machine is busy is repeated with a new time.
    pub(super) async fn add(&self, region: usize, counter: &str, delta: i64) {
        loop {
            let add = NewAdd::new(counter, delta).token(IdempotencyToken::now());
            match self.clients[region].add(NAMESPACE, add).await {
                Ok(added) => {
                    let mut ledger = self.ledger.lock().expect("no panic");
                    return ledger.adds.entry(counter.to_owned()).or_default().push((added.event_time_ms, delta));
                }
                Err(error) => assert!(is_too_old(&error), "{error}"),
            }
        }
    }

    /// Clears the counter in every region.
    pub(super) async fn clear(&self, region: usize, counter: &str) {
        loop {
            match self.clients[region].clear(NAMESPACE, NewClear::new(counter)).await {
                Ok(cleared) => {
                    let mut ledger = self.ledger.lock().expect("no panic");
                    let at_ms = ledger.cleared_ms.entry(counter.to_owned()).or_default();
                    *at_ms = cleared.event_time_ms.max(*at_ms);
                    return;
                }
                Err(error) => assert!(is_too_old(&error), "{error}"),
            }
        }
    }
}

/// It was certainly not counted: the way to the counters took longer than the accept limit.
fn is_too_old(error: &tallystone_client::Error) -> bool {
    error.refused().is_some_and(|refused| refused.reason == "TOO_OLD")
}
