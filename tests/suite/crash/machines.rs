//! What is killed: one Redis, and two server processes on it, each on a port that it keeps.

use crate::system::program::{self, Running, SOON};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use redis::aio::MultiplexedConnection;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tallystone_client::Client;
use tallystone_local::{PrivateRedis, PrivateRedisOptions, valkey_server};
use tallystone_tests::{ClockShift, lasting_port, patient_connection};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

/// Short, so that another server sweeps soon after a crash; everything is kept in the outbox, to be judged.
const CONFIG: &str = "[server]\nsweeper_leader_lease_ms = 1000\n[outbox]\nevents_max = 1000000000\n";
const POLL: Duration = Duration::from_millis(10);

/// A Redis that is durable, or made worse by `extra_args`, and outlives its crashes.
pub(crate) struct Redis {
    options: PrivateRedisOptions,
    process: Option<PrivateRedis>,
    dir: TempDir,
}

impl Redis {
    pub(crate) async fn start() -> Self {
        Redis::start_on(lasting_port(), Vec::new()).await
    }

    pub(crate) async fn start_on(port: u16, extra_args: Vec<String>) -> Self {
        Redis::start_in(port, extra_args, Vec::new()).await
    }

    /// One whose clock the test sets.
    pub(crate) async fn shifted(shift: &ClockShift) -> Self {
        Redis::start_in(lasting_port(), Vec::new(), shift.environment()).await
    }

    /// A Valkey.
    pub(crate) async fn valkey() -> Self {
        let program = valkey_server().unwrap_or_else(|missing| panic!("{missing}"));
        Redis::start_with(|options| PrivateRedisOptions { program, port: Some(lasting_port()), ..options }).await
    }

    async fn start_in(port: u16, extra_args: Vec<String>, environment: Vec<(&'static str, OsString)>) -> Self {
        let port = Some(port);
        Redis::start_with(|options| PrivateRedisOptions { port, extra_args, environment, ..options }).await
    }

    async fn start_with(changed: impl FnOnce(PrivateRedisOptions) -> PrivateRedisOptions) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let options = changed(PrivateRedisOptions::new(dir.path()));
        let process = PrivateRedis::start(options.clone()).await.expect("a redis-server");
        Redis { options, process: Some(process), dir }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// A connection of the test. It waits for a Redis that is busy.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(self.url()).expect("an address");
        patient_connection(&client).await.expect("a connection")
    }

    /// Drops all of its data.
    pub(crate) async fn flush(&self) {
        let mut connection = self.connection().await;
        redis::cmd("FLUSHALL").exec_async(&mut connection).await.expect("an emptied Redis");
    }

    /// What `tallystone store accept` prints.
    pub(crate) async fn accept(&self) -> serde_json::Value {
        let args = ["store", "accept", "--redis-url", &self.url(), "--json"];
        let accepted = program::run(program::command(&args), "").await;
        assert_eq!(accepted.code, Some(0), "{accepted:?}");
        accepted.object()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").pid()
    }

    /// Sends its process a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().cast_signed()), signal).expect("a process");
    }

    pub(crate) fn port(&self) -> u16 {
        self.options.port.expect("known since the start")
    }

    /// kill -9. No process answers on its port when this returns.
    pub(crate) async fn kill(&mut self) {
        let process = self.process.take().expect("it runs");
        process.kill();
        process.stop().await;
    }

    /// A copy of its data, while it does not run.
    pub(crate) fn copy(&self) -> TempDir {
        let copy = TempDir::new().expect("a temporary folder");
        copy_folder(self.dir.path(), copy.path());
        copy
    }

    /// Gives it the data of a copy, while it does not run.
    pub(crate) fn put_back(&self, copy: &TempDir) {
        for entry in std::fs::read_dir(self.dir.path()).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.expect("removed");
        }
        copy_folder(copy.path(), self.dir.path());
    }

    /// More arguments from the next start on.
    pub(crate) fn add_args(&mut self, args: &[&str]) {
        self.options.extra_args.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    /// The same data on the same port.
    pub(crate) async fn restart(&mut self) {
        let give_up_at = Instant::now() + SOON;
        // Another process may have had the port for a moment.
        self.process = loop {
            match PrivateRedis::start(self.options.clone()).await {
                Ok(process) => break Some(process),
                Err(error) => assert!(Instant::now() < give_up_at, "{error}"),
            }
            sleep(POLL).await;
        };
    }
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            std::fs::create_dir(&target).expect("a folder");
            copy_folder(&entry.path(), &target);
        } else if entry.path().is_file() {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// One process that listens on a port that it keeps.
pub(crate) struct Server {
    address: SocketAddr,
    metrics: Option<SocketAddr>,
    args: Vec<String>,
    environment: Vec<(&'static str, OsString)>,
    process: Option<Running>,
}

/// A file with this configuration (TOML), in a new folder.
pub(crate) fn config_file(text: &str) -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary folder");
    let config = dir.path().join("tallystone.toml");
    std::fs::write(&config, text).expect("a file");
    (dir, config)
}

impl Server {
    /// One of a queue.
    pub(crate) async fn start(redis_url: String, config: &Path) -> Self {
        let config = config.to_str().expect("a plain path");
        Server::start_with_metrics(&["server", "--config", config, "--redis-url", &redis_url, "--log", "warn"]).await
    }

    /// A verb that listens and serves its metrics, with these arguments.
    pub(crate) async fn start_with_metrics(args: &[&str]) -> Self {
        let metrics = SocketAddr::from((Ipv4Addr::LOCALHOST, lasting_port()));
        let listen = metrics.to_string();
        let mut server = Server::start_as(&[args, &["--metrics-listen", &listen]].concat()).await;
        server.metrics = Some(metrics);
        server
    }

    /// A verb that listens, with these arguments.
    pub(crate) async fn start_as(args: &[&str]) -> Self {
        Server::start_in(args, Vec::new()).await
    }

    /// The same with more of an environment.
    pub(crate) async fn start_in(args: &[&str], environment: Vec<(&'static str, OsString)>) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, lasting_port()));
        let args = args.iter().map(|arg| (*arg).to_owned()).chain(["--listen".to_owned(), address.to_string()]);
        let mut server = Server { address, metrics: None, args: args.collect(), environment, process: None };
        server.restart().await;
        server
    }

    /// Starts it, and waits until it listens.
    pub(crate) async fn restart(&mut self) {
        // The first caller builds the program, which is not to be timed here.
        program::path();
        let give_up_at = Instant::now() + SOON;
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let mut why = String::new();
        'start: loop {
            let mut command = program::command(&args);
            command.envs(self.environment.iter().map(|(name, value)| (name, value)));
            let mut process = Running::start(command);
            while TcpStream::connect(self.address).await.is_err() {
                if process.has_ended() {
                    // The port may be taken for a moment, or Redis not be ready yet.
                    why = process.last_words().await;
                    assert!(Instant::now() < give_up_at, "the server does not start: {why}");
                    sleep(POLL).await;
                    continue 'start;
                }
                assert!(Instant::now() < give_up_at, "the server does not listen on {}; it said: {why}", self.address);
                sleep(POLL).await;
            }
            self.process = Some(process);
            return;
        }
    }

    /// kill -9.
    pub(crate) async fn kill(&mut self) {
        self.process.take().expect("it runs").kill().await;
    }

    /// Sends its process a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("it runs").signal(signal);
    }

    /// Stops it in order.
    pub(crate) async fn stop(&mut self) {
        let ended = self.process.take().expect("it runs").stop().await;
        assert!(ended.success(), "it ends with {ended}");
    }

    /// kill -9; its metrics, and what it had written.
    pub(crate) async fn killed(&mut self) -> String {
        let Some(mut process) = self.process.take() else { return String::new() };
        let metrics = match self.metrics {
            Some(_) => self.metrics().await,
            None => String::new(),
        };
        process.send_kill();
        format!("{}\n{metrics}", process.last_words().await)
    }

    /// The page of its metrics.
    pub(crate) async fn metrics(&self) -> String {
        program::metrics_page(&self.metrics.expect("it serves metrics").to_string()).await
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").pid()
    }

    /// Where it answers.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

/// All of them, and a client for each server.
pub(crate) struct Machines {
    pub(crate) redis: Redis,
    pub(crate) servers: [Server; 2],
    pub(crate) clients: [Client; 2],
    _dir: TempDir,
}

/// Clients repeat the same request for longer than any outage of these tests, so that every call is answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Two servers of a queue, and a client for each, which repeats calls for so long.
pub(crate) async fn pair(redis_url: &str, config: &Path, retry_for: Duration) -> ([Server; 2], [Client; 2]) {
    let start = || Server::start(redis_url.to_owned(), config);
    let servers = [start().await, start().await];
    // A call that is not repeated outlasts a moment in which the whole machine hangs.
    let call_timeout = Duration::from_secs(if retry_for.is_zero() { 30 } else { 5 });
    let clients = servers.each_ref().map(|server| {
        let builder = Client::builder(server.url()).retry_for(retry_for);
        builder.call_timeout(call_timeout).connect_lazy().expect("a good address")
    });
    (servers, clients)
}

impl Machines {
    pub(crate) async fn start() -> Self {
        Machines::start_with("", PATIENCE).await
    }

    /// With more configuration (TOML lines, the first of them in `[outbox]`), and with clients that repeat calls for so long.
    pub(crate) async fn start_with(more: &str, retry_for: Duration) -> Self {
        let (dir, config) = config_file(&format!("{CONFIG}{more}"));
        let redis = Redis::start().await;
        let (servers, clients) = pair(&redis.url(), &config, retry_for).await;
        Machines { redis, servers, clients, _dir: dir }
    }
}
