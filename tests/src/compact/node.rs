//! One engine process with the module.

use super::{Reply, Wire, module};
use crate::lasting_port;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tallystone_local::{Fsync, PrivateRedis, PrivateRedisOptions, valkey_server};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long a test waits for something that takes much less, since the machine may be busy.
const SOON: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The environment's `TALLYSTONE_REDIS_SERVER`, else `redis-server`.
    Redis,
    /// The one that `scripts/services.sh --tests` installs.
    Valkey,
}

impl Engine {
    /// Both.
    pub const ALL: [Engine; 2] = [Engine::Redis, Engine::Valkey];
}

/// How a node starts. By default a Redis with the append-only file and fsync before each reply.
#[derive(Clone, Debug)]
pub struct Setup {
    program: PathBuf,
    args: Vec<String>,
    fsync: Fsync,
    folder: Option<PathBuf>,
    cold: Option<PathBuf>,
}

impl Setup {
    /// The default.
    pub fn new(engine: Engine) -> Setup {
        let program = match engine {
            Engine::Redis => PrivateRedisOptions::new("").program,
            Engine::Valkey => valkey_server().unwrap_or_else(|missing| panic!("{missing}")),
        };
        Setup { program, args: Vec::new(), fsync: Fsync::Always, folder: None, cold: None }
    }

    /// Another program of this kind.
    #[must_use]
    pub fn program(self, path: &Path) -> Setup {
        Setup { program: path.to_owned(), ..self }
    }

    /// Another program, which starts this one. `wrap` makes it.
    #[must_use]
    pub fn wrapped(self, wrap: impl FnOnce(&Path) -> PathBuf) -> Setup {
        Setup { program: wrap(&self.program), ..self }
    }

    /// More arguments, the words of a line: `--appendonly no`.
    #[must_use]
    pub fn args(mut self, line: &str) -> Setup {
        self.args.extend(line.split_ascii_whitespace().map(str::to_owned));
        self
    }

    /// The append-only file is not synced: the test is not about crashes.
    #[must_use]
    pub fn without_fsync(self) -> Setup {
        Setup { fsync: Fsync::No, ..self }
    }

    /// Without an append-only file.
    #[must_use]
    pub fn without_log(self) -> Setup {
        self.args("--appendonly no")
    }

    /// Another data folder, which outlives the node.
    #[must_use]
    pub fn folder(self, folder: &Path) -> Setup {
        Setup { folder: Some(folder.to_owned()), ..self }
    }

    /// Another folder for the files of cold tables.
    #[must_use]
    pub fn cold(self, folder: &Path) -> Setup {
        Setup { cold: Some(folder.to_owned()), ..self }
    }

    /// Starts it in a separate folder.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(self) -> Node {
        let dir = TempDir::new().expect("a temporary folder");
        let folder = self.folder.unwrap_or_else(|| dir.path().to_owned());
        let cold = self.cold.unwrap_or_else(|| folder.join("cold"));
        let defaults = PrivateRedisOptions::new(folder);
        let path = |path: &Path| path.to_str().expect("a plain path").to_owned();
        let mut extra_args = vec!["--loadmodule".to_owned(), path(module()), "dir".to_owned(), path(&cold)];
        extra_args.extend(["--enable-debug-command", "local"].map(str::to_owned));
        extra_args.extend(["--repl-diskless-sync-delay", "0"].map(str::to_owned));
        extra_args.extend(self.args);
        let (port, fsync) = (Some(lasting_port()), self.fsync);
        let mut node = Node {
            options: PrivateRedisOptions { program: self.program, port, fsync, extra_args, ..defaults },
            process: None,
            cold,
            _dir: dir,
        };
        node.start_again();
        node
    }
}

/// A process that can be killed and started again on its port, with its data.
pub struct Node {
    options: PrivateRedisOptions,
    // Before the folder, so that it stops before the folder goes.
    process: Option<PrivateRedis>,
    cold: PathBuf,
    _dir: TempDir,
}

/// What the starts of processes run on: [`PrivateRedis`] is asynchronous.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let build = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    RUNTIME.get_or_init(|| build().expect("a runtime"))
}

impl Node {
    /// Starts it where it was.
    ///
    /// # Panics
    /// It does not start.
    pub fn start_again(&mut self) {
        if let Err(why) = self.try_start() {
            panic!("{} does not start: {why}\n{}", self.options.program.display(), self.log_tail());
        }
    }

    /// The same. `Err`: why it refuses.
    pub fn try_start(&mut self) -> Result<(), String> {
        assert!(self.process.is_none(), "it runs");
        let started = runtime().block_on(PrivateRedis::start(self.options.clone()));
        self.process = Some(started.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.options.port.expect("known since the start")
    }

    /// Its process.
    ///
    /// # Panics
    /// It does not run.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").pid()
    }

    /// Its data folder.
    pub fn dir(&self) -> &Path {
        &self.options.data_dir
    }

    /// The program.
    pub fn program(&self) -> &Path {
        &self.options.program
    }

    /// A new connection.
    ///
    /// # Panics
    /// It does not listen.
    pub fn wire(&self) -> Wire {
        Wire::connect(self.port()).unwrap_or_else(|error| panic!("{error}\n{}", self.log_tail()))
    }

    /// Whether it answers.
    pub fn answers(&self) -> bool {
        Wire::connect(self.port()).is_ok_and(|mut wire| wire.try_call(&["PING"]).is_ok())
    }

    /// kill -9. No process answers on its port when this returns.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Stops it, everything written.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Stops it and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.start_again();
    }

    /// More arguments from the next start on.
    pub fn add_args(&mut self, line: &str) {
        self.options.extra_args.extend(line.split_ascii_whitespace().map(str::to_owned));
    }

    /// Makes it the replica of another, and waits until it has its data and what came since.
    pub fn follow(&self, primary: &Node) {
        self.wire().done(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        self.has_caught_up_with(primary);
    }

    /// Waits until it has all that its primary has written.
    pub fn has_caught_up_with(&self, primary: &Node) {
        let offset = |node: &Node, field: &str| node.info("replication", field).parse::<u64>().ok();
        eventually("the replica has all writes", || {
            self.info("replication", "master_link_status") == "up"
                && offset(self, "slave_repl_offset") == offset(primary, "master_repl_offset")
        });
    }

    /// A field of `INFO`; empty if there is none.
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.wire().done(&format!("INFO {section}")).text();
        let prefix = format!("{field}:");
        info.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().trim().to_owned()
    }

    /// `DEBUG DIGEST-VALUE` of a key.
    pub fn digest(&self, key: &str) -> String {
        self.wire().run(&format!("DEBUG DIGEST-VALUE {key}")).items()[0].text()
    }

    /// All ids with their values, by `CT.SCAN`.
    ///
    /// # Panics
    /// A page of the scan is refused.
    pub fn scan(&self, key: &str) -> std::collections::BTreeMap<u64, Vec<i64>> {
        let (mut wire, mut found, mut cursor) = (self.wire(), std::collections::BTreeMap::new(), "0".to_owned());
        loop {
            let reply = wire.done(&format!("CT.SCAN {key} {cursor} COUNT 1000"));
            let items = reply.items();
            for item in &items[1..] {
                let row = item.items();
                let id = row[0].text().parse().expect("an id");
                found.insert(id, row[1..].iter().map(Reply::int).collect());
            }
            cursor = items[0].text();
            if cursor == "0" {
                return found;
            }
        }
    }

    /// What `CT.CHECK` finds wrong in all of a key.
    pub fn faults(&self, key: &str) -> Vec<String> {
        let (mut wire, mut faults, mut cursor) = (self.wire(), Vec::new(), "0".to_owned());
        loop {
            let reply = wire.done(&format!("CT.CHECK {key} {cursor}"));
            faults.extend(reply.items()[1..].iter().map(Reply::text));
            cursor = reply.items()[0].text();
            if cursor == "0" {
                return faults;
            }
        }
    }

    /// Rewrites the append-only file, and returns the file of what was rewritten.
    ///
    /// # Panics
    /// It fails.
    pub fn rewrite_log(&self) -> PathBuf {
        self.wire().done("BGREWRITEAOF");
        let info = |field: &str| self.info("persistence", field);
        eventually("the log is rewritten", || {
            info("aof_rewrite_in_progress") == "0" && info("aof_rewrite_scheduled") == "0"
        });
        assert_eq!(info("aof_last_bgrewrite_status"), "ok");
        let folder = std::fs::read_dir(self.dir().join("appendonlydir")).expect("a folder");
        let mut files = folder.flatten().map(|entry| entry.path());
        files.find(|path| path.to_string_lossy().contains(".base.")).expect("a rewritten file")
    }

    /// The files of cold tables that are there.
    pub fn cold_files(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.cold).into_iter().flatten().flatten().map(|entry| entry.path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "cold")).collect()
    }

    /// All that its log says.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir().join("redis.log")).unwrap_or_default()
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the log of {} on port {}:\n{}", self.options.program.display(), self.port(), self.log_tail());
        }
    }
}

/// Waits until this holds.
///
/// # Panics
/// It does not, for a minute.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up_at = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < give_up_at, "it never comes that {what}");
        std::thread::sleep(POLL);
    }
}
