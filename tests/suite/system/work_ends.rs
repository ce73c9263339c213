//! However a worker of `tallystone work --exec` ends, its commands end with it: no message runs twice at once.

use super::dev::Dev;
use super::program::{self, Running, SOON};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// Signals that follow each other sooner are one request.
const ONE_REQUEST: Duration = Duration::from_millis(1_100);

/// A worker whose command is running, and a process that the command has started.
struct Busy {
    dev: Dev,
    worker: Running,
    /// The command's processes hold its other end open: the end of file means that all are gone.
    alive: File,
    fifo: PathBuf,
    _dir: TempDir,
}

impl Busy {
    /// `then`: what the command does after it has started a long process.
    async fn start(more_args: &[&str], then: &str) -> Busy {
        let dev = Dev::start().await;
        dev.ok(&["queue", "create", "q"]).await;
        dev.ok(&["msg", "enqueue", "q", "--id", "m"]).await;
        let (dir, fifo) = fifo();
        let script = format!("exec 9> {}; echo >&9; sleep 60 & {then}", fifo.display());
        let args = ["--json", "--server", dev.url(), "work", "q", "--exec", &script];
        let worker = Running::start(command(&[&args, more_args].concat()));
        let path = fifo.clone();
        let open = spawn_blocking(move || File::open(path));
        let alive = timeout(SOON, open).await.expect("the command starts").unwrap().expect("a fifo");
        let busy = Busy { dev, worker, alive, fifo, _dir: dir };
        busy.begun().await;
        busy
    }

    /// Waits until another command has begun.
    async fn begun(&self) {
        assert_eq!(self.read().await, 1);
    }

    fn signal(&self, signal: Signal) {
        self.worker.signal(signal);
    }

    /// Waits until no process of the commands is left.
    async fn gone(&self) {
        assert_eq!(self.read().await, 0);
    }

    async fn read(&self) -> usize {
        let mut alive = self.alive.try_clone().expect("a file");
        let read = spawn_blocking(move || alive.read(&mut [0]));
        match timeout(SOON, read).await {
            Ok(read) => read.unwrap().expect("a fifo"),
            Err(_) => panic!(
                "after {SOON:?} these processes have the fifo of the commands open: {:#?}; the worker: {}; its guard: {:?}",
                holders(&self.fifo),
                described(self.worker.pid()),
                guard_of(self.worker.pid()),
            ),
        }
    }
}

/// The program, which a hangup ends. Under nohup it would inherit that it ignores one.
fn command(args: &[&str]) -> Command {
    let program = program::command(args);
    let program = program.as_std();
    let mut command = Command::new("env");
    command.arg("--default-signal=HUP").arg(program.get_program()).args(program.get_args());
    command.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?)))).kill_on_drop(true);
    command
}

/// The processes that have a file open.
fn holders(file: &Path) -> Vec<String> {
    let has_open = |pid: &u32| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|link| link == file)
    };
    processes().filter(has_open).map(described).collect()
}

/// The pids of all processes.
fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The state, parent and group of a process, and its command line.
fn described(pid: u32) -> String {
    let of = |file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_else(|error| error.to_string());
    format!("{} [{}]", of("stat"), of("cmdline").replace('\0', " "))
}

fn fifo() -> (TempDir, PathBuf) {
    let dir = TempDir::new().expect("a temporary folder");
    let fifo = dir.path().join("alive");
    mkfifo(&fifo, Mode::S_IRWXU).expect("a fifo");
    (dir, fifo)
}

#[tokio::test]
async fn q11_a_second_signal_kills_the_commands_and_releases_their_messages() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let busy = Busy::start(&[], "wait").await;
        busy.signal(signal);
        sleep(ONE_REQUEST).await;
        busy.signal(signal);
        busy.gone().await;
        let Busy { dev, worker, .. } = busy;
        assert_eq!(worker.ended().await.code(), Some(130));
        let message = dev.ok(&["msg", "get", "q", "m"]).await;
        assert_eq!((&message["state"], &message["reason"]), (&"pending".into(), &"the worker was interrupted".into()));
        dev.stop().await;
    }
}

#[tokio::test]
async fn q11_a_killed_worker_leaves_no_command() {
    for signal in [Signal::SIGKILL, Signal::SIGHUP] {
        let busy = Busy::start(&[], "wait").await;
        busy.signal(signal);
        busy.gone().await;
        busy.dev.stop().await;
    }
}

#[tokio::test]
async fn a_killed_guard_is_replaced() {
    let busy = Busy::start(&["--concurrency", "2"], "wait").await;
    let guard = guard_of(busy.worker.pid()).expect("a guard");
    kill(guard, Signal::SIGKILL).expect("it runs");
    // The next command starts another guard, which knows both.
    busy.dev.ok(&["msg", "enqueue", "q", "--id", "next"]).await;
    busy.begun().await;
    assert!(guard_of(busy.worker.pid()).is_some_and(|other| other != guard));
    busy.signal(Signal::SIGKILL);
    busy.gone().await;
    busy.dev.stop().await;
}

/// The guard process of a worker.
fn guard_of(worker: u32) -> Option<Pid> {
    let read = |pid: u32, file| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let is_child = |pid: u32| {
        let stat = read(pid, "stat");
        // PID (NAME) STATE PARENT
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        fields.next() != Some("Z") && fields.next() == Some(&worker.to_string())
    };
    let guard = processes().find(|pid| is_child(*pid) && read(*pid, "cmdline").contains("guard"))?;
    i32::try_from(guard).ok().map(Pid::from_raw)
}

#[tokio::test]
async fn q11_a_lost_lease_kills_every_started_process() {
    let mut busy = Busy::start(&["--lease", "1s"], "wait").await;
    busy.dev.ok(&["msg", "cancel", "q", "m", "--force"]).await;
    busy.gone().await;
    assert!(busy.worker.line().await.contains("lost"));
    assert!(busy.worker.stop().await.success());
    busy.dev.stop().await;
}

#[tokio::test]
async fn what_a_command_leaves_behind_is_killed() {
    let mut busy = Busy::start(&[], "exit 0").await;
    busy.gone().await;
    assert!(busy.worker.line().await.contains("completed"));
    assert!(busy.worker.stop().await.success());
    busy.dev.stop().await;
}

/// A stopped worker would extend no lease while its commands run.
#[tokio::test]
async fn ctrl_z_does_not_stop_a_worker() {
    let mut busy = Busy::start(&[], "exit 0").await;
    assert!(busy.worker.line().await.contains("completed"));
    busy.signal(Signal::SIGTSTP);
    assert!(busy.worker.stop().await.success());
    busy.dev.stop().await;
}
