//! A redis-server of our own: a child process on 127.0.0.1 with its data in one folder, for `tallystone dev`, the
//! demo, the bench and the tests.
//!
//! The child never outlives us, even when we are killed with -9, and one folder never has two of them:
//! - It is started through `setpriv --pdeathsig TERM`. The kernel sends that signal when the *thread* that started
//!   the child ends, not the process, so a thread of its own starts it and stays until it has exited.
//! - Its standard input is the folder's lock file, so the lock lasts exactly as long as the redis, not as long as we.

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long a redis that is still stopping may hold the folder.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How long a redis may take until it answers at all; loading a large file does not count.
const ANSWER_WAIT: Duration = Duration::from_secs(30);
/// How long a clean stop may take before SIGKILL.
const STOP_WAIT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// A free port may be taken by somebody else before redis binds it.
const PORT_TRIES: usize = 3;

/// When redis writes its append-only file to the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Before each reply (Q16).
    #[default]
    Always,
    /// Once a second: a crash of the machine loses a second.
    EverySecond,
    /// When the kernel likes.
    No,
}

impl Fsync {
    fn argument(self) -> &'static str {
        match self {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::No => "no",
        }
    }
}

/// What to start.
#[derive(Clone, Debug)]
pub struct PrivateRedisOptions {
    /// The program; by default the environment's `TALLYSTONE_REDIS_SERVER`, else `redis-server`.
    pub program: PathBuf,
    /// Where its data, log (`redis.log`) and lock live; made if it is not there.
    pub data_dir: PathBuf,
    /// Its port; `None`: a free one.
    pub port: Option<u16>,
    /// When writes reach the disk.
    pub fsync: Fsync,
    /// More arguments, as on the command line of redis-server: `["--maxmemory", "64mb"]`.
    pub extra_args: Vec<String>,
}

impl PrivateRedisOptions {
    /// The defaults, in this folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        let program = std::env::var_os("TALLYSTONE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        PrivateRedisOptions {
            program: program.into(),
            data_dir: data_dir.into(),
            port: None,
            fsync: Fsync::default(),
            extra_args: Vec::new(),
        }
    }
}

/// Why there is no redis.
#[derive(Debug, thiserror::Error)]
pub enum PrivateRedisError {
    /// The program is not there.
    #[error(
        "{} is not installed; install Redis 7 or newer (Debian, Ubuntu: apt-get install redis-server), \
         or name a program in TALLYSTONE_REDIS_SERVER", program.display()
    )]
    NotInstalled {
        /// What was looked for.
        program: PathBuf,
    },
    /// `setpriv` is not there.
    #[error("setpriv is not installed; install util-linux 2.33 or newer (Debian, Ubuntu: apt-get install util-linux)")]
    NoSetpriv,
    /// The folder cannot be used.
    #[error("cannot use the data folder {}: {source}", path.display())]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another redis serves the folder.
    #[error("the data folder {} is already served by a running redis ({holder}); stop that first", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// Its process and port, as far as known.
        holder: String,
    },
    /// It could not be started, or ended at once.
    #[error("redis-server ended at once ({status}): {log_tail}")]
    Exited {
        /// How it ended.
        status: String,
        /// The last lines of its log.
        log_tail: String,
    },
    /// It does not answer.
    #[error("redis-server runs but does not answer; see {}", log.display())]
    Unresponsive {
        /// Its log.
        log: PathBuf,
    },
}

/// A running redis-server. Dropping it stops it.
#[derive(Debug)]
pub struct PrivateRedis {
    port: u16,
    child: Arc<Child>,
}

impl PrivateRedis {
    /// Starts it and waits until it answers, its file loaded.
    pub async fn start(options: PrivateRedisOptions) -> Result<PrivateRedis, PrivateRedisError> {
        let unusable = |source| PrivateRedisError::DataDir { path: options.data_dir.clone(), source };
        std::fs::create_dir_all(&options.data_dir).map_err(unusable)?;
        let dir = options.data_dir.canonicalize().map_err(unusable)?;
        let mut tries = if options.port.is_some() { 1 } else { PORT_TRIES };
        loop {
            let lock = lock(&dir).await?;
            let port = options.port.map_or_else(free_port, Ok).map_err(unusable)?;
            tries -= 1;
            match start_on(&options, &dir, port, lock).await {
                Err(PrivateRedisError::Exited { log_tail, .. }) if tries > 0 && log_tail.contains("in use") => {}
                outcome => return outcome,
            }
        }
    }

    /// Where it listens: `redis://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.pid.as_raw().unsigned_abs()
    }

    /// Waits until it has ended, whoever ended it.
    pub async fn ended(&self) {
        self.child.gone.cancelled().await;
    }

    /// Whether it has.
    pub fn has_ended(&self) -> bool {
        self.child.gone.is_cancelled()
    }

    /// Stops it, everything written, and waits until it has ended.
    pub async fn stop(self) {
        self.child.signal(Signal::SIGTERM);
        let child = self.child.clone();
        // The wait blocks; the drop of `self` then finds the child ended.
        if let Err(error) = tokio::task::spawn_blocking(move || child.end()).await {
            tracing::warn!(%error, "could not wait for redis to stop");
        }
    }

    /// Kills it with SIGKILL, as a crash would, without waiting: a new start in the same folder waits for its end.
    pub fn kill(&self) {
        self.child.signal(Signal::SIGKILL);
    }
}

impl Drop for PrivateRedis {
    fn drop(&mut self) {
        // Waits, so that a temporary data folder can be removed after it.
        self.child.signal(Signal::SIGTERM);
        self.child.end();
    }
}

/// The process, watched by its thread.
#[derive(Debug)]
struct Child {
    pid: Pid,
    /// Set before the process is reaped: a signal can never reach another process that got the same id.
    ended: Mutex<Option<ExitStatus>>,
    has_ended: Condvar,
    /// The same, for those who wait without blocking.
    gone: CancellationToken,
}

impl Child {
    fn ended(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn signal(&self, signal: Signal) {
        if self.ended().is_none() {
            // Not reaped, so it is there; and it is ours, so we may.
            let _ = kill(self.pid, signal);
        }
    }

    /// Blocks until it has ended; after [`STOP_WAIT`] with SIGKILL.
    fn end(&self) {
        let running = |ended: &mut Option<ExitStatus>| ended.is_none();
        let (ended, timeout) =
            self.has_ended.wait_timeout_while(self.ended(), STOP_WAIT, running).unwrap_or_else(PoisonError::into_inner);
        drop(ended);
        if timeout.timed_out() {
            self.signal(Signal::SIGKILL);
            let _ended = self.has_ended.wait_while(self.ended(), running).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

async fn start_on(
    options: &PrivateRedisOptions,
    dir: &Path,
    port: u16,
    mut lock: Flock<File>,
) -> Result<PrivateRedis, PrivateRedisError> {
    let unusable = |source| PrivateRedisError::DataDir { path: dir.to_owned(), source };
    let log_path = dir.join("redis.log");
    let log = OpenOptions::new().create(true).append(true).open(&log_path).map_err(unusable)?;
    let log_from = log.metadata().map_err(unusable)?.len();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--"]).arg(&options.program);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--daemonize", "no", "--dir"]).arg(dir);
    command.args(["--appendonly", "yes", "--appendfsync", options.fsync.argument(), "--save", ""]);
    command.args(["--maxmemory-policy", "noeviction"]).args(&options.extra_args);
    // A group of its own: Ctrl-C in a terminal reaches us alone, and we stop it after the server.
    command.process_group(0).stdin(lock.try_clone().map_err(unusable)?);
    command.stdout(log.try_clone().map_err(unusable)?).stderr(Stdio::from(log));

    let (started, on_start) = oneshot::channel();
    let keeper = move || {
        let mut process = match command.spawn() {
            Ok(process) => process,
            Err(error) => return drop(started.send(Err(error))),
        };
        // Its handles are ours no more: the lock file's would outlast the child otherwise.
        drop(command);
        let holder =
            lock.set_len(0).and_then(|()| lock.write_all(format!("process {}, port {port}", process.id()).as_bytes()));
        if let Err(error) = holder {
            tracing::warn!(%error, "the lock file does not name its holder");
        }
        let pid = Pid::from_raw(process.id().cast_signed());
        let child =
            Arc::new(Child { pid, ended: Mutex::new(None), has_ended: Condvar::new(), gone: CancellationToken::new() });
        // The caller may be gone already: then the drop below stops the child, whom nobody else could.
        if started.send(Ok(child.clone())).is_err() {
            child.signal(Signal::SIGTERM);
        }
        while let Err(nix::errno::Errno::EINTR) = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {}
        let mut ended = child.ended();
        *ended = Some(process.wait().unwrap_or_default());
        child.has_ended.notify_all();
        child.gone.cancel();
        drop(lock);
    };
    std::thread::Builder::new().name("redis-keeper".to_owned()).spawn(keeper).map_err(unusable)?;
    let child = match on_start.await {
        Ok(Ok(child)) => child,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => return Err(PrivateRedisError::NoSetpriv),
        Ok(Err(error)) => return Err(PrivateRedisError::Exited { status: error.to_string(), log_tail: String::new() }),
        Err(_) => unreachable!("the keeper always answers"),
    };

    let redis = PrivateRedis { port, child };
    let mut answer_by = Instant::now() + ANSWER_WAIT;
    loop {
        match ask(&redis.url(), redis.pid()).await {
            Answer::Ready => return Ok(redis),
            Answer::Loading => answer_by = Instant::now() + ANSWER_WAIT,
            Answer::None => {}
        }
        let ended = *redis.child.ended();
        if let Some(status) = ended {
            // What setpriv answers when there is no such program.
            if status.code() == Some(127) {
                return Err(PrivateRedisError::NotInstalled { program: options.program.clone() });
            }
            let log_tail = log_tail(&log_path, log_from);
            return Err(PrivateRedisError::Exited { status: status.to_string(), log_tail });
        }
        if Instant::now() > answer_by {
            return Err(PrivateRedisError::Unresponsive { log: log_path });
        }
        tokio::time::sleep(POLL).await;
    }
}

enum Answer {
    Ready,
    Loading,
    None,
}

/// Whether the redis at `url` is the process `pid`, and ready.
async fn ask(url: &str, pid: u32) -> Answer {
    let info = async {
        let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        redis::cmd("INFO").query_async::<String>(&mut connection).await
    };
    match info.await {
        Ok(info) if !info.lines().any(|line| line == format!("process_id:{pid}")) => Answer::None,
        Ok(info) if info.lines().any(|line| line == "loading:0") => Answer::Ready,
        Ok(_) => Answer::Loading,
        Err(_) => Answer::None,
    }
}

/// The lock of the folder. Waits a little: the redis before may be stopping.
async fn lock(dir: &Path) -> Result<Flock<File>, PrivateRedisError> {
    let unusable = |source| PrivateRedisError::DataDir { path: dir.to_owned(), source };
    let give_up_at = Instant::now() + LOCK_WAIT;
    let path = dir.join("lock");
    let mut file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(unusable)?;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) if Instant::now() > give_up_at => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).map_err(unusable)?;
                return Err(PrivateRedisError::InUse { path: dir.to_owned(), holder });
            }
            Err((file, nix::errno::Errno::EWOULDBLOCK)) => file,
            Err((_, errno)) => return Err(unusable(errno.into())),
        };
        tokio::time::sleep(POLL).await;
    }
}

fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// The last lines that this start wrote, as one line.
fn log_tail(path: &Path, from: u64) -> String {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.take(64 * 1024).read_to_end(&mut text)?;
        io::Result::Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("no log: {error}"));
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).rev().take(4).collect();
    lines.reverse();
    lines.join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn set(redis: &PrivateRedis, value: u64) {
        let mut connection =
            redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
        redis::cmd("SET").arg("k").arg(value).query_async::<()>(&mut connection).await.unwrap();
    }

    async fn get(redis: &PrivateRedis) -> u64 {
        let mut connection =
            redis::Client::open(redis.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
        redis::cmd("GET").arg("k").query_async(&mut connection).await.unwrap()
    }

    #[tokio::test]
    async fn q16_what_was_acknowledged_survives_a_stop_and_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let options = PrivateRedisOptions::new(dir.path());
        let redis = PrivateRedis::start(options.clone()).await.unwrap();
        set(&redis, 1).await;
        redis.stop().await;

        let redis = PrivateRedis::start(options.clone()).await.unwrap();
        assert_eq!(get(&redis).await, 1);
        set(&redis, 2).await;
        let (port, pid) = (redis.port(), redis.pid());
        redis.kill();

        let again = PrivateRedis::start(PrivateRedisOptions { port: Some(port), ..options }).await.unwrap();
        assert_eq!(get(&again).await, 2);
        assert_ne!(again.pid(), pid);
        // Harmless: the process behind it is gone.
        drop(redis);
        assert_eq!(get(&again).await, 2);
    }

    #[tokio::test]
    async fn a_folder_has_one_redis() {
        let dir = tempfile::tempdir().unwrap();
        let redis = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.unwrap();
        let error = PrivateRedis::start(PrivateRedisOptions::new(dir.path())).await.unwrap_err().to_string();
        assert!(error.contains(&format!("process {}, port {}", redis.pid(), redis.port())), "{error}");
    }

    #[tokio::test]
    async fn what_is_missing_or_wrong_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let options = PrivateRedisOptions::new(dir.path());
        let missing = PrivateRedisOptions { program: "no-such-redis".into(), ..options.clone() };
        let error = PrivateRedis::start(missing).await.unwrap_err();
        assert!(matches!(error, PrivateRedisError::NotInstalled { .. }), "{error}");
        let wrong = PrivateRedisOptions { extra_args: vec!["--no-such-option".into(), "1".into()], ..options.clone() };
        let error = PrivateRedis::start(wrong).await.unwrap_err();
        assert!(error.to_string().contains("no-such-option"), "{error}");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let error = PrivateRedis::start(PrivateRedisOptions { port: Some(port), ..options }).await.unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
    }
}
