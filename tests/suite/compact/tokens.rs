//! Tokens across what a set goes through (W4); their times across restarts.

use super::now_ms;
use super::snapshots::Once;
use tallystone_tests::compact::{Engine, Setup, eventually};

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
    let node = Setup::new(Engine::Redis).start();
    node.wire().done("CT.CREATE k SCHEMA likes 8");
    let once = Once::count(&node, "k", "t");
    let bytes = || node.info("persistence", "aof_current_size");
    let before = bytes();
    (0..10).for_each(|_| once.again(&node, "k"));
    assert_eq!(bytes(), before);
}
