//! How many files the process may open, which is how many connections it can hold.

use super::by_site::BySite;
use super::open_connections::locked;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::net::IpAddr;
use std::sync::{LazyLock, Mutex};

/// Of all files, the part that connections may be. The rest is for stores, history and their files.
const PART: (u64, u64) = (4, 5);
/// What a process can open if the system does not say how many: the usual limit if none was set.
const FILES_UNLESS_KNOWN: u64 = 1_024;

/// The connections of all ports of a process.
pub(super) struct FilePlaces {
    open: Mutex<BySite>,
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
    FilePlaces { open: Mutex::new(BySite::new()), max }
});

/// The limit of open files, after it was raised as far as the process may.
fn raised_limit() -> nix::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let is_raised = soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    Ok(if is_raised { hard } else { soft })
}

impl FilePlaces {
    /// `None`: the process has all connections that it can hold.
    pub(super) fn take(&'static self, site: IpAddr) -> Option<FilePlace> {
        let mut open = locked(&self.open);
        if open.all() >= self.max {
            return None;
        }
        open.take(site);
        Some(FilePlace { of: self, site })
    }

    /// Whether this address holds as many as it may, on all ports together: half of them, so that it does not shut out all
    /// others.
    pub(super) fn are_full_for(&self, site: IpAddr) -> bool {
        locked(&self.open).of(site) >= (self.max / 2).max(1)
    }
}

/// The place of one connection among the files of the process.
pub(super) struct FilePlace {
    of: &'static FilePlaces,
    site: IpAddr,
}

impl Drop for FilePlace {
    fn drop(&mut self) {
        locked(&self.of.open).free(self.site);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn s1_as_many_places_are_free_after_refusals_as_before() {
        static PLACES: FilePlaces = FilePlaces { open: Mutex::new(BySite::new()), max: 2 };
        for _ in 0..3 {
            let taken = [PLACES.take(site(1)), PLACES.take(site(2))];
            let are_none_left = (1..3).all(|last| PLACES.take(site(last)).is_none());
            assert!(taken.iter().all(Option::is_some) && are_none_left);
        }
        assert!(locked(&PLACES.open).is_empty());
    }

    #[test]
    fn s1_one_address_holds_half_of_the_files_on_all_ports_together() {
        static PLACES: FilePlaces = FilePlaces { open: Mutex::new(BySite::new()), max: 4 };
        let taken = [PLACES.take(site(1)), PLACES.take(site(1))];
        assert!(PLACES.are_full_for(site(1)) && !PLACES.are_full_for(site(2)));
        drop(taken);
        assert!(!PLACES.are_full_for(site(1)));
    }
}
