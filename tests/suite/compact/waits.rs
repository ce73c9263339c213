//! Commands that wait for a disk which does not answer (W3): each of them gets an answer, and counts once or not at all.

use super::cold::cold_node;
use std::time::{Duration, Instant};
use tallystone_tests::compact::{Engine, FailingDisk, Node, Setup, Wire, eventually, words};

/// A node with cold ids, and its disk. No record of theirs is in the cache.
fn slow_node(engine: Engine) -> (FailingDisk, Node) {
    let disk = FailingDisk::new();
    let node = cold_node(Setup::new(engine).without_fsync().wrapped(|engine| disk.program(engine)));
    node.wire().done("CT.ALTER k OPTION CACHE_BYTES 0");
    (disk, node)
}

/// Sends a command that waits, and returns its connection once it does.
fn blocked(node: &Node, line: &str) -> Wire {
    let number = || node.info("clients", "blocked_clients").parse::<u64>().expect("a number");
    let (before, mut wire) = (number(), node.wire());
    wire.add(&words(line));
    wire.flush().expect("a connection");
    eventually("the command waits", || number() > before);
    wire
}

fn reply(wire: &mut Wire) -> String {
    wire.read().expect("a connection").to_string()
}

#[test]
fn w3_a_command_does_not_wait_for_the_disk_without_end() {
    // At the same time: each takes half a minute.
    std::thread::scope(|scope| {
        for engine in Engine::ALL {
            scope.spawn(move || commands_end_in_time(engine));
        }
    });
}

fn commands_end_in_time(engine: Engine) {
    let (disk, node) = slow_node(engine);
    disk.set_stalls(true);
    let begin = Instant::now();
    let mut waiting = [blocked(&node, "CT.INCRBY k 5 likes 1"), blocked(&node, "CT.GET k 6 likes")];
    for wire in &mut waiting {
        let late = reply(wire);
        assert!(
            late.contains("COLD the pages were not read in time") && late.contains("has changed nothing"),
            "{late}"
        );
    }
    assert!(begin.elapsed() >= Duration::from_secs(30), "{:?}", begin.elapsed());
    disk.set_stalls(false);
    assert_eq!(node.wire().run("CT.GET k 5 likes").to_string(), "[6]");
    let held = || node.info("tallystone_compact", "tallystone_compact_cold_pages_held");
    eventually("no page is held", || held() == "0");
}

#[test]
fn w3_a_command_that_waits_ends_when_its_node_becomes_a_replica() {
    for engine in Engine::ALL {
        let (disk, node) = slow_node(engine);
        let other = Setup::new(engine).start();
        disk.set_stalls(true);
        let mut waiting = blocked(&node, "CT.INCRBY k 5 likes 1");
        node.wire().done(&format!("REPLICAOF 127.0.0.1 {}", other.port()));
        let ended = reply(&mut waiting);
        assert!(ended.contains("UNBLOCKED"), "{ended}");
        disk.set_stalls(false);
    }
}

#[test]
fn w3_a_command_whose_key_is_replaced_while_it_waits_changes_nothing() {
    for engine in Engine::ALL {
        let (disk, node) = slow_node(engine);
        disk.set_stalls(true);
        let mut waiting = [blocked(&node, "CT.INCRBY k 5 likes 1"), blocked(&node, "CT.GET k 5 likes")];
        let mut wire = node.wire();
        wire.done("DEL k");
        wire.done("CT.CREATE k SCHEMA likes 24");
        disk.set_stalls(false);
        // The new set has the id in memory: the command runs on it, or says that it did not.
        let increment = reply(&mut waiting[0]);
        let after = wire.run("CT.GET k 5 likes").to_string();
        let expected = if increment == "[1]" { "[1]" } else { "[0]" };
        assert!(increment == "[1]" || increment.contains("TRYAGAIN"), "{increment}");
        assert_eq!(after, expected);
        let read = reply(&mut waiting[1]);
        assert!(["[0]", "[1]"].contains(&read.as_str()) || read.contains("TRYAGAIN"), "{read}");
    }
}

#[test]
fn w3_a_write_that_waits_while_clients_are_paused_counts_after_it() {
    for engine in Engine::ALL {
        let (disk, node) = slow_node(engine);
        disk.set_stalls(true);
        let mut waiting = blocked(&node, "CT.INCRBY k 5 likes 1");
        let mut wire = node.wire();
        wire.done("CLIENT PAUSE 600000 WRITE");
        disk.set_stalls(false);
        let held = || node.info("tallystone_compact", "tallystone_compact_cold_pages_held");
        eventually("its pages are given back", || held() == "0");
        assert_eq!(wire.run("CT.GET k 5 likes").to_string(), "[6]", "reads go on");
        wire.done("CLIENT UNPAUSE");
        assert_eq!(reply(&mut waiting), "[7]");
        assert_eq!(wire.run("CT.GET k 5 likes").to_string(), "[7]");
    }
}
