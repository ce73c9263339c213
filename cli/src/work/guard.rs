//! The guard of a worker: a process that kills the worker's commands when the worker dies, even from SIGKILL.
//!
//! The guard reads process groups from a pipe: `+GROUP` before a command may begin, `-GROUP` when it has ended. The kernel
//! closes the pipe when the worker dies, however that happens; then the guard kills the groups that are left. A
//! parent-death signal alone would reach only the shell, not the processes that it has started.

use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io::{BufRead, Error, Read, Result, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The hidden verb that runs a guard.
const VERB: &str = "work-guard";

/// A guard process and the groups that it knows.
pub(super) struct Guard(Mutex<State>);

struct State {
    process: Child,
    pipe: ChildStdin,
    groups: BTreeSet<u32>,
}

impl Guard {
    pub(super) fn start() -> Result<Arc<Guard>> {
        let (process, pipe) = spawn()?;
        Ok(Arc::new(Guard(Mutex::new(State { process, pipe, groups: BTreeSet::new() }))))
    }

    /// Takes a process group under guard. Its command may begin when this has returned.
    pub(super) fn hold(self: &Arc<Guard>, group: u32) -> Result<Group> {
        let mut state = self.state();
        state.groups.insert(group);
        if writeln!(state.pipe, "+{group}").is_err() {
            // The guard was killed: another one takes over all groups.
            state.restart()?;
        }
        Ok(Group { id: group, guard: Arc::clone(self) })
    }

    fn release(&self, group: u32) {
        let mut state = self.state();
        state.groups.remove(&group);
        // If this guard was killed, the next one does not get the group.
        let _ = writeln!(state.pipe, "-{group}");
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn restart(&mut self) -> Result<()> {
        let _ = self.process.try_wait();
        (self.process, self.pipe) = spawn()?;
        self.groups.iter().try_for_each(|group| writeln!(self.pipe, "+{group}"))
    }
}

/// Returns when the guard runs and no signal but SIGKILL ends it.
fn spawn() -> Result<(Child, ChildStdin)> {
    let mut command = Command::new(program()?);
    // Its own process group: Ctrl-C in a terminal does not reach it.
    command.arg0("tallystone").arg(VERB).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn()?;
    let no_pipe = || Error::other("a process without a pipe");
    let pipe = process.stdin.take().ok_or_else(no_pipe)?;
    let mut ready = process.stdout.take().ok_or_else(no_pipe)?;
    match ready.read_exact(&mut [0]) {
        Ok(()) => Ok((process, pipe)),
        Err(error) => {
            let _ = process.kill();
            Err(Error::other(format!("the guard process ended early ({}): {error}", process.wait()?)))
        }
    }
}

/// This program, also if an update has replaced or removed its file.
fn program() -> Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok(PathBuf::from("/proc/self/exe")) } else { std::env::current_exe() }
}

/// The process group of a command. Dropping it kills every process in it.
pub(super) struct Group {
    id: u32,
    guard: Arc<Guard>,
}

impl Group {
    pub(super) fn kill(&self) {
        // The id belongs to the group while a process is in it. The kernel counts up to its largest process id before it
        // uses one again, so after the last process it is free, not another's.
        let _ = killpg(Pid::from_raw(self.id.cast_signed()), Signal::SIGKILL);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        self.guard.release(self.id);
    }
}

/// The guard process: it ends when the worker has.
pub(crate) fn watch() -> ExitCode {
    // A signal to the worker's whole control group must not end the guard before the worker.
    let _ = SigSet::all().thread_block();
    let mut stdout = std::io::stdout();
    if stdout.write_all(b"\n").and_then(|()| stdout.flush()).is_err() {
        // The worker has died.
        return ExitCode::FAILURE;
    }
    let mut groups = BTreeSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", group)) => _ = groups.insert(group.to_owned()),
            Some(("-", group)) => _ = groups.remove(group),
            _ => {}
        }
    }
    for group in groups.iter().filter_map(|group| group.parse().ok()) {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    ExitCode::SUCCESS
}
