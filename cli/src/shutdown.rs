//! The signals that end a long-running verb.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a process ends with when a second signal ends it at once: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Ctrl-C and SIGTERM. The first asks for a clean stop; a second one ends the process at once.
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
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(INTERRUPTED);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
