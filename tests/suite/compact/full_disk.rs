//! A disk that is full (W3, W4). If it is that of cold tables, tables stay in memory, and move once there is room. If it is that of the log,
//! the engine ends, and what it has acknowledged is in the log. If a snapshot finds no room, it fails, and the set continues.

use super::cold::cold_node;
use super::load::{Load, SCHEMA, judge};
use super::random;
use super::snapshots::{KINDS, fill_all, is_as_before, state};
use std::collections::BTreeMap;
use tallystone_tests::SmallDisk;
use tallystone_tests::compact::{Engine, Node, Setup, eventually};

#[test]
fn w3_a_full_disk_stops_spilling_and_loses_nothing() {
    for engine in Engine::ALL {
        let mut random = random("a full disk");
        let disk = SmallDisk::mount(1 << 20);
        disk.leave(40 << 10);
        let mut node = Setup::new(engine).without_fsync().cold(disk.path()).start();
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
        disk.make_room();
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
}

/// Adds to cold ids of one table: to more of them than the part of its file from which a merge is due.
fn add_to_cold(node: &Node, expected: &mut BTreeMap<u64, Vec<i64>>) {
    const ADDED: u64 = 100;
    let triples: String = (0..ADDED).map(|id| format!(" {id} likes 7")).collect();
    node.wire().done(&format!("CT.MINCRBY k{triples}"));
    expected.range_mut(..ADDED).for_each(|(_, row)| row[0] += 7);
}

/// What was written stays in memory until a later merge has it.
#[test]
fn w3_a_merge_without_room_loses_no_write() {
    for engine in Engine::ALL {
        let disk = SmallDisk::mount(2 << 20);
        let mut node = cold_node(Setup::new(engine).without_fsync().cold(disk.path()));
        let mut expected = node.scan("k");
        disk.leave(0);
        add_to_cold(&node, &mut expected);
        // All tables but the last are in files, so that this is a merge.
        eventually("the merge fails", || node.log().contains("a cold table cannot be written"));
        assert!(node.log().contains("No space left on device"), "{engine:?}: it says why");
        // Above what the merge could not write.
        add_to_cold(&node, &mut expected);
        let unwritten = || node.wire().run("CT.TABLES k").items()[0].field("overlay_ids").int();
        assert!(unwritten() > 0, "{engine:?}");
        assert_eq!((node.scan("k"), node.faults("k")), (expected.clone(), vec![]), "{engine:?}: without room");
        disk.make_room();
        eventually("the writes are in the file", || unwritten() == 0);
        assert_eq!((node.scan("k"), node.faults("k")), (expected.clone(), vec![]), "{engine:?}: with room");
        node.kill();
        node.start_again();
        assert_eq!(node.scan("k"), expected, "{engine:?}: after a restart");
    }
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
                disk.leave(room);
                // With `appendfsync always`, an engine that cannot write its log ends before it replies.
                eventually("the engine ends", || !node.answers());
                node.kill();
                disk.make_room();
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
        disk.leave(40 << 10);
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
        disk.make_room();
        node.start_again();
        is_as_before(&node, &before, &once, "a log behind rewrites that failed");
        node.rewrite_log();
        node.restart();
        is_as_before(&node, &before, &once, "a rewrite with room");
    }
}

/// A start writes cold tables to new files. Without room for them the engine does not start, says why, and has lost nothing.
#[test]
fn w4_a_full_cold_folder_refuses_the_start_and_loses_nothing() {
    for engine in Engine::ALL {
        let disk = SmallDisk::mount(2 << 20);
        let mut node = cold_node(Setup::new(engine).without_fsync().cold(disk.path()));
        let before = (node.scan("k"), node.digest("k"));
        node.rewrite_log();
        node.kill();
        // What the engine would delete by itself: the files of a process that was killed.
        for entry in std::fs::read_dir(disk.path()).expect("a folder").flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "cold") {
                std::fs::remove_file(entry.path()).expect("removed");
            }
        }
        disk.leave(8 << 10);
        for _ in 0..2 {
            assert!(node.try_start().is_err(), "{engine:?}: it has started without its cold tables");
            assert!(node.log().contains("No space left on device"), "{engine:?}: {}", node.log());
        }
        disk.make_room();
        node.start_again();
        assert_eq!((node.scan("k"), node.digest("k")), before, "{engine:?}");
    }
}

/// A `COPY` in the log writes files, too. The engine goes on after an error of a command in its log, so the module has to end it: the
/// increments of the copy would be lost.
#[test]
fn w4_a_copy_in_the_log_without_room_refuses_the_start_and_loses_nothing() {
    for engine in Engine::ALL {
        let disk = SmallDisk::mount(2 << 20);
        let mut node = cold_node(Setup::new(engine).without_fsync().cold(disk.path()));
        // The start loads `k` with its cold tables, and then the `COPY`.
        node.rewrite_log();
        let bytes = |file: &std::path::PathBuf| std::fs::metadata(file).expect("a file").len();
        let room: u64 = node.cold_files().iter().map(bytes).sum();
        assert_eq!(node.wire().run("COPY k copy").int(), 1);
        node.wire().done("CT.MINCRBY copy 5 likes 70 900 views 2");
        let state = |node: &Node| ["k", "copy"].map(|key| (node.scan(key), node.digest(key), node.faults(key)));
        let before = state(&node);
        assert_ne!(before[0], before[1]);
        node.kill();
        node.cold_files().iter().for_each(|file| std::fs::remove_file(file).expect("a file"));
        disk.leave(room + room / 2);
        for _ in 0..2 {
            assert!(node.try_start().is_err(), "{engine:?}: it has started without the copy");
            let log = node.log();
            assert!(log.contains("No space left on device"), "{engine:?}: {log}");
            assert!(log.contains("a COPY that was accepted before has failed"), "{engine:?}: {log}");
        }
        disk.make_room();
        node.start_again();
        assert_eq!(state(&node), before, "{engine:?}");
    }
}
