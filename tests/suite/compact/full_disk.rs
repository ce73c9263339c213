//! A disk that is full (W3, W4). If it is that of cold tables, tables stay in memory, and move once there is room. If it is that of the log,
//! the engine ends, and what it has acknowledged is in the log. If a snapshot finds no room, it fails, and the set goes on.

use super::load::{Load, SCHEMA, judge};
use super::random;
use super::snapshots::{KINDS, fill_all, is_as_before, state};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::io::ErrorKind;
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
        match std::fs::write(&ballast, vec![1; free.saturating_sub(bytes) as usize]) {
            // Others have written meanwhile.
            Err(error) if error.kind() == ErrorKind::StorageFull => {}
            written => written.expect("a file"),
        }
        ballast
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A process that is about to end may still use it: then it goes with that process.
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
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

#[test]
fn w4_a_full_disk_of_the_log_loses_nothing_that_was_acknowledged() {
    for (engine, options) in [(Engine::Redis, "MEMORY_MAX 1 CACHE_BYTES 20000"), (Engine::Valkey, "")] {
        let mut random = random("a full disk of the log");
        let disk = SmallDisk::mount(16 << 20);
        let folder = disk.path().join("data");
        let mut node = Setup::new(engine).folder(&folder).args("--auto-aof-rewrite-percentage 0").start();
        node.wire().done(&format!("CT.CREATE k TABLE_SLOTS 256 {options} {SCHEMA}"));
        let load = Load::new(node.port());
        let sums = load.run(3, &mut random, |_| {
            for room in [0, 5_000, 100_000] {
                load.progress(100);
                let ballast = disk.leave(room);
                // With `appendfsync always`, an engine that cannot write its log ends before it replies.
                eventually("the engine ends", || !node.answers());
                node.kill();
                std::fs::remove_file(ballast).expect("a file");
                node.start_again();
            }
            load.progress(100);
        });
        judge(&node, &sums);
        node.kill();
        node.start_again();
        judge(&node, &sums);
    }
}

#[test]
fn w4_a_snapshot_without_room_fails_and_the_set_goes_on() {
    for engine in Engine::ALL {
        let disk = SmallDisk::mount(16 << 20);
        let folder = disk.path().join("data");
        let mut node = Setup::new(engine).folder(&folder).args("--auto-aof-rewrite-percentage 0").start();
        let once = fill_all(&node);
        // Merges are done, so that nothing but the snapshot needs room.
        eventually("all files are written", || {
            node.wire().run("CT.TABLES cold").items().iter().all(|table| table.field("state").text() != "merging")
        });
        let ballast = disk.leave(40 << 10);
        let info = |field: &str| node.info("persistence", field);
        for (command, running, status) in [
            ("BGSAVE", "rdb_bgsave_in_progress", "rdb_last_bgsave_status"),
            ("BGREWRITEAOF", "aof_rewrite_in_progress", "aof_last_bgrewrite_status"),
        ] {
            node.wire().done(command);
            eventually("it has ended", || info(running) == "0" && info(status) == "err");
        }
        for (key, _) in KINDS {
            node.wire().done(&format!("CT.MINCRBY {key} 3 likes 1 10000 likes 2 200 balance -5"));
        }
        let before = state(&node);
        is_as_before(&node, &before, &once, "no room for a snapshot");
        node.kill();
        std::fs::remove_file(ballast).expect("a file");
        node.start_again();
        is_as_before(&node, &before, &once, "a log behind rewrites that failed");
        node.rewrite_log();
        node.restart();
        is_as_before(&node, &before, &once, "a rewrite with room");
    }
}
