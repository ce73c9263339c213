//! The program under attack: a queue's server with its own limit of open files, and with metrics.

use crate::system::program::{self, Running, SOON, metrics_page};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;
use tallystone_client::{Client, NewMessage};
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_tests::{Polling, TestRedis, lasting_port, patient_connection};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

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

    /// The processor time that it has used.
    pub(super) fn cpu(&self) -> Duration {
        // The unit in which the system shows times, whatever its own clock has.
        const TICKS_PER_S: u64 = 100;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.pid())).expect("it runs");
        // The name may have spaces. User and system time are the 12th and the 13th field behind it.
        let (_, fields) = stat.rsplit_once(')').expect("a name");
        let ticks = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number"));
        Duration::from_millis(ticks.sum::<u64>() * 1_000 / TICKS_PER_S)
    }

    /// How many files it has open.
    pub(super) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.process.pid())).expect("it runs").count()
    }

    /// From now on the system lets it open so many files. It has read its limit at its start, so it does not notice.
    pub(super) async fn limit_files(&self, files_max: usize) {
        let mut command = Command::new("prlimit");
        command.args(["--pid", &self.process.pid().to_string(), &format!("--nofile={files_max}:{files_max}")]);
        assert!(command.status().await.expect("prlimit is there").success());
    }

    /// Kills it; the log that it has written.
    pub(super) async fn log(mut self) -> String {
        self.process.send_kill();
        self.process.last_words().await
    }

    /// The memory of its Redis that has data.
    pub(super) async fn redis_bytes(&self) -> u64 {
        self.redis_info("memory").await.get("used_memory").expect("a number")
    }

    /// The processor time that its Redis has used.
    pub(super) async fn redis_cpu(&self) -> Duration {
        let info = self.redis_info("cpu").await;
        let seconds = |name: &str| info.get::<f64>(name).expect("a number");
        Duration::from_secs_f64(seconds("used_cpu_user") + seconds("used_cpu_sys"))
    }

    async fn redis_info(&self, section: &str) -> redis::InfoDict {
        let client = redis::Client::open(self.redis.url()).expect("an address");
        let mut connection = patient_connection(&client).await.expect("a connection");
        redis::cmd("INFO").arg(section).query_async(&mut connection).await.expect("INFO")
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
        let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
        loop {
            let now = self.metric(name).await;
            if now == value {
                return;
            }
            assert!(Instant::now() < give_up_at, "{name} is {now}, not {value}");
            polling.pause().await;
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
