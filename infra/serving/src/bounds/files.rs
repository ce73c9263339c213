//! How many files the process may open, which is how many connections it can hold.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Of all files, the part that connections may be. The rest is for stores, history and their files.
const PART: (u64, u64) = (4, 5);
/// What a process can open if the system does not say how many: the usual limit if none was set.
const FILES_UNLESS_KNOWN: u64 = 1_024;

/// The connections of all ports of a process.
pub(super) struct FilePlaces {
    open: AtomicU64,
    max: u64,
}

/// Those of this process. The first use raises its own limit to what the system allows.
pub(super) static FILE_PLACES: LazyLock<FilePlaces> = LazyLock::new(|| {
    let files = raised_limit().unwrap_or_else(|error| {
        tracing::error!(%error, files = FILES_UNLESS_KNOWN, "the limit of open files cannot be read; this one is assumed");
        FILES_UNLESS_KNOWN
    });
    let max = files / PART.1 * PART.0;
    tracing::info!(files, connections = max, "how many files and connections this process may open");
    FilePlaces { open: AtomicU64::new(0), max }
});

/// The limit of open files, after it was raised as far as the process may.
fn raised_limit() -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let is_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Ok(if is_raised { hard } else { soft })
}

impl FilePlaces {
    /// `None`: the process has all connections that it can hold.
    pub(super) fn take(&'static self) -> Option<FilePlace> {
        let is_free = |open| (open < self.max).then_some(open + 1);
        let taken = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_free);
        // Not `then_some`: a place that is made for nothing would free another one when it is dropped.
        taken.is_ok().then(|| FilePlace(self))
    }

    /// Those that one address may hold: half of them, so that it does not shut out all others.
    pub(super) fn of_peer_max(&self) -> u64 {
        (self.max / 2).max(1)
    }
}

/// The place of one connection among the files of the process.
pub(super) struct FilePlace(&'static FilePlaces);

impl Drop for FilePlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_as_many_places_are_free_after_refusals_as_before() {
        static PLACES: FilePlaces = FilePlaces { open: AtomicU64::new(0), max: 2 };
        for _ in 0..3 {
            let taken = [PLACES.take(), PLACES.take()];
            assert!(taken.iter().all(Option::is_some) && PLACES.take().is_none() && PLACES.take().is_none());
        }
        assert_eq!(PLACES.open.load(Ordering::Relaxed), 0);
    }
}
