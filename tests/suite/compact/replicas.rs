//! Replicas (W4): a full resync, a partial one after a cut, and all writes between, end with equal counters. A replica needs no
//! files of its primary, and has its own.

use super::cold::{cold_node, until_cold};
use super::load::{Load, SCHEMA, judge};
use super::random;
use super::snapshots::{KINDS, fill_all};
use tallystone_tests::compact::{Engine, Node, Setup, eventually};
use tallystone_tests::lasting_port;

fn are_equal(primary: &Node, replica: &Node, how: &str) {
    replica.has_caught_up_with(primary);
    for (key, _) in KINDS {
        assert_eq!(replica.scan(key), primary.scan(key), "{how}, {key}");
        assert_eq!(replica.digest(key), primary.digest(key), "{how}, {key}");
    }
    assert_eq!(dataset_digest(replica), dataset_digest(primary), "{how}");
}

/// The digest of all keys, as the engine makes it of theirs.
fn dataset_digest(node: &Node) -> String {
    node.wire().done("DEBUG DIGEST").text()
}

fn write(node: &Node, round: u32) {
    let mut wire = node.wire();
    for (key, _) in KINDS {
        for id in (0..3_000).step_by(37) {
            wire.done(&format!("CT.INCRBY {key} {id} likes {round} balance -1"));
        }
        wire.done(&format!("CT.SET {key} 700 likes 1 balance 2 views 3"));
        wire.done(&format!("CT.SET {key} 701 likes {round}"));
        wire.done(&format!("CT.DEL {key} {} 800 801", 900 + round));
        wire.done(&format!("CT.ALTER {key} ADD f{round} 3"));
        wire.done(&format!("CT.INCRBY {key} 1 f{round} 9"));
    }
}

#[test]
fn w4_a_full_and_a_partial_resync_end_equal() {
    for engine in Engine::ALL {
        for diskless in ["yes", "no"] {
            let start = || Setup::new(engine).without_fsync().args(&format!("--repl-diskless-sync {diskless}")).start();
            let (primary, replica) = (start(), start());
            let once = fill_all(&primary);
            replica.follow(&primary);
            are_equal(&primary, &replica, "full");
            let before = dataset_digest(&primary);
            write(&primary, 1);
            assert_ne!(dataset_digest(&primary), before);
            are_equal(&primary, &replica, "stream");
            let full = primary.info("stats", "sync_full");
            let partial: u64 = primary.info("stats", "sync_partial_ok").parse().expect("a number");
            primary.wire().done("CLIENT KILL TYPE replica");
            write(&primary, 2);
            eventually("the replica resumes", || {
                primary.info("stats", "sync_partial_ok").parse::<u64>().is_ok_and(|count| count > partial)
            });
            assert_eq!(primary.info("stats", "sync_full"), full, "it resumed from the log");
            are_equal(&primary, &replica, "partial");
            for ((key, _), _) in KINDS.iter().zip(&once) {
                assert!(replica.wire().run(&format!("CT.INFO {key}")).field("tokens").int() > 0, "{key}");
                assert_eq!(replica.wire().run(&format!("CT.INCRBY {key} 1 likes 1")).code(), Some("READONLY"));
            }
            // It knows the tokens of its primary.
            replica.wire().done("REPLICAOF NO ONE");
            KINDS.iter().zip(&once).for_each(|((key, _), once)| once.again(&replica, key));
        }
    }
}

#[test]
fn w4_a_replica_of_a_loaded_primary_ends_equal() {
    for engine in Engine::ALL {
        let mut random = random("a replica under load");
        let start = || Setup::new(engine).without_fsync().start();
        let (primary, replica) = (start(), start());
        primary.wire().done(&format!("CT.CREATE k TABLE_SLOTS 256 MEMORY_MAX 1 CACHE_BYTES 100000 {SCHEMA}"));
        let load = Load::new(primary.port());
        let sums = load.run(3, &mut random, |_| {
            load.progress(300);
            replica.wire().done(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
            for _ in 0..6 {
                load.progress(300);
                primary.wire().done("CLIENT KILL TYPE replica");
            }
            load.progress(300);
        });
        replica.has_caught_up_with(&primary);
        judge(&primary, &sums);
        judge(&replica, &sums);
        assert_eq!(primary.digest("k"), replica.digest("k"));
    }
}

/// With `swapdb`, a replica serves its counters while it loads those of its primary. It runs no timers then, and unblocks no client: a
/// command reads its few pages immediately, or is refused (`COLD`).
#[test]
fn w3_a_replica_that_loads_answers_commands_on_cold_ids() {
    const KEYS: usize = 4_000;
    for engine in Engine::ALL {
        let primary = cold_node(Setup::new(engine).without_log().args("--repl-backlog-size 16kb"));
        primary.wire().done("CT.ALTER k OPTION CACHE_BYTES 0");
        let replica = Setup::new(engine).without_log().args("--repl-diskless-load swapdb").start();
        let fill = |value: &str| {
            let set = |key: usize| ["SET".to_owned(), format!("key{key}"), value.repeat(400)].to_vec();
            primary.wire().pipeline(&(0..KEYS).map(set).collect::<Vec<_>>());
        };
        fill("a");
        replica.follow(&primary);
        until_cold(&replica, "k");
        let mut wire = replica.wire();
        // The replica misses more writes than the backlog holds, so it needs a full synchronization. It loads slowly, and serves
        // clients between the keys.
        wire.done(&format!("REPLICAOF 127.0.0.1 {}", lasting_port()));
        fill("b");
        wire.done("CONFIG SET key-load-delay 5000");
        wire.done("CONFIG SET loading-process-events-interval-bytes 1024");
        wire.done(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        let is_loading = || replica.info("persistence", "async_loading") == "1";
        eventually("it loads", is_loading);
        let mut client = replica.wire();
        assert_eq!(client.run("CT.GET k 5 likes").to_string(), "[6]");
        let many: Vec<String> = (0..20).map(|table| (100 + table * 250).to_string()).collect();
        let refused = client.run(&format!("CT.MGET k {}", many.join(" ")));
        assert_eq!(refused.code(), Some("COLD"), "{refused}");
        assert!(is_loading(), "the answers came too late");
        wire.done("CONFIG SET key-load-delay 0");
        replica.has_caught_up_with(&primary);
        until_cold(&replica, "k");
        // Clients wait again.
        assert_eq!(client.run(&format!("CT.MGET k {}", many.join(" "))).items().len(), 20);
        assert_eq!(primary.digest("k"), replica.digest("k"));
    }
}
