//! The signals that end a long-running verb.

use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// What a process ends with when a second signal ends it: 128 + SIGINT.
pub(crate) const INTERRUPTED: i32 = 130;
/// Signals within this time after one are the same request: `timeout`, npm and others pass theirs on to a process that got
/// it from the terminal already.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Ctrl-C and SIGTERM. The first requests a clean stop; a second one ends the process at once.
pub(crate) struct Shutdown {
    interrupt: Signal,
    terminate: Signal,
    last: Option<Instant>,
}

impl Shutdown {
    /// Takes the signals over: from now on they do not end the process by themselves.
    pub(crate) fn listen() -> std::io::Result<Shutdown> {
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        Ok(Shutdown { interrupt, terminate, last: None })
    }

    /// Waits for the first signal. The process ends at the next one.
    pub(crate) async fn requested(mut self) {
        self.next().await;
        tokio::spawn(self.exit_on_next());
    }

    /// Waits for what the program needs before it serves, such as a Redis that loads its data. `None`: the first signal came meanwhile.
    pub(crate) async fn or_requested<T>(&mut self, start: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            started = start => Some(started),
            () = self.next() => None,
        }
    }

    /// Ends the process at the next signal.
    pub(crate) async fn exit_on_next(mut self) {
        self.next().await;
        std::process::exit(INTERRUPTED);
    }

    /// Waits for the next request, for a verb that has something to do at the second one.
    pub(crate) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
            }
            if self.last.is_none_or(|last| last.elapsed() > SAME_REQUEST) {
                self.last = Some(Instant::now());
                return;
            }
        }
    }
}
