//! Room on the disk of a Redis that runs on this machine. A Redis whose disk is full ends itself (`appendfsync always`)
//! or refuses every write, also those that end messages. So calls that add data are refused before that (S1).

use crate::ConnectError;
use metrics::{Unit, describe_gauge, gauge};
use nix::sys::statvfs::statvfs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_model::{Refusal, Resource};

const FREE: &str = "tallystone_store_disk_free_bytes";
const RESERVE: &str = "tallystone_store_disk_reserve_bytes";
/// Between two measurements. In this time a disk writes much less than any sensible reserve.
const PROBE_EVERY: Duration = Duration::from_millis(250);
/// The share of the disk counts up to this many bytes: 5 % of a large disk would be more than any rewrite needs.
const SHARE_BYTES_MAX: u64 = 4 << 30;

/// How much of a disk must stay free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reserve {
    pub(crate) bytes: u64,
    pub(crate) percent: u32,
}

impl Reserve {
    /// The bytes that must be free on a disk of this size.
    fn of(self, disk_bytes: u64) -> u64 {
        let share = u128::from(disk_bytes) * u128::from(self.percent) / 100;
        self.bytes.max(u64::try_from(share).unwrap_or(u64::MAX).min(SHARE_BYTES_MAX))
    }

    /// Whether the disk counts as full. It stays full until there is a tenth more room than the reserve, so that a disk at
    /// the bound does not accept and refuse in turns.
    fn is_used(self, disk: Disk, was_used: bool) -> bool {
        let reserve = self.of(disk.bytes);
        disk.free_bytes < if was_used { reserve.saturating_add(reserve / 10) } else { reserve }
    }
}

/// What `statvfs` says of a disk.
#[derive(Clone, Copy, Debug)]
struct Disk {
    bytes: u64,
    /// What a process without privileges may use.
    free_bytes: u64,
}

impl Disk {
    fn of(folder: &Path) -> io::Result<Disk> {
        let found = statvfs(folder)?;
        let block = found.fragment_size();
        Ok(Disk { bytes: found.blocks() * block, free_bytes: found.blocks_available() * block })
    }
}

/// Whether Redis has room for more data, as far as this machine can see.
#[derive(Clone, Debug, Default)]
pub struct Room(Option<Arc<Watched>>);

#[derive(Debug)]
struct Watched {
    /// Names the data in metrics: "queues" or "counters".
    what: &'static str,
    folder: PathBuf,
    reserve: Reserve,
    is_used: AtomicBool,
}

impl Room {
    /// The room in a folder; measured now, and then by [`watch`](Room::watch).
    pub(crate) fn of_folder(what: &'static str, folder: &Path, reserve: Reserve) -> Result<Room, ConnectError> {
        let watched = Watched { what, folder: folder.to_owned(), reserve, is_used: AtomicBool::new(false) };
        let unusable = |error| ConnectError::File {
            section: "redis",
            key: "data_dir",
            why: format!("{}: {error}", folder.display()),
        };
        watched.measure().map_err(unusable)?;
        Ok(Room(Some(Arc::new(watched))))
    }

    /// Checks that more data may be written.
    ///
    /// # Errors
    /// [`Refusal::StoreFull`]: the reserve of the disk is used.
    pub fn check(&self) -> Result<(), Refusal> {
        match &self.0 {
            Some(watched) if watched.is_used.load(Ordering::Relaxed) => Err(Refusal::StoreFull { of: Resource::Disk }),
            _ => Ok(()),
        }
    }

    /// Measures again and again, until the future is dropped.
    pub async fn watch(self) {
        let Some(watched) = &self.0 else { return };
        loop {
            tokio::time::sleep(PROBE_EVERY).await;
            // Every time: the store is open before the recorder of metrics.
            describe_gauge!(FREE, Unit::Bytes, "free bytes on the disk of redis.data_dir");
            describe_gauge!(RESERVE, Unit::Bytes, "with fewer free bytes, what adds data is refused with STORE_FULL");
            if let Err(error) = watched.measure() {
                tracing::debug!(%error, folder = %watched.folder.display(), "the disk of Redis is not measured");
            }
        }
    }
}

impl Watched {
    fn measure(&self) -> io::Result<()> {
        let disk = Disk::of(&self.folder)?;
        gauge!(FREE, "store" => self.what).set(disk.free_bytes as f64);
        gauge!(RESERVE, "store" => self.what).set(self.reserve.of(disk.bytes) as f64);
        let was_used = self.is_used.load(Ordering::Relaxed);
        let is_used = self.reserve.is_used(disk, was_used);
        if is_used != was_used {
            self.is_used.store(is_used, Ordering::Relaxed);
            let (store, free_bytes, reserve_bytes) = (self.what, disk.free_bytes, self.reserve.of(disk.bytes));
            match is_used {
                true => tracing::error!(
                    store,
                    free_bytes,
                    reserve_bytes,
                    "the disk of Redis is nearly full: what adds data is refused with STORE_FULL until there is room"
                ),
                false => tracing::info!(store, free_bytes, "the disk of Redis has room again"),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn s1_the_reserve_is_the_larger_of_bytes_and_share() {
        let reserve = Reserve { bytes: GIB, percent: 5 };
        assert_eq!([10, 40, 1_000].map(|gib| reserve.of(gib * GIB)), [GIB, 2 * GIB, 4 * GIB]);
        assert_eq!(Reserve { bytes: 0, percent: 0 }.of(GIB), 0);
        assert_eq!(Reserve { bytes: u64::MAX, percent: 100 }.of(u64::MAX), u64::MAX);
    }

    #[test]
    fn s1_a_disk_at_the_bound_does_not_accept_and_refuse_in_turns() {
        let reserve = Reserve { bytes: 100, percent: 0 };
        let mut is_used = false;
        let states = [100, 99, 100, 109, 110, 109, 100, 99].map(|free_bytes| {
            is_used = reserve.is_used(Disk { bytes: 1_000, free_bytes }, is_used);
            is_used
        });
        assert_eq!(states, [false, true, true, true, false, false, false, true]);
    }

    #[test]
    fn s1_a_folder_that_is_missing_is_named() {
        let reserve = Reserve { bytes: 0, percent: 0 };
        let error = Room::of_folder("queues", Path::new("/no/such/folder"), reserve).unwrap_err().to_string();
        assert!(error.starts_with("redis.data_dir: /no/such/folder"), "{error}");
    }
}
