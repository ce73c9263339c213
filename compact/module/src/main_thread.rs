//! The engine's main thread, which runs the commands.

use std::sync::OnceLock;
use std::thread::ThreadId;

static MAIN: OnceLock<ThreadId> = OnceLock::new();

/// Remembers the thread that loads the module.
pub(crate) fn note() {
    let _ = MAIN.set(std::thread::current().id());
}

/// Whether this is the engine's thread.
pub(crate) fn is_this() -> bool {
    MAIN.get().is_some_and(|main| *main == std::thread::current().id())
}
