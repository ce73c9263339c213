//! The disk of a replica (W4): what its primary has accepted is not missing there without a word, whatever the disk of the replica does.

use super::cold::{cold_node, until_cold};
use super::fuzz::pieces;
use tallystone_tests::SmallDisk;
use tallystone_tests::compact::{Engine, FailingDisk, Node, Setup, eventually};

const KEYS: [&str; 3] = ["k", "copy", "restored"];

fn are_equal(primary: &Node, replica: &Node, how: &str) {
    replica.has_caught_up_with(primary);
    for key in KEYS {
        assert_eq!(replica.scan(key), primary.scan(key), "{how}, {key}");
        assert_eq!(replica.digest(key), primary.digest(key), "{how}, {key}");
        assert_eq!(replica.faults(key), Vec::<String>::new(), "{how}, {key}");
    }
}

/// The place of a record is local: a replica that can write no file keeps the tables in memory, and moves them later.
#[test]
fn w4_a_replica_without_room_for_files_takes_copies_and_payloads() {
    for engine in Engine::ALL {
        let disk = SmallDisk::mount(2 << 20);
        let primary = cold_node(Setup::new(engine).without_fsync());
        let replica = Setup::new(engine).without_fsync().cold(disk.path()).start();
        replica.follow(&primary);
        until_cold(&replica, "k");
        disk.leave(0);
        let mut wire = primary.wire();
        assert_eq!(wire.run("COPY k copy").int(), 1);
        let dumped = wire.run("DUMP k");
        assert_eq!(wire.call(&[b"RESTORE".as_slice(), b"restored", b"0", dumped.bytes()]).text(), "OK");
        for key in &KEYS[1..] {
            wire.done(&format!("CT.MINCRBY {key} 5 likes 70 900 views 2 5999 balance -3 7000 likes 4"));
        }
        are_equal(&primary, &replica, "without room");
        let log = replica.log();
        let kept =
            log.lines().filter(|line| line.contains("stay in memory") && line.contains("No space left on device"));
        assert_eq!(kept.count(), 2, "{engine:?}: {log}");
        for key in &KEYS[1..] {
            let tables = replica.wire().run(&format!("CT.TABLES {key}"));
            assert!(tables.items().iter().all(|table| table.field("state").text() != "cold"), "{engine:?}: {tables}");
        }
        disk.make_room();
        KEYS[1..].iter().for_each(|key| until_cold(&replica, key));
        are_equal(&primary, &replica, "with room");
    }
}

/// The pieces of a rewritten log come one by one, so that none can be taken again: the replica ends, and then synchronizes.
#[test]
fn w4_a_replica_without_room_for_a_piece_ends() {
    for engine in Engine::ALL {
        let source = cold_node(Setup::new(engine).without_fsync().args("--aof-use-rdb-preamble no"));
        let (pieces, digest) = (pieces(&source), source.digest("k"));
        let disk = SmallDisk::mount(2 << 20);
        let primary = Setup::new(engine).without_fsync().start();
        let mut replica = Setup::new(engine).without_fsync().cold(disk.path()).start();
        replica.follow(&primary);
        disk.leave(0);
        for piece in &pieces {
            let reply = primary.wire().call(&[b"CT.RESTORE".as_slice(), b"k", piece.as_slice()]);
            assert_eq!(reply.text(), "OK", "{engine:?}");
        }
        eventually("the replica ends", || !replica.answers());
        assert!(replica.log().contains("so that it does not differ from its primary"), "{engine:?}: {}", replica.log());
        disk.make_room();
        replica.kill();
        replica.start_again();
        replica.follow(&primary);
        assert_eq!((replica.digest("k"), primary.digest("k")), (digest.clone(), digest), "{engine:?}");
    }
}

#[test]
fn w4_a_page_that_a_replica_cannot_copy_is_damaged_in_the_copy() {
    for engine in Engine::ALL {
        let disk = FailingDisk::new();
        let primary = cold_node(Setup::new(engine).without_fsync());
        let replica = Setup::new(engine).without_fsync().wrapped(|engine| disk.program(engine)).start();
        replica.follow(&primary);
        until_cold(&replica, "k");
        disk.set_fails(true);
        assert_eq!(primary.wire().run("COPY k copy").int(), 1);
        replica.has_caught_up_with(&primary);
        disk.set_fails(false);
        let mut wire = replica.wire();
        let refused = wire.run("CT.GET copy 5 likes");
        assert_eq!(refused.code(), Some("DAMAGED"), "{refused}");
        // What it has in memory is in the copy.
        assert_eq!(wire.run("CT.GET copy 5999 likes").to_string(), "[6000]");
        assert!(wire.run("CT.INFO copy").field("damaged_ranges").int() > 0);
        assert_eq!(
            (replica.scan("k"), replica.faults("k")),
            (primary.scan("k"), Vec::new()),
            "the source is as it was"
        );
    }
}
