//! Another module of the engine learns of a change, and at that moment reads the set or deletes its key (W1). The sanitizer runs this test:
//! without it, freed memory mostly keeps its content, and the test would pass.

use tallystone_tests::compact::{Engine, Setup, compile};
use tempfile::TempDir;

const SOURCE: &str = include_str!("meddler.c");

#[test]
fn w1_another_module_reads_or_deletes_a_set_when_it_learns_of_a_change() {
    let folder = TempDir::new().expect("a temporary folder");
    compile(folder.path(), "meddler", SOURCE);
    let library = folder.path().join("meddler.so");
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().args(&format!("--loadmodule {}", library.display())).start();
        let mut wire = node.wire();
        wire.done("CT.CREATE read SCHEMA a 24 b 24");
        let changes = ["CT.SET KEY 1 a 7", "CT.INCRBY KEY 1 a 1", "CT.MINCRBY KEY 1 a 1 2 a 1", "CT.ALTER KEY ADD c 8"];
        let changes = changes.into_iter().chain(["CT.DEL KEY 1"]);
        for change in changes {
            wire.done(&change.replace("KEY", "read"));
            // A key of this name would be gone as soon as it is created.
            wire.done("CT.CREATE new SCHEMA a 24 b 24");
            wire.done("CT.SET new 1 b 7");
            wire.done("RENAME new deleted");
            let reply = wire.done(&change.replace("KEY", "deleted"));
            assert_eq!(wire.run("EXISTS deleted").int(), 0, "{change}: {reply}");
        }
        assert_eq!(wire.run("CT.GET read 2").to_string(), "[1 0 0]");
        assert!(node.info("commandstats", "cmdstat_ct.get").starts_with("calls=7,"), "{engine:?}: it read");
        assert!(!node.log().contains("a bug"), "{}", node.log());
    }
}
