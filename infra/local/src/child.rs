//! A child process and its guard.
//!
//! The child never outlives us, even when we are killed with -9, and one folder never has two of them:
//! - It is started through `setpriv --pdeathsig TERM`. The kernel sends that signal when the *thread* that started
//!   the child ends, not the process: so a dedicated thread starts it and stays until it has exited.
//! - Its standard input is the folder's lock file, so the lock lasts exactly as long as the child, not as long as we.
//! - It leads a process group. What it has started itself is killed when it has ended.

use crate::LocalError;
use crate::lock::unusable;
use nix::errno::Errno;
use nix::fcntl::Flock;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// How long what the child has started may take to vanish once it is killed.
const GROUP_WAIT: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
/// Runs the program of its arguments if `$0` is still the parent. If the parent was killed before setpriv had set the
/// signal, the signal never comes.
const IF_PARENT_LIVES: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;

/// What to start, and how long it may take.
pub(crate) struct Launch {
    /// The service, as people call it.
    pub(crate) name: &'static str,
    /// The data folder; its log is `NAME.log` there.
    pub(crate) dir: PathBuf,
    /// What follows `setpriv --pdeathsig TERM`: options of setpriv, `--`, the program and its arguments.
    pub(crate) command: Vec<std::ffi::OsString>,
    /// Its environment, on top of ours.
    pub(crate) environment: Vec<(&'static str, std::ffi::OsString)>,
    /// The port it will listen on.
    pub(crate) port: u16,
    /// How long it may take until it answers at all.
    pub(crate) answer_wait: Duration,
    /// How long a clean stop may take before SIGKILL.
    pub(crate) stop_wait: Duration,
    /// What the log of a start that failed means, where that is known.
    pub(crate) explain: fn(&Launch, &str) -> Option<LocalError>,
}

/// What a service says of itself while it starts.
pub(crate) enum Readiness {
    /// It serves.
    Ready,
    /// It is there, and needs time.
    Loading,
    /// Nothing.
    None,
}

/// The process, watched by its thread. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct Child(Arc<Process>);

#[derive(Debug)]
struct Process {
    name: &'static str,
    pid: Pid,
    stop_wait: Duration,
    /// Set before the process is reaped: a signal can never reach another process that got the same id.
    ended: Mutex<Option<ExitStatus>>,
    has_ended: Condvar,
    /// The same, for those who wait without blocking.
    gone: CancellationToken,
}

impl Child {
    /// Starts it and waits until `probe`, given its process id, finds it ready.
    pub(crate) async fn start(
        launch: Launch,
        lock: Flock<File>,
        probe: impl AsyncFn(u32) -> Readiness,
    ) -> Result<Child, LocalError> {
        let log_path = launch.dir.join(launch.name).with_extension("log");
        let log = OpenOptions::new().create(true).append(true).open(&log_path).map_err(unusable(&launch.dir))?;
        let log_from = log.metadata().map_err(unusable(&launch.dir))?.len();
        let child = Child(spawn(&launch, lock, log).await?);
        let (name, answer_wait) = (launch.name, launch.answer_wait);
        let mut answer_by = Instant::now() + answer_wait;
        loop {
            match probe(child.pid()).await {
                Readiness::Ready => return Ok(child),
                Readiness::Loading => answer_by = Instant::now() + answer_wait,
                Readiness::None => {}
            }
            let ended = *child.0.ended();
            if let Some(status) = ended {
                let log = read_log(&log_path, log_from).unwrap_or_else(|error| format!("no log: {error}"));
                let ended = || LocalError::Exited { name, status: status.to_string(), log_tail: log_tail(&log) };
                return Err((launch.explain)(&launch, &log).unwrap_or_else(ended));
            }
            if Instant::now() > answer_by {
                return Err(LocalError::Unresponsive { name, log: log_path });
            }
            tokio::time::sleep(POLL).await;
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid.as_raw().unsigned_abs()
    }

    /// Waits until it has ended, for whatever reason.
    pub(crate) async fn ended(&self) {
        self.0.gone.cancelled().await;
    }

    /// Whether it has.
    pub(crate) fn has_ended(&self) -> bool {
        self.0.gone.is_cancelled()
    }

    /// Stops it, everything written, and waits until it has ended.
    pub(crate) async fn stop(self) {
        self.0.terminate();
        let process = self.0.clone();
        // The wait blocks; the drop of `self` then finds the process ended.
        if let Err(error) = tokio::task::spawn_blocking(move || process.end()).await {
            tracing::warn!(service = self.0.name, %error, "could not wait for its end");
        }
    }

    /// Kills it with SIGKILL, as a crash would, without waiting: a new start in the same folder waits for its end.
    pub(crate) fn kill(&self) {
        self.0.kill();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Waits, so that a temporary data folder can be removed after it.
        self.0.terminate();
        self.0.end();
    }
}

impl Process {
    fn ended(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn terminate(&self) {
        let ended = self.ended();
        if ended.is_none() {
            // Not reaped, so it is there; and it is ours, so we may.
            let _ = kill(self.pid, Signal::SIGTERM);
        }
    }

    fn kill(&self) {
        let ended = self.ended();
        if ended.is_none() {
            // Its group: some have the real service started by a small process that watches it.
            let _ = killpg(self.pid, Signal::SIGKILL);
        }
    }

    /// Blocks until it has ended; after [`Process::stop_wait`] with SIGKILL.
    fn end(&self) {
        let running = |ended: &mut Option<ExitStatus>| ended.is_none();
        let waited = self.has_ended.wait_timeout_while(self.ended(), self.stop_wait, running);
        let (ended, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(ended);
        if timeout.timed_out() {
            tracing::warn!(service = self.name, "did not stop in time and was killed");
            self.kill();
            let _ended = self.has_ended.wait_while(self.ended(), running).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until the process and all of its group have ended.
    fn watch(&self, mut process: std::process::Child) {
        while let Err(Errno::EINTR) = waitid(Id::Pid(self.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {}
        let mut ended = self.ended();
        // Not reaped yet: the group is still the one it led.
        let _ = killpg(self.pid, Signal::SIGKILL);
        let status = process.wait().unwrap_or_default();
        let give_up_at = Instant::now() + GROUP_WAIT;
        while killpg(self.pid, None).is_ok() && Instant::now() < give_up_at {
            std::thread::sleep(POLL);
        }
        *ended = Some(status);
        self.has_ended.notify_all();
        self.gone.cancel();
    }
}

async fn spawn(launch: &Launch, mut lock: Flock<File>, log: File) -> Result<Arc<Process>, LocalError> {
    let unusable = unusable(&launch.dir);
    let mut command = Command::new("setpriv");
    let program = launch.command.iter().position(|part| part == "--").map_or(0, |end| end + 1);
    let (options, program) = launch.command.split_at(program);
    command.args(["--pdeathsig", "TERM"]).args(options);
    command.args(["sh", "-c", IF_PARENT_LIVES]).arg(std::process::id().to_string()).args(program);
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    // A separate process group: Ctrl-C in a terminal reaches only this program, which stops the child after the server.
    command.process_group(0).stdin(lock.try_clone().map_err(&unusable)?);
    command.stdout(log.try_clone().map_err(&unusable)?).stderr(Stdio::from(log));

    let (name, port, stop_wait) = (launch.name, launch.port, launch.stop_wait);
    let (started, on_start) = oneshot::channel();
    let keeper = move || {
        let process = match command.spawn() {
            Ok(process) => process,
            Err(error) => return drop(started.send(Err(error))),
        };
        // Its handles are ours no more: the lock file's would outlast the child otherwise.
        drop(command);
        let holder =
            lock.set_len(0).and_then(|()| lock.write_all(format!("process {}, port {port}", process.id()).as_bytes()));
        if let Err(error) = holder {
            tracing::warn!(%error, "cannot write this process's id into the lock file");
        }
        let watched = Arc::new(Process {
            name,
            pid: Pid::from_raw(process.id().cast_signed()),
            stop_wait,
            ended: Mutex::new(None),
            has_ended: Condvar::new(),
            gone: CancellationToken::new(),
        });
        // The caller may have ended already: then only this code can stop the child.
        if started.send(Ok(watched.clone())).is_err() {
            watched.terminate();
        }
        watched.watch(process);
        drop(lock);
    };
    std::thread::Builder::new().name(format!("{name}-keeper")).spawn(keeper).map_err(unusable)?;
    match on_start.await {
        Ok(Ok(process)) => Ok(process),
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => Err(LocalError::NotInstalled {
            what: "setpriv".to_owned(),
            remedy: "install util-linux 2.33 or newer (Debian, Ubuntu: apt-get install util-linux)".to_owned(),
        }),
        Ok(Err(error)) => Err(LocalError::Exited { name, status: error.to_string(), log_tail: String::new() }),
        Err(_) => unreachable!("the keeper always answers"),
    }
}

/// What this start wrote.
fn read_log(path: &Path, from: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.take(64 * 1024).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The last lines of a log as one line, without the calls of a Java trace.
fn log_tail(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("at "));
    let mut lines: Vec<&str> = lines.rev().take(4).collect();
    lines.reverse();
    lines.join(" | ")
}
