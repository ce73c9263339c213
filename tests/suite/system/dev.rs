//! `tallystone dev`: its data survives restarts, it stops cleanly, and no process of it stays, even after SIGKILL.

use super::program::{self, Ended, Running, SOON};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use tallystone_tests::compact::module;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// A running `tallystone dev`.
pub(crate) struct Dev {
    process: Running,
    /// The JSON object that it wrote when it was ready.
    pub(crate) ready: Value,
    _dir: Option<TempDir>,
}

impl Dev {
    /// Starts it with its data in a temporary folder.
    pub(crate) async fn start() -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let dev = Dev::start_in(dir.path(), &[]).await;
        Dev { _dir: Some(dir), ..dev }
    }

    /// Starts it with its data in this folder.
    pub(crate) async fn start_in(dir: &Path, more_args: &[&str]) -> Self {
        Dev::start_with(dir, more_args, &[]).await
    }

    /// The same, with these environment variables.
    pub(crate) async fn start_with(dir: &Path, more_args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut process = Running::start(Dev::command(dir, more_args, environment));
        let ready = serde_json::from_str(&process.line().await).expect("JSON");
        Dev { process, ready, _dir: None }
    }

    /// The command that starts it.
    pub(crate) fn command(dir: &Path, more_args: &[&str], environment: &[(&str, &str)]) -> Command {
        let dir = dir.to_str().expect("a plain path");
        let args = [&["dev", "--json", "--listen", "127.0.0.1:0", "--data-dir", dir], more_args].concat();
        let mut command = program::command(&args);
        command.envs(environment.iter().copied());
        command
    }

    /// Where it serves.
    pub(crate) fn url(&self) -> &str {
        self.ready["server"].as_str().expect("a URL")
    }

    /// Where it serves counters.
    pub(crate) fn counters(&self) -> &str {
        self.ready["counters"].as_str().expect("a URL")
    }

    /// Runs a verb against it, with --json.
    pub(crate) async fn call(&self, args: &[&str]) -> Ended {
        self.call_with(args, "").await
    }

    /// The same, with this on its standard input.
    pub(crate) async fn call_with(&self, args: &[&str], stdin: &str) -> Ended {
        program::run(program::command(&[&["--json", "--server", self.url()], args].concat()), stdin).await
    }

    /// The same without --json; it must succeed.
    pub(crate) async fn show(&self, args: &[&str]) -> String {
        let ended = program::run(program::command(&[&["--server", self.url()], args].concat()), "").await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        ended.stdout
    }

    /// Runs a verb that must succeed, and returns the one object that it writes.
    pub(crate) async fn ok(&self, args: &[&str]) -> Value {
        let ended = self.call(args).await;
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.object()
    }

    /// Runs a verb of the counters that must succeed, and returns the one object that it writes.
    pub(crate) async fn counter(&self, args: &[&str]) -> Value {
        self.ok(&[&["counter", "--counters", self.counters()], args].concat()).await
    }

    /// Runs a verb of the counters.
    async fn call_counter(&self, args: &[&str]) -> Ended {
        self.call(&[&["counter", "--counters", self.counters()], args].concat()).await
    }

    /// Runs a verb that must be refused for this reason.
    pub(crate) async fn refused(&self, args: &[&str], reason: &str) {
        let ended = self.call(args).await;
        assert_eq!(ended.code, Some(1), "{args:?}: {ended:?}");
        let error: Value = serde_json::from_str(ended.stderr.trim()).expect("JSON");
        assert_eq!(error["reason"], reason, "{args:?}: {error}");
    }

    /// Runs a verb whose only item must be refused for this reason.
    pub(crate) async fn refused_item(&self, args: &[&str], reason: &str) {
        let ended = self.call(args).await;
        assert_eq!(ended.code, Some(1), "{args:?}: {ended:?}");
        assert_eq!(ended.object()["reason"], reason, "{args:?}: {ended:?}");
    }

    /// The password of its Redis.
    pub(crate) fn redis_password(&self) -> String {
        let path = self.ready["redis_conf"].as_str().expect("a path");
        let conf = std::fs::read_to_string(path).expect("a file");
        let line = conf.lines().next().unwrap_or_default();
        line.strip_prefix("requirepass ").expect("a password").to_owned()
    }

    /// Where its Redis listens, with the password.
    pub(crate) fn redis_url(&self) -> String {
        let url = self.ready["redis_url"].as_str().expect("a URL");
        url.replace("://", &format!("://:{}@", self.redis_password()))
    }

    /// A connection to its Redis.
    pub(crate) async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.redis_url()).expect("a valid address");
        tallystone_tests::patient_connection(&client).await.expect("a connection")
    }

    /// Stops it with SIGTERM; it must end without an error.
    pub(crate) async fn stop(self) {
        let status = self.process.stop().await;
        assert!(status.success(), "{status}");
    }

    /// A SIGKILL; returns when its Redis is gone too.
    pub(crate) async fn kill(self) {
        let redis = self.redis_pid();
        self.process.kill().await;
        until_gone(redis).await;
    }

    /// The redis-server that it has started.
    fn redis_pid(&self) -> Pid {
        holder(Path::new(self.ready["data_dir"].as_str().expect("a path")))
    }
}

/// The process that holds the lock of a folder.
fn holder(dir: &Path) -> Pid {
    let holder = std::fs::read_to_string(dir.join("lock")).expect("a lock file");
    let pid = holder.strip_prefix("process ").and_then(|rest| rest.split(',').next()).expect("its process id");
    Pid::from_raw(pid.parse().expect("a number"))
}

/// The first counter of an id in a counter set of a cluster.
async fn published(cluster_url: &str, key: &str, id: u64) -> Option<i64> {
    let (login, hosts) =
        cluster_url.strip_prefix("redis-cluster://").and_then(|rest| rest.split_once('@')).expect("a URL");
    for host in hosts.split(',') {
        let client = redis::Client::open(format!("redis://{login}@{host}")).expect("a valid address");
        let mut connection = tallystone_tests::patient_connection(&client).await.expect("a connection");
        // The other nodes answer MOVED.
        let found: Result<Vec<i64>, _> = redis::cmd("CT.GET").arg(key).arg(id).query_async(&mut connection).await;
        if let Ok(counts) = found {
            return counts.first().copied();
        }
    }
    None
}

/// Waits until no process of a `dev` that was killed holds its folder: the redis-server holds the lock while it lives.
pub(crate) async fn until_folder_is_free(dir: &Path) {
    let Ok(mut lock) = File::open(dir.join("lock")) else { return };
    let give_up_at = Instant::now() + SOON;
    while let Err((file, _)) = Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
        assert!(Instant::now() < give_up_at, "a process still holds {}", dir.display());
        sleep(Duration::from_millis(10)).await;
        lock = file;
    }
}

/// Waits until a process that is not our child is gone.
async fn until_gone(pid: Pid) {
    let give_up_at = Instant::now() + SOON;
    while is_running(pid) {
        assert!(Instant::now() < give_up_at, "process {pid} still runs");
        sleep(Duration::from_millis(10)).await;
    }
}

/// Whether it has not ended. A zombie has ended, though its parent has not waited for it.
fn is_running(pid: Pid) -> bool {
    if kill(pid, None) == Err(Errno::ESRCH) {
        return false;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[tokio::test]
async fn data_survives_stops_and_kills_and_processes_do_not() {
    let dir = TempDir::new().expect("a temporary folder");
    let dev = Dev::start_in(dir.path(), &[]).await;
    assert_eq!(dev.ready["process_id"], dev.process.pid());
    dev.ok(&["queue", "create", "kept", "--exclusive", "tail"]).await;
    dev.ok(&["msg", "enqueue", "kept", "--id", "a", "--meta", "tail=N1"]).await;
    let redis = dev.redis_pid();
    assert!(is_running(redis));
    // A folder has at most one server.
    let second = program::command(&["dev", "--listen", "127.0.0.1:0", "--data-dir", dir.path().to_str().unwrap()]);
    let second = program::run(second, "").await;
    assert_eq!(second.code, Some(3), "{second:?}");
    assert!(second.stderr.contains("already served"), "{second:?}");
    dev.stop().await;
    assert!(!is_running(redis), "a clean stop waits for its Redis");

    let dev = Dev::start_in(dir.path(), &[]).await;
    assert_eq!(dev.ok(&["msg", "get", "kept", "a"]).await["state"], "pending");
    dev.ok(&["msg", "enqueue", "kept", "--id", "b", "--meta", "tail=N1"]).await;
    dev.kill().await;

    let dev = Dev::start_in(dir.path(), &[]).await;
    let ids: Vec<Value> =
        dev.call(&["msg", "ls", "kept"]).await.json().iter().map(|message| message["id"].clone()).collect();
    assert_eq!(ids, ["a", "b"]);
    dev.stop().await;
}

#[tokio::test]
async fn q17_a_cluster_survives_the_loss_of_a_node_and_restarts() {
    let dir = TempDir::new().expect("a temporary folder");
    let dev = Dev::start_in(dir.path(), &["--cluster"]).await;
    let nodes = |dev: &Dev| {
        let data = dev.ready["data_dir"].as_str().expect("a path").to_owned();
        (1..=6).map(|number| holder(&Path::new(&data).join(format!("node-{number}")))).collect::<Vec<Pid>>()
    };
    let queues: Vec<String> = (0..8).map(|number| format!("kept{number}")).collect();
    for queue in &queues {
        dev.ok(&["msg", "enqueue", queue, "--id", "a"]).await;
        dev.counter(&["add", queue, "3"]).await;
    }
    // A counter set is one key, on whichever primary has its slot.
    dev.counter(&["namespace", "put", "shown", "--type", "accurate", "--publish-to", "board", "views"]).await;
    dev.counter(&["add", "--namespace", "shown", "7", "5"]).await;
    let url = dev.redis_url();
    dev.counter(&["namespace", "republish", "--create", "--redis-url", &url, "shown"]).await;
    dev.counter(&["add", "--namespace", "shown", "7", "4"]).await;
    let give_up_at = Instant::now() + SOON;
    while published(&url, "board", 7).await != Some(9) {
        assert!(Instant::now() < give_up_at, "the count is not published");
        sleep(Duration::from_millis(50)).await;
    }
    let killed = nodes(&dev)[0];
    kill(killed, Signal::SIGKILL).expect("it runs");
    // Its replica takes its place, and every queue and counter is served.
    for queue in &queues {
        let give_up_at = Instant::now() + SOON;
        loop {
            // The same message again, so a try that has acted changes nothing.
            let enqueued = dev.call(&["msg", "enqueue", queue, "--id", "b"]).await;
            if enqueued.code == Some(0) {
                break;
            }
            // The failover took longer than the command repeats its call: the message has this error, or the whole call has it.
            let error = enqueued.stderr.to_ascii_lowercase();
            assert!(error.contains("unavailable"), "{queue}: {enqueued:?}");
            assert!(Instant::now() < give_up_at, "{queue} is not served");
        }
        let give_up_at = Instant::now() + SOON;
        loop {
            let added = dev.call_counter(&["add", queue, "4"]).await;
            if added.code == Some(0) {
                break;
            }
            // The failover took longer than an add may be late. It has certainly not counted.
            assert!(added.stderr.contains("TOO_OLD"), "{queue}: {added:?}");
            assert!(Instant::now() < give_up_at, "the counters of {queue} are not served");
        }
    }
    let give_up_at = Instant::now() + SOON;
    while nodes(&dev)[0] == killed {
        assert!(Instant::now() < give_up_at, "the node does not start again");
        sleep(Duration::from_millis(50)).await;
    }
    dev.stop().await;

    let dev = Dev::start_in(dir.path(), &["--cluster"]).await;
    let running = nodes(&dev);
    for queue in &queues {
        for id in ["a", "b"] {
            assert_eq!(dev.ok(&["msg", "get", queue, id]).await["state"], "pending");
        }
        assert_eq!(dev.counter(&["get", queue]).await["count"], 7);
    }
    dev.process.kill().await;
    for node in running {
        until_gone(node).await;
    }
}

#[tokio::test]
async fn it_ends_when_its_redis_ends_and_reports_errors_before_it_is_ready() {
    let dir = TempDir::new().expect("a temporary folder");
    let mut dev = Dev::start_in(dir.path(), &[]).await;
    dev.ok(&["msg", "enqueue", "kept", "--id", "a"]).await;
    kill(dev.redis_pid(), Signal::SIGKILL).expect("it runs");
    let said = dev.process.last_words().await;
    assert!(said.contains("the private Redis has ended"), "{said}");
    let dev = Dev::start_in(dir.path(), &[]).await;
    assert_eq!(dev.ok(&["msg", "get", "kept", "a"]).await["state"], "pending");
    dev.stop().await;

    // Errors come before the line that says it is ready.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound port").to_string();
    let folder = dir.path().to_str().expect("a plain path");
    let args = ["dev", "--json", "--listen", "127.0.0.1:0", "--data-dir", folder, "--metrics-listen", &address];
    let refused = program::run(program::command(&args), "").await;
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{refused:?}");
    assert!(refused.stderr.contains(&address), "{refused:?}");
    let mut elsewhere = program::command(&args[..6]);
    elsewhere.env("TALLYSTONE_REDIS_URL", "redis://127.0.0.1:1");
    let refused = program::run(elsewhere, "").await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("redis.url"), "{refused:?}");
}

#[tokio::test]
async fn the_banner_shows_every_address() {
    let dir = TempDir::new().expect("a temporary folder");
    let args = ["dev", "--listen", "127.0.0.1:0", "--data-dir", dir.path().to_str().unwrap()];
    let mut command = program::command(&args);
    command.env("TALLYSTONE_COMPACT_MODULE", module());
    let mut process = Running::start(command);
    let mut banner = String::new();
    while !banner.contains("Ctrl-C") {
        banner += &format!("{}\n", process.line().await);
    }
    for words in [
        "Tallystone is ready",
        "http://127.0.0.1:",
        "redis://127.0.0.1:",
        "msg enqueue",
        "TALLYSTONE_SERVER=",
        "ACCURATE",
        "with the compact store",
    ] {
        assert!(banner.contains(words), "{words}: {banner}");
    }
    assert!(process.stop().await.success());
}

#[tokio::test]
async fn w1_its_redis_has_the_compact_store() {
    let dir = TempDir::new().expect("a temporary folder");
    let library = module().canonicalize().expect("a file");
    let path = library.to_str().expect("a plain path");
    let dev = Dev::start_with(dir.path(), &[], &[("TALLYSTONE_COMPACT_MODULE", path)]).await;
    assert_eq!(dev.ready["compact_module"], path);
    let mut redis = dev.redis().await;
    let mut create = redis::cmd("CT.CREATE");
    create.arg("posts").arg("SCHEMA").arg("likes").arg(24).arg("views").arg(24);
    create.exec_async(&mut redis).await.expect("created");
    let mut increment = redis::cmd("CT.INCRBY");
    increment.arg("posts").arg(5).arg("views").arg(7);
    increment.exec_async(&mut redis).await.expect("counted");
    let found: Vec<i64> = redis::cmd("CT.GET").arg("posts").arg(5).query_async(&mut redis).await.expect("values");
    assert_eq!(found, [0, 7]);
    dev.stop().await;
}

#[tokio::test]
async fn data_lives_in_the_xdg_folder_by_default() {
    let (home, here) = (TempDir::new().expect("a temporary folder"), TempDir::new().expect("a temporary folder"));
    std::fs::create_dir_all(here.path().join(".tallystone/dev")).expect("a folder");
    let xdg = home.path().join("data");
    for (variable, value, folder) in [
        ("HOME", home.path(), home.path().join(".local/share/tallystone/dev")),
        ("XDG_DATA_HOME", xdg.as_path(), xdg.join("tallystone/dev")),
    ] {
        let mut command = program::command(&["dev", "--json", "--listen", "127.0.0.1:0"]);
        command.env(variable, value).current_dir(here.path());
        let mut process = Running::start(command);
        let ready: Value = serde_json::from_str(&process.line().await).expect("JSON");
        assert_eq!(ready["data_dir"].as_str().map(Path::new), Some(&*folder.canonicalize().expect("a folder")));
        process.signal(Signal::SIGTERM);
        let logged = process.last_words().await;
        assert!(logged.contains(".tallystone/dev has data of an earlier version"), "{logged}");
    }
}

#[tokio::test]
async fn the_default_namespace_is_accurate_and_says_so() {
    let dev = Dev::start().await;
    let namespace = dev.counter(&["namespace", "get", "default"]).await;
    assert_eq!(namespace["config"]["counter_type"], "accurate", "{namespace:#}");
    dev.counter(&["namespace", "put", "hits", "--type", "best-effort"]).await;
    let counters = dev.ready["counters"].as_str().expect("a URL");
    let add = ["counter", "--counters", counters, "add", "page", "5", "--get", "--namespace", "hits"];
    let shown = program::run(program::command(&add), "").await.stdout;
    assert!(shown.ends_with("5  (best effort)\n"), "{shown}");
    dev.stop().await;
}
