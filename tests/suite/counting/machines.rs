//! What is killed and stopped: one Redis, servers of the queue and of the counters, each on a port that it keeps, and
//! worker processes that write down what they do.

use super::judge::Life;
use crate::crash::machines::{Redis, Server};
use crate::system::program::{self, Running, SOON};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tallystone_client::{CounterClient, CounterEntry};
use tallystone_counters::NamespaceName;
use tallystone_counters::redis::{RedisNamespace, RedisNamespaces};
use tallystone_link::Clock;
use tallystone_tests::{Polling, volatile};
use tempfile::TempDir;
use tokio::time::Instant;

/// Another server sweeps soon after a crash.
const CONFIG: &str = "[server]\nsweeper_leader_lease_ms = 1000\n";

/// One worker process, and those that were killed before it.
pub(super) struct WorkerProcess {
    name: String,
    dir: PathBuf,
    config: PathBuf,
    redis_url: String,
    queue_url: String,
    lives: Vec<Life>,
    process: Option<Running>,
}

impl WorkerProcess {
    fn new(name: String, config: &Path, redis_url: String, queue_url: String) -> Self {
        let (config, dir) = (config.to_owned(), config.parent().expect("a folder").to_owned());
        let mut worker = WorkerProcess { name, dir, config, redis_url, queue_url, lives: Vec::new(), process: None };
        worker.start();
        worker
    }

    /// Starts it with new records: a killed one may have left a line unfinished.
    pub(super) fn start(&mut self) {
        let records = self.dir.join(format!("{}-{}.records", self.name, self.lives.len()));
        let (path, config) = (records.to_str().expect("a plain path"), self.config.to_str().expect("a plain path"));
        let args = ["rollup-worker", "--redis-url", &self.redis_url, "--server", &self.queue_url, "--name", &self.name];
        let args = [&args[..], &["--config", config, "--records", path, "--log", "error"]].concat();
        self.process = Some(Running::start(program::command(&args)));
        self.lives.push(Life { records, killed_us: None });
    }

    /// Starts it again if it found no Redis when it started: then it ends, and its supervisor starts it again.
    pub(super) fn start_if_it_found_no_redis(&mut self) {
        if self.process.as_mut().is_some_and(Running::has_ended) {
            assert_eq!(self.text(), "", "{} has ended in the middle of its work", self.name);
            self.start();
        }
    }

    /// kill -9.
    pub(super) async fn kill(&mut self) {
        self.process.take().expect("it runs").kill().await;
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock that is set");
        let life = self.lives.last_mut().expect("it was started");
        life.killed_us = Some(u64::try_from(since_1970.as_micros()).expect("not yet"));
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.process.as_ref().expect("it runs").pid().cast_signed())
    }

    /// Halts all its threads: none of them does anything more once this is over.
    pub(super) fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).expect("it runs");
        let status = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).expect("a child");
        assert_eq!(status, WaitStatus::Stopped(self.pid(), Signal::SIGSTOP));
    }

    /// After a stop.
    pub(super) fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).expect("it runs");
    }

    /// Its records of this life, as text; a line may be unfinished.
    pub(super) fn text(&self) -> String {
        let life = self.lives.last().expect("it was started");
        std::fs::read_to_string(&life.records).unwrap_or_default()
    }

    /// Whether it is in the middle of rollups: the last that it has written is that one begins.
    pub(super) fn is_at_it(&self) -> bool {
        self.text().trim_end().ends_with("\"begin\"}")
    }

    pub(super) fn lives(&self) -> &[Life] {
        &self.lives
    }
}

/// All of them, and a client for each server of counters. `R`: what their data is on.
pub(super) struct Machines<R = Redis> {
    pub(super) redis: R,
    redis_url: String,
    pub(super) queues: Vec<Server>,
    pub(super) counters: Vec<Server>,
    pub(super) workers: Vec<WorkerProcess>,
    pub(super) clients: Vec<CounterClient>,
    config: PathBuf,
    _dir: TempDir,
}

impl Machines {
    /// Two servers of each kind, and this number of workers; each uses one of the queue's servers.
    pub(super) async fn start(workers: usize) -> Self {
        let redis = Redis::start().await;
        let url = redis.url();
        Machines::start_on(redis, url, "", workers).await
    }
}

impl<R> Machines<R> {
    /// The same on a store that runs. `more`: more configuration (TOML).
    pub(super) async fn start_on(redis: R, redis_url: String, more: &str, workers: usize) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let config = dir.path().join("tallystone.toml");
        std::fs::write(&config, format!("{CONFIG}{more}")).expect("a file");
        let (mut queues, mut counters) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            let queue = Server::start(redis_url.clone(), &config).await;
            let (path, queue_url) = (config.to_str().expect("a plain path"), queue.url());
            let args = ["counters", "--config", path, "--redis-url", &redis_url, "--server", &queue_url];
            counters.push(Server::start_as(&[&args[..], &["--log", "error"]].concat()).await);
            queues.push(queue);
        }
        // Repeats the same request for longer than any outage of these tests, so that every call is answered.
        let client = |server: &Server| {
            let builder = CounterClient::builder(server.url()).retry_for(Duration::from_secs(90));
            builder.call_timeout(Duration::from_secs(5)).connect_lazy().expect("a good address")
        };
        let clients = counters.iter().map(client).collect();
        let mut machines =
            Machines { redis, redis_url, queues, counters, workers: Vec::new(), clients, config, _dir: dir };
        for _ in 0..workers {
            machines.add_worker();
        }
        machines
    }

    /// One more worker.
    pub(super) fn add_worker(&mut self) {
        let (number, redis_url) = (self.workers.len(), self.redis_url.clone());
        let queue_url = self.queues[number % 2].url();
        self.workers.push(WorkerProcess::new(format!("worker-{number}"), &self.config, redis_url, queue_url));
    }

    /// A namespace past all servers.
    pub(super) async fn store(&self, namespace: &str) -> RedisNamespace {
        let namespaces = RedisNamespaces::connect(&volatile(&self.redis_url), Clock::default()).await;
        let namespaces = namespaces.expect("a connection to Redis");
        let name = NamespaceName::parse(namespace).expect("a name");
        let namespace = namespaces.get(&name).await.expect("an answer").expect("a namespace");
        namespaces.open(&namespace).await.expect("its stores")
    }

    /// The lives of all workers so far.
    pub(super) fn lives(&self) -> Vec<Life> {
        self.workers.iter().flat_map(|worker| worker.lives().to_vec()).collect()
    }

    /// Waits until the rollups have reached these counts, and returns when. It reads no count, since that would hurry
    /// rollups on (N9, N11).
    pub(super) async fn until_rolled_up(&self, namespace: &str, expected: &BTreeMap<String, i64>) -> Instant {
        let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
        loop {
            let found = listed(&self.clients[0], namespace).await;
            let count = |counter: &String| found.get(counter).map_or(0, |entry| entry.count);
            let missing: Vec<_> = expected.iter().filter(|(counter, expected)| count(counter) != **expected).collect();
            if missing.is_empty() {
                return Instant::now();
            }
            if Instant::now() > give_up_at {
                let (counter, count) = missing[0];
                let entry = found.get(counter);
                panic!("{} of {} are not exact; {counter}: {count}, not {entry:?}", missing.len(), expected.len());
            }
            polling.pause().await;
        }
    }
}

/// The counters of a namespace as the last rollups left them.
pub(super) async fn listed(client: &CounterClient, namespace: &str) -> BTreeMap<String, CounterEntry> {
    let (mut all, mut page_token) = (BTreeMap::new(), String::new());
    loop {
        let page = client.list_counters(namespace, 1_000, &page_token).await.expect("a page");
        all.extend(page.items.into_iter().map(|entry| (entry.counter.clone(), entry)));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return all;
        }
    }
}
