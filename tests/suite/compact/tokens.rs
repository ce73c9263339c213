//! Tokens across what a set goes through (W4); their times across restarts.

use super::now_ms;
use super::snapshots::Once;
use tallystone_tests::compact::{Engine, Setup, eventually};
use tallystone_tests::lasting_port;

#[test]
fn w4_tokens_go_with_copies_and_dumps() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let mut wire = node.wire();
        wire.done("CT.CREATE k SCHEMA likes 8");
        let once = Once::count(&node, "k", "t");
        wire.done("COPY k copy");
        let dumped = wire.run("DUMP k");
        wire.call(&[b"RESTORE".as_slice(), b"restored", b"0", dumped.bytes()]);
        wire.done("RENAME copy k");
        once.again(&node, "k");
        wire.done("RENAME restored k");
        once.again(&node, "k");
    }
}

#[test]
fn w4_a_forgotten_token_is_too_old() {
    for engine in Engine::ALL {
        let mut node = Setup::new(engine).start();
        node.wire().done("CT.CREATE k TOKEN_WINDOW_MS 400 SCHEMA likes 8");
        let line = format!("CT.INCRBY k 1 likes 1 TOKEN t TIME {}", now_ms());
        assert_eq!(node.wire().run(&line).to_string(), "[1]");
        eventually("the token is too old", || node.wire().run(&line).code() == Some("TOOOLD"));
        eventually("its memory is free", || node.wire().run("CT.INFO k").field("tokens").int() == 0);
        node.kill();
        node.start_again();
        assert_eq!(node.wire().run(&line).code(), Some("TOOOLD"));
        assert_eq!(node.wire().run("CT.GET k 1").to_string(), "[1]");
    }
}

#[test]
fn w4_a_repeated_token_is_not_replicated() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).start();
        node.wire().done("CT.CREATE k SCHEMA likes 8");
        let once = Once::count(&node, "k", "t");
        let bytes = || node.info("persistence", "aof_current_size");
        let before = bytes();
        (0..10).for_each(|_| once.again(&node, "k"));
        assert_eq!(bytes(), before);
    }
}

/// An increment is lost with its token.
#[test]
fn w4_a_token_that_a_promoted_replica_never_got_counts_there_once() {
    for engine in Engine::ALL {
        let start = || Setup::new(engine).without_fsync().start();
        let (mut primary, replica) = (start(), start());
        primary.wire().done("CT.CREATE k SCHEMA likes 8");
        let known = Once::count(&primary, "k", "known");
        replica.follow(&primary);
        let mut wire = replica.wire();
        // Nothing listens there, so the link is cut.
        wire.done(&format!("REPLICAOF 127.0.0.1 {}", lasting_port()));
        let lost = format!("CT.INCRBY k 5 likes 4 TOKEN lost TIME {}", now_ms());
        assert_eq!(primary.wire().run(&lost).to_string(), "[7]");
        primary.kill();
        wire.done("REPLICAOF NO ONE");
        assert_eq!(wire.run("CT.GET k 5").to_string(), "[3]", "{engine:?}");
        for _ in 0..2 {
            assert_eq!(wire.run(&lost).to_string(), "[7]", "{engine:?}");
        }
        known.again(&replica, "k");
        assert_eq!(wire.run("CT.GET k 5").to_string(), "[7]", "{engine:?}");
    }
}

/// In a full set, new ids of the same command may have taken the place of a record that became 0.
#[test]
fn w4_a_command_that_is_taken_back_leaves_each_value_as_it_was() {
    for order in ["RISING", "RANDOM"] {
        let node = Setup::new(Engine::Redis).without_fsync().start();
        let mut wire = node.wire();
        wire.done(&format!("CT.CREATE k ORDER {order} TABLE_SLOTS 64 TABLES_MAX 2 PROBE_MAX 1 SCHEMA a 8"));
        let (mut known, mut full) = (Vec::new(), Vec::new());
        for id in (0..400_u64).map(|id| id * 7) {
            match wire.run(&format!("CT.INCRBY k {id} a 1")).code() {
                None => known.push(id),
                Some(code) => {
                    assert_eq!(code, "FULL");
                    full.push(id);
                }
            }
        }
        assert!(known.len() > 50 && full.len() > 100, "{order}: {} and {}", known.len(), full.len());
        for (number, id) in known.iter().enumerate() {
            let new: String = (0..9).map(|place| format!(" {} a 1", full[(number * 9 + place) % full.len()])).collect();
            let reply = wire.run(&format!("CT.MINCRBY k {id} a -1{new} TOKEN t{number} TIME {}", now_ms()));
            assert!(reply.items().iter().all(|item| item.code().is_some()), "{order}: {reply}");
            assert_eq!(wire.run(&format!("CT.GET k {id}")).to_string(), "[1]", "{order}, id {id}: {reply}");
        }
        for id in known {
            assert_eq!(wire.run(&format!("CT.GET k {id}")).to_string(), "[1]", "{order}, id {id}");
        }
    }
}
