//! The signals that end a long-running verb.

use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// What a process ends with when a second signal ends it at once: 128 + SIGINT.
const INTERRUPTED: i32 = 130;
/// Signals so soon after the first are the same request: `timeout`, npm and others pass theirs on to a process that got
/// it from the terminal already.
const SAME_REQUEST: Duration = Duration::from_secs(1);

/// Ctrl-C and SIGTERM. The first requests a clean stop; a second one ends the process at once.
pub(crate) struct Shutdown {
    interrupt: Signal,
    terminate: Signal,
}

impl Shutdown {
    /// Takes the signals over: from now on they do not end the process by themselves.
    pub(crate) fn listen() -> std::io::Result<Shutdown> {
        Ok(Shutdown { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the first signal.
    pub(crate) async fn requested(mut self) {
        self.next().await;
        let first = Instant::now();
        tokio::spawn(async move {
            loop {
                self.next().await;
                if first.elapsed() > SAME_REQUEST {
                    std::process::exit(INTERRUPTED);
                }
            }
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
