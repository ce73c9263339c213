//! The program on sets that are larger than one reply.

use crate::system::program;
use std::process::Command;
use tallystone_tests::compact::{Engine, Setup};

#[test]
fn w2_the_program_shows_all_tables_of_a_set() {
    let node = Setup::new(Engine::Redis).without_log().start();
    let mut wire = node.wire();
    wire.done("CT.CREATE k TABLE_SLOTS 16 SCHEMA a 8");
    let add = |id: u64| ["CT.INCRBY", "k", &id.to_string(), "a", "1"].map(str::to_owned).to_vec();
    wire.pipeline(&(0..9_000).map(add).collect::<Vec<_>>());
    let tables = wire.run("CT.INFO k").field("hot_tables").int() as usize;
    assert!(tables > 512, "{tables}");
    let url = format!("redis://127.0.0.1:{}", node.port());
    let run = |verb: &str| {
        let args = ["--json", "compact", "--redis-url", &url, verb, "k"];
        let ended = Command::new(program::path()).args(args).output().expect("the program");
        assert!(ended.status.success(), "{verb}: {}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).expect("a text")
    };
    assert_eq!(run("tables").matches("\"first_id\"").count(), tables);
    assert!(run("check").contains(&format!("\"tables\":{tables}")));
}
