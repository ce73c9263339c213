//! How many files the process may open, which is how many connections it can hold.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of all files, the part that connections may be. The rest is for stores, history and their files.
const PART: (u64, u64) = (4, 5);

/// The open connections of all ports of the process.
static CONNECTIONS: AtomicU64 = AtomicU64::new(0);

/// How many connections the process may hold. The first use raises its own limit to what the system allows.
static CONNECTIONS_MAX: LazyLock<u64> = LazyLock::new(|| {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    let is_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let files = if is_raised { hard } else { soft };
    let connections = files / PART.1 * PART.0;
    tracing::info!(files, connections, "how many files and connections this process may open");
    connections
});

/// The place of one connection among the files of the process.
pub(super) struct FilePlace(());

impl FilePlace {
    /// `None`: the process has all connections that it can hold.
    pub(super) fn take() -> Option<FilePlace> {
        let taken = CONNECTIONS
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| (open < *CONNECTIONS_MAX).then_some(open + 1));
        taken.is_ok().then_some(FilePlace(()))
    }
}

impl Drop for FilePlace {
    fn drop(&mut self) {
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
    }
}
