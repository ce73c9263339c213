//! A disk that is full (W3): tables stay in memory, nothing is lost, and they move once there is room.

use super::load::{Load, SCHEMA, judge};
use super::random;
use nix::mount::{MsFlags, mount, umount};
use std::path::{Path, PathBuf};
use tallystone_tests::compact::{Engine, Setup, eventually};
use tempfile::TempDir;

/// A file system in memory. Mounting it takes the rights of root, as in the container of a CI job.
pub(super) struct SmallDisk(TempDir);

impl SmallDisk {
    pub(super) fn mount(bytes: u64) -> SmallDisk {
        let dir = TempDir::new().expect("a temporary folder");
        let options = format!("size={bytes},mode=0700");
        mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .expect("a mounted file system: this test needs root, or a user namespace (unshare -rm)");
        SmallDisk(dir)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all room but so many bytes, until the file is removed.
    pub(super) fn leave(&self, bytes: u64) -> PathBuf {
        let room = nix::sys::statvfs::statvfs(self.path()).expect("a file system");
        let free = room.blocks_available() * room.fragment_size();
        let ballast = self.path().join("ballast");
        std::fs::write(&ballast, vec![1; free.checked_sub(bytes).expect("room") as usize]).expect("room");
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount(self.0.path());
    }
}

#[test]
fn w3_a_full_disk_stops_spilling_and_loses_nothing() {
    let mut random = random("a full disk");
    let disk = SmallDisk::mount(1 << 20);
    let ballast = disk.leave(40 << 10);
    let mut node = Setup::new(Engine::Redis).without_fsync().cold(disk.path()).start();
    node.wire().done(&format!("CT.CREATE k TABLE_SLOTS 256 MEMORY_MAX 1 CACHE_BYTES 20000 {SCHEMA}"));
    let load = Load::new(node.port());
    let sums = load.run(3, &mut random, |_| {
        eventually("the disk is full", || node.log().contains("a cold table cannot be written"));
        load.progress(500);
    });
    judge(&node, &sums);
    assert!(node.log().contains("No space left on device"), "it says why");
    let is_spilled = || {
        node.wire()
            .run("CT.TABLES k")
            .items()
            .split_last()
            .is_some_and(|(_, others)| others.iter().all(|table| table.field("state").text() == "cold"))
    };
    assert!(!is_spilled());
    std::fs::remove_file(&ballast).expect("a file");
    eventually("tables move", || {
        // A write wakes the work up.
        node.wire().done("CT.INCRBY k 1 balance 0");
        is_spilled()
    });
    judge(&node, &sums);
    node.restart();
    judge(&node, &sums);
    drop(node);
}
