//! The program under attack: a queue's server with its own limit of open files, and with metrics.

use crate::system::program::{self, Running, SOON, metrics_page};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;
use tallystone_client::{Client, NewMessage};
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_tests::{TestRedis, lasting_port};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint};

const POLL: Duration = Duration::from_millis(10);

/// The process, and what it needs.
pub(super) struct Victim {
    pub(super) address: SocketAddr,
    pub(super) metrics: SocketAddr,
    process: Running,
    redis: TestRedis,
    _dir: TempDir,
}

impl Victim {
    /// Starts it with these limits (TOML lines), and waits until it listens.
    pub(super) async fn start(limits: &str, files_max: u32) -> Victim {
        let (redis, dir) = (TestRedis::start().await, TempDir::new().expect("a temporary folder"));
        let config = dir.path().join("tallystone.toml");
        std::fs::write(&config, format!("[limits]\n{limits}")).expect("a file");
        let [address, metrics] = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::LOCALHOST, lasting_port())));
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files_max} && exec \"$0\" \"$@\"")]).arg(program::path());
        command.args(["server", "--allow-volatile", "--log", "warn", "--redis-url", &redis.url(), "--config"]);
        command.arg(&config).args(["--listen", &address.to_string(), "--metrics-listen", &metrics.to_string()]);
        command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
        let mut process = Running::start(command);
        process.listens(address).await;
        Victim { address, metrics, process, redis, _dir: dir }
    }

    /// A client on a new connection.
    pub(super) fn innocent(&self) -> Client {
        Client::builder(format!("http://{}", self.address)).connect_lazy().expect("a good address")
    }

    /// The calls as they are on the wire, on a new connection.
    pub(super) async fn calls(&self) -> QueueClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).expect("an address");
        QueueClient::new(endpoint.connect().await.expect("a connection"))
    }

    /// Its resident memory.
    pub(super) fn memory_kib(&self) -> u64 {
        memory_kib(self.process.pid())
    }

    /// The most that it ever had.
    pub(super) fn peak_memory_kib(&self) -> u64 {
        peak_memory_kib(self.process.pid())
    }

    /// Kills it; the log that it has written.
    pub(super) async fn log(mut self) -> String {
        self.process.send_kill();
        self.process.last_words().await
    }

    /// The memory of its Redis that has data.
    pub(super) async fn redis_bytes(&self) -> u64 {
        let client = redis::Client::open(self.redis.url()).expect("an address");
        let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let info: redis::InfoDict = redis::cmd("INFO").arg("memory").query_async(&mut connection).await.expect("INFO");
        info.get("used_memory").expect("a number")
    }

    /// The sum of a metric over its labels.
    pub(super) async fn metric(&self, name: &str) -> f64 {
        let page = metrics_page(&self.metrics.to_string()).await;
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.starts_with([' ', '{']).then(|| rest.rsplit(' ').next()?.parse::<f64>().ok())?
        });
        values.sum()
    }

    /// Waits until a metric has this value.
    pub(super) async fn until(&self, name: &str, value: f64) {
        let give_up_at = Instant::now() + SOON;
        loop {
            let now = self.metric(name).await;
            if now == value {
                return;
            }
            assert!(Instant::now() < give_up_at, "{name} is {now}, not {value}");
            sleep(POLL).await;
        }
    }
}

/// The resident memory of a process.
pub(super) fn memory_kib(pid: u32) -> u64 {
    status_kib(pid, "VmRSS:")
}

/// The most that it ever had.
pub(super) fn peak_memory_kib(pid: u32) -> u64 {
    status_kib(pid, "VmHWM:")
}

fn status_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("memory");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A message through a client, which no attack of another one stops.
pub(super) async fn works(client: &Client, id: &str) {
    let enqueued = client.enqueue("q", vec![NewMessage::new(id, "payload")]).await.expect("an Enqueue");
    assert!(enqueued.iter().all(Result::is_ok), "{enqueued:?}");
}
