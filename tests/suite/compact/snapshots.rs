//! Each way through a file ends with equal counters, tokens included (W4): the log, a rewritten log with and without a snapshot in
//! front, a snapshot alone. Files of cold tables are not needed for any of them.

use super::now_ms;
use tallystone_tests::compact::{Engine, Node, Setup, eventually};

/// A token that has counted.
pub(super) struct Once(String);

impl Once {
    pub(super) fn count(node: &Node, key: &str, token: &str) -> Once {
        let once = Once(format!("CT.INCRBY {key} 5 likes 3 TOKEN {token} TIME {}", now_ms()));
        node.wire().done(&once.0);
        once
    }

    /// Repeated, it counts nothing.
    pub(super) fn again(&self, node: &Node, key: &str) {
        let before = node.wire().run(&format!("CT.GET {key} 5")).ints()[0];
        assert_eq!(node.wire().done(&self.0).ints(), [before]);
        assert_eq!(node.wire().run(&format!("CT.GET {key} 5")).ints()[0], before);
    }
}

/// Counters in slots, in both dictionaries and in files, with fields that were added and retired.
pub(super) fn fill(node: &Node, key: &str, options: &str) {
    let mut wire = node.wire();
    wire.done(&format!("CT.CREATE {key} {options} SCHEMA likes 12 old 8 balance i16"));
    let write = |ids: std::ops::Range<u64>, field: &str| -> Vec<Vec<Vec<u8>>> {
        let line = |id| format!("CT.MINCRBY {key} {id} likes {} {id} {field} {}", id * 3 + 1, id % 200);
        ids.map(|id| line(id).split(' ').map(|word| word.as_bytes().to_vec()).collect()).collect()
    };
    wire.pipeline(&write(0..1_500, "old"));
    wire.done(&format!("CT.ALTER {key} ADD views 20"));
    wire.pipeline(&write(1_200..3_000, "views"));
    wire.done(&format!("CT.ALTER {key} RETIRE old"));
    wire.done(&format!("CT.ALTER {key} WIDEN likes 14"));
    for id in [0, 7, 900, 1_400, u64::MAX, 1 << 50, (1 << 50) + 1] {
        wire.done(&format!("CT.INCRBY {key} {id} likes 9223372036854700000 balance -70000"));
        wire.done(&format!("CT.INCRBY {key} {id} views 1"));
    }
    wire.done(&format!("CT.DEL {key} 11 12 2000 2001"));
}

pub(super) const KINDS: [(&str, &str); 3] = [
    ("hot", "TABLE_SLOTS 1024 TABLES_PREALLOCATED 1"),
    ("cold", "TABLE_SLOTS 256 MEMORY_MAX 1 CACHE_BYTES 50000"),
    ("hash", "ORDER RANDOM TABLE_SLOTS 128 PROBE_MAX 1"),
];

pub(super) fn fill_all(node: &Node) -> Vec<Once> {
    let once = KINDS.map(|(key, options)| {
        fill(node, key, options);
        Once::count(node, key, "one")
    });
    eventually("tables are cold", || node.wire().run("CT.INFO cold").field("cold_tables").int() >= 5);
    once.into()
}

pub(super) fn state(node: &Node) -> Vec<(String, std::collections::BTreeMap<u64, Vec<i64>>)> {
    KINDS.iter().map(|(key, _)| (node.digest(key), node.scan(key))).collect()
}

pub(super) fn is_as_before(
    node: &Node,
    before: &[(String, std::collections::BTreeMap<u64, Vec<i64>>)],
    once: &[Once],
    how: &str,
) {
    let now = state(node);
    for (((key, _), before), now) in KINDS.iter().zip(before).zip(&now) {
        let differing = before.1.iter().find(|(id, row)| now.1.get(id) != Some(row));
        assert_eq!(differing.map(|(id, row)| (id, row, now.1.get(id))), None, "{how}, {key}");
        assert_eq!((now.1.len(), &now.0), (before.1.len(), &before.0), "{how}, {key}: ids, digest");
        assert_eq!(node.faults(key), Vec::<String>::new(), "{how}, {key}");
    }
    KINDS.iter().zip(once).for_each(|((key, _), once)| once.again(node, key));
}

#[test]
fn w4_the_log_and_its_rewrites_keep_all() {
    for engine in Engine::ALL {
        for preamble in ["yes", "no"] {
            let mut node =
                Setup::new(engine).without_fsync().args(&format!("--aof-use-rdb-preamble {preamble}")).start();
            let once = fill_all(&node);
            let before = state(&node);
            // The digest does not depend on where the records lie.
            node.restart();
            is_as_before(&node, &before, &once, "the log");
            node.rewrite_log();
            let files = node.cold_files();
            node.kill();
            files.iter().for_each(|file| std::fs::remove_file(file).expect("a file"));
            node.start_again();
            is_as_before(&node, &before, &once, "a rewritten log");
            // A log behind a rewritten one.
            for key in ["hot", "cold", "hash"] {
                node.wire().done(&format!("CT.MINCRBY {key} 3 likes 1 10000 likes 2 200 balance -5"));
            }
            let before = state(&node);
            node.kill();
            node.start_again();
            is_as_before(&node, &before, &once, "a log behind a rewritten one");
        }
    }
}

#[test]
fn w4_a_snapshot_keeps_all() {
    for engine in Engine::ALL {
        let mut node = Setup::new(engine).without_log().start();
        let once = fill_all(&node);
        let before = state(&node);
        node.wire().done("SAVE");
        node.kill();
        node.start_again();
        is_as_before(&node, &before, &once, "SAVE");
        node.wire().done("BGSAVE");
        eventually("the snapshot is there", || node.info("persistence", "rdb_bgsave_in_progress") == "0");
        assert_eq!(node.info("persistence", "rdb_last_bgsave_status"), "ok");
        let files = node.cold_files();
        assert!(!files.is_empty());
        node.kill();
        files.iter().for_each(|file| std::fs::remove_file(file).expect("a file"));
        node.start_again();
        is_as_before(&node, &before, &once, "BGSAVE");
        node.wire().done("DEBUG RELOAD");
        is_as_before(&node, &before, &once, "DEBUG RELOAD");
    }
}
