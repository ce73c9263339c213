//! The module checks the manifest of the engine's log before a start (W4). It accepts each that an engine leaves.

use super::damage::{State, state};
use super::snapshots::{KINDS, fill_all};
use std::path::PathBuf;
use tallystone_tests::compact::{Engine, Node, Setup, eventually};

fn folder(node: &Node) -> PathBuf {
    node.dir().join("appendonlydir")
}

fn manifest(node: &Node) -> String {
    let entries = std::fs::read_dir(folder(node)).expect("a folder").flatten().map(|entry| entry.path());
    let mut paths = entries.filter(|path| path.extension().is_some_and(|extension| extension == "manifest"));
    std::fs::read_to_string(paths.next().expect("a manifest")).expect("a text")
}

/// The base, once the earlier one is deleted.
fn only_base(node: &Node) -> PathBuf {
    let bases = || -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder(node)).expect("a folder").flatten().map(|entry| entry.path());
        entries.filter(|path| path.to_string_lossy().contains(".base.")).collect()
    };
    eventually("the earlier base is deleted", || bases().len() == 1);
    bases().remove(0)
}

fn increment(node: &Node) {
    KINDS.iter().for_each(|(key, _)| drop(node.wire().done(&format!("CT.INCRBY {key} 3 likes 1"))));
}

/// A kill, and a start with all numbers.
fn restart(node: &mut Node, what: &str) {
    let before: State = state(node);
    node.kill();
    node.start_again();
    assert_eq!(state(node), before, "{what}");
}

#[test]
fn w4_an_engine_starts_on_each_manifest_that_it_leaves() {
    for engine in Engine::ALL {
        // A quote in a name makes the engine quote the name.
        let mut node = Setup::new(engine).args("--appendfilename a\"log.aof").start();
        fill_all(&node);
        assert!(manifest(&node).contains(r#"file "a\"log.aof.1.incr.aof" seq 1 type i"#), "{}", manifest(&node));
        restart(&mut node, "a new log");

        // Killed during a rewrite: two logs.
        let mut wire = node.wire();
        wire.done("CONFIG SET rdb-key-save-delay 5000000");
        wire.done("BGREWRITEAOF");
        eventually("the rewrite runs", || node.info("persistence", "aof_rewrite_in_progress") == "1");
        increment(&node);
        assert_eq!(manifest(&node).matches("type i").count(), 2, "{}", manifest(&node));
        restart(&mut node, "two logs");

        // Killed before the history is deleted.
        node.wire().done("CONFIG SET aof-disable-auto-gc yes");
        node.rewrite_log();
        increment(&node);
        assert_eq!(manifest(&node).matches("type h").count(), 3, "{}", manifest(&node));
        restart(&mut node, "history");
        assert_eq!(manifest(&node).matches("type h").count(), 0, "{}", manifest(&node));

        // A rewrite without the log, which then has a base only.
        node.wire().done("CONFIG SET appendonly no");
        node.wire().done("CONFIG SET aof-disable-auto-gc yes");
        node.rewrite_log();
        assert_eq!(manifest(&node).matches("type i").count(), 0, "{}", manifest(&node));
        restart(&mut node, "no log");
        increment(&node);
        restart(&mut node, "a first log");

        // The log of an engine before Redis 7 is one file, which becomes a base.
        node.rewrite_log();
        let (base, before) = (only_base(&node), state(&node));
        node.kill();
        std::fs::rename(base, node.dir().join("a\"log.aof")).expect("a base");
        std::fs::remove_dir_all(folder(&node)).expect("a folder");
        node.start_again();
        assert_eq!(state(&node), before, "{engine:?}, one file");
        increment(&node);
        restart(&mut node, "an upgraded log");
        node.wire().done("CONFIG SET aof-disable-auto-gc yes");
        node.rewrite_log();
        increment(&node);
        assert!(manifest(&node).contains(r#"file "a\"log.aof" seq 1 type h"#), "{}", manifest(&node));
        restart(&mut node, "the history of an upgraded log");
    }
}
