//! Active defragmentation (W1): the engine moves values and their slots while clients count. Only an engine with the allocator from its
//! sources can do it: `TALLYSTONE_DEFRAG_SERVER` names one. Without it, the engines of the other tests are tried. Those of Debian and of
//! `scripts/services.sh` cannot; the module's own test then drives the same code with a simulated engine.

use tallystone_tests::compact::{Engine, Node, Setup, eventually};

const KEYS: u64 = 8;
const IDS: u64 = 80_000;
/// Ids of one command: less than a table has, so that tables of all sets lie side by side.
const BATCH: u64 = 200;

fn nodes() -> Vec<Node> {
    let setups = match std::env::var_os("TALLYSTONE_DEFRAG_SERVER") {
        Some(program) => vec![Setup::new(Engine::Redis).program(program.as_ref())],
        None => Engine::ALL.map(Setup::new).into(),
    };
    let nodes = setups.into_iter().map(|setup| setup.without_log().start());
    nodes.filter(|node| node.wire().run("CONFIG SET activedefrag yes").code().is_none()).collect()
}

#[test]
fn w1_active_defragmentation_moves_slots_and_changes_no_counter() {
    let nodes = nodes();
    if nodes.is_empty() {
        println!("no engine here can defragment: TALLYSTONE_DEFRAG_SERVER names one that can");
    }
    for node in nodes {
        let mut wire = node.wire();
        wire.done("CONFIG SET activedefrag no");
        // Tables of one small segment: the allocator moves only what it keeps in pages with others. Each set has more than a megabyte, so
        // that it is moved in pieces.
        (0..KEYS).for_each(|key| drop(wire.done(&format!("CT.CREATE k{key} TABLE_SLOTS 256 SCHEMA a 24 b 24 c 40"))));
        for base in (0..IDS).step_by(BATCH as usize) {
            let item = |id: u64| [&id.to_le_bytes()[..], &[0], &(id as i32 + 1).to_le_bytes()].concat();
            let packed: Vec<u8> = (base..base + BATCH).flat_map(item).collect();
            for key in 0..KEYS {
                wire.call(&[b"CT.PINCRBY".as_slice(), format!("k{key}").as_bytes(), &packed]);
            }
        }
        // Every second one goes, and leaves holes.
        (1..KEYS).step_by(2).for_each(|key| drop(wire.done(&format!("DEL k{key}"))));
        let kept = || (2..KEYS).step_by(2).map(|key| node.digest(&format!("k{key}"))).collect::<Vec<_>>();
        let before = kept();
        let settings = ["active-defrag-ignore-bytes 1", "active-defrag-threshold-lower 0", "activedefrag yes"];
        settings.iter().for_each(|setting| drop(wire.done(&format!("CONFIG SET {setting}"))));
        let mut counted = 0;
        eventually("slots are moved", || {
            // Meanwhile old ids are counted, and tables come.
            for id in [counted % IDS, IDS + counted] {
                wire.done(&format!("CT.INCRBY k0 {id} b 1"));
            }
            counted += 1;
            node.info("stats", "active_defrag_hits").parse::<u64>().expect("a number") > 500
        });
        wire.done("CONFIG SET activedefrag no");
        assert_eq!(kept(), before);
        let scanned = node.scan("k0");
        let expected = |id: u64| vec![(id + 1).cast_signed(), i64::from(id < counted), 0];
        assert!((0..IDS).all(|id| scanned[&id] == expected(id)), "{counted} were counted");
        assert_eq!(scanned.len() as u64, IDS + counted);
        for key in (0..KEYS).step_by(2) {
            assert_eq!(node.faults(&format!("k{key}")), Vec::<String>::new());
        }
    }
}
