//! A dump comes piece by piece, as a rewritten log has it (W4): in order, into a set that is not complete, and into nothing else.

use super::fuzz::pieces;
use tallystone_tests::SmallDisk;
use tallystone_tests::compact::{Engine, Node, Reply, Setup, Wire, eventually};

const KEYS: [(&str, &str); 3] = [("rising", ""), ("cold", "MEMORY_MAX 1"), ("hash", "ORDER RANDOM")];

/// A node with one set of this kind, and the pieces of its dump.
fn dumped(engine: Engine, (key, options): (&str, &str)) -> (Node, Vec<Vec<u8>>) {
    let node = Setup::new(engine).without_fsync().args("--aof-use-rdb-preamble no").start();
    let mut wire = node.wire();
    wire.done(&format!("CT.CREATE {key} TABLE_SLOTS 128 {options} SCHEMA likes 9 balance i20"));
    (0..2_000).for_each(|id| drop(wire.done(&format!("CT.INCRBY {key} {id} likes {id} balance -{id}"))));
    if options.starts_with("MEMORY_MAX") {
        eventually("tables are in files", || wire.run(&format!("CT.INFO {key}")).field("cold_tables").int() > 10);
    }
    let pieces = pieces(&node);
    assert!(pieces.len() >= 3, "{}", pieces.len());
    (node, pieces)
}

fn send(wire: &mut Wire, key: &str, piece: &[u8]) -> Reply {
    wire.call(&[b"CT.RESTORE".as_slice(), key.as_bytes(), piece])
}

#[test]
fn w4_a_dump_is_taken_once_and_in_order() {
    for engine in Engine::ALL {
        for kind in KEYS {
            let (node, pieces) = dumped(engine, kind);
            let (key, mut wire) = (kind.0, node.wire());
            let digest = node.digest(key);
            wire.done("CONFIG SET notify-keyspace-events KEA");
            let mut events = node.wire();
            events.done("SUBSCRIBE __keyspace@0__:new");
            for piece in &pieces {
                assert_eq!(send(&mut wire, "new", piece).text(), "OK", "{key}");
                assert_eq!(events.read().expect("an event").items()[2].text(), "ct.restore", "{key}");
            }
            assert_eq!(node.digest("new"), digest, "{key}");
            wire.done("CT.CREATE other SCHEMA likes 9 balance i20");
            let offset = node.info("replication", "master_repl_offset");
            for complete in ["new", key, "other"] {
                for piece in &pieces {
                    assert_eq!(send(&mut wire, complete, piece).code(), Some("BUSYKEY"), "{complete}");
                }
            }
            assert_eq!((node.digest("new"), node.digest(key)), (digest.clone(), digest.clone()));
            assert_eq!(node.info("replication", "master_repl_offset"), offset, "nothing is replicated");
            // The last piece directly after the first one, then those between: the order of a dump is kept.
            assert_eq!(send(&mut wire, "late", &pieces[0]).text(), "OK");
            let early = send(&mut wire, "late", &pieces[pieces.len() - 2]).to_string();
            if early.starts_with('!') {
                assert!(early.contains("does not follow"), "{key}: {early}");
                for piece in &pieces[1..] {
                    assert_eq!(send(&mut wire, "late", piece).text(), "OK", "{key}");
                }
                assert_eq!(node.digest("late"), digest, "{key}");
            }
        }
    }
}

/// What a client wrote to a set that is not complete would be lost with the next piece, or not fit a dump of it.
#[test]
fn w4_a_set_that_lacks_pieces_is_neither_read_nor_changed() {
    // What a set refuses does not depend on the engine; that its log keeps an incomplete one does.
    for (engine, kinds) in [(Engine::Redis, &KEYS[..]), (Engine::Valkey, &KEYS[1..2])] {
        for kind in kinds {
            let (source, pieces) = dumped(engine, *kind);
            let mut node = Setup::new(engine).start();
            let middle = pieces.len() / 2;
            let mut wire = node.wire();
            pieces[..middle].iter().for_each(|piece| assert_eq!(send(&mut wire, "k", piece).text(), "OK"));
            for command in [
                "CT.GET k 5",
                "CT.MGET k 5",
                "CT.INCRBY k 5 likes 1",
                "CT.MINCRBY k 5 likes 1",
                "CT.SET k 5 likes 1",
                "CT.DEL k 5",
                "CT.SCAN k 0",
                "CT.ALTER k ADD other 5",
                "CT.REPAIR k 0 5 x",
            ] {
                assert_eq!(wire.run(command).code(), Some("RESTORING"), "{} {command}", kind.0);
            }
            node.rewrite_log();
            node.kill();
            node.start_again();
            let mut wire = node.wire();
            assert_eq!(wire.run("CT.GET k 5").code(), Some("RESTORING"), "{}", kind.0);
            pieces[middle..].iter().for_each(|piece| assert_eq!(send(&mut wire, "k", piece).text(), "OK"));
            assert_eq!(node.digest("k"), source.digest(kind.0));
            assert_eq!(wire.run("CT.GET k 5 likes").to_string(), "[5]");
        }
    }
}

#[test]
fn w4_a_dump_goes_on_after_a_restart_and_on_a_replica() {
    for engine in Engine::ALL {
        for kind in KEYS {
            let (source, pieces) = dumped(engine, kind);
            let digest = source.digest(kind.0);
            for preamble in ["yes", "no"] {
                let mut node = Setup::new(engine).args(&format!("--aof-use-rdb-preamble {preamble}")).start();
                let replica = Setup::new(engine).without_fsync().start();
                let middle = pieces.len() / 2;
                pieces[..middle].iter().for_each(|piece| assert_eq!(send(&mut node.wire(), "k", piece).text(), "OK"));
                node.rewrite_log();
                replica.follow(&node);
                node.kill();
                node.start_again();
                let rest = &pieces[middle..];
                rest.iter().for_each(|piece| assert_eq!(send(&mut node.wire(), "k", piece).text(), "OK"));
                assert_eq!(node.digest("k"), digest, "{} {preamble}", kind.0);
                replica.has_caught_up_with(&node);
                assert_eq!(replica.digest("k"), digest, "{} {preamble}, the replica", kind.0);
                node.kill();
                node.start_again();
                assert_eq!(node.digest("k"), digest, "{} {preamble}, after a restart", kind.0);
            }
        }
    }
}

#[test]
fn w4_a_dump_that_failed_has_failed_after_a_restart_too() {
    for engine in Engine::ALL {
        let (source, pieces) = dumped(engine, KEYS[1]);
        for preamble in ["yes", "no"] {
            let disk = SmallDisk::mount(1 << 20);
            let args = format!("--aof-use-rdb-preamble {preamble}");
            let mut node = Setup::new(engine).args(&args).cold(disk.path()).start();
            disk.leave(20 << 10);
            let replica = Setup::new(engine).without_fsync().start();
            replica.follow(&node);
            let failed = pieces.iter().position(|piece| send(&mut node.wire(), "k", piece).code().is_some());
            let rest = failed.map(|failed| &pieces[failed + 1..]).expect("the disk is full");
            let is_restoring = |node: &Node| node.wire().run("CT.INFO k").field("restoring").int();
            let are_refused = |node: &Node| {
                let refused = rest.iter().map(|piece| send(&mut node.wire(), "k", piece).to_string());
                refused.into_iter().all(|refused| refused.contains("an earlier piece of this dump failed"))
            };
            assert!(is_restoring(&node) == 1 && are_refused(&node));
            replica.has_caught_up_with(&node);
            replica.wire().done("REPLICAOF NO ONE");
            assert!(is_restoring(&replica) == 1 && are_refused(&replica), "{engine:?} {preamble}");
            disk.make_room();
            node.wire().done("COPY k copy");
            assert_eq!(node.wire().run("CT.INFO copy").field("restoring").int(), 1);
            // The log has the commands themselves, and then what they have made.
            for rewrites in [false, true] {
                if rewrites {
                    node.rewrite_log();
                }
                node.kill();
                node.start_again();
                assert!(is_restoring(&node) == 1 && are_refused(&node), "{engine:?} {preamble} {rewrites}");
            }
            node.wire().done("UNLINK k");
            pieces.iter().for_each(|piece| assert_eq!(send(&mut node.wire(), "k", piece).text(), "OK"));
            assert_eq!((node.digest("k"), is_restoring(&node)), (source.digest("cold"), 0));
        }
    }
}

#[test]
fn w3_a_dump_that_is_given_up_leaves_no_file() {
    for engine in Engine::ALL {
        let (source, pieces) = dumped(engine, KEYS[1]);
        for end in ["UNLINK k", "FLUSHALL", "RENAME other k"] {
            let node = Setup::new(engine).without_fsync().start();
            let mut wire = node.wire();
            wire.done("CT.CREATE other SCHEMA likes 9");
            let middle = pieces.len() / 2;
            pieces[..middle].iter().for_each(|piece| assert_eq!(send(&mut wire, "k", piece).text(), "OK"));
            assert!(!node.cold_files().is_empty());
            wire.run(end);
            eventually("its files are deleted", || node.cold_files().is_empty());
        }
        drop(source);
    }
}
