//! What a set takes, and what the same counters take as keys (W5).

use tallystone_tests::compact::{Engine, Node, Setup, eventually};

const SLOTS: u64 = 131_072;
/// Of four fields, skewed: a few values outgrow their widths.
const FIELDS: [&str; 4] = ["likes", "reposts", "comments", "views"];

fn used_bytes(node: &Node) -> u64 {
    node.info("memory", "used_memory").parse().expect("a number")
}

fn value(id: u64, field: u64) -> u64 {
    if (id / 512).is_multiple_of(800) { 1 << 30 } else { (id * 7 + field) % 90 }
}

/// Sends commands in a pipeline, and returns by how much the memory grew.
fn growth(node: &Node, commands: impl Iterator<Item = Vec<String>>) -> u64 {
    let mut wire = node.wire();
    let before = used_bytes(node);
    let commands: Vec<Vec<String>> = commands.collect();
    for some in commands.chunks(1_000) {
        wire.pipeline(some).iter().for_each(|reply| assert_eq!(reply.code(), None, "{reply}"));
    }
    drop(wire);
    // Only the connection that this reads by has buffers.
    eventually("the connection is closed", || node.info("clients", "connected_clients") == "1");
    used_bytes(node) - before
}

#[test]
fn w5_a_set_takes_less_than_a_tenth_of_the_memory_of_keys() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        // One table at its threshold; ids rise by 512.
        let ids = || (0..SLOTS * 9 / 10).map(|n| 1_000_000_000_000_000 + n * 512);
        let keys = growth(
            &node,
            ids().flat_map(|id| {
                (0..4).map(move |field| {
                    ["SET".to_owned(), format!("{}:{id}", FIELDS[field]), value(id, field as u64).to_string()].to_vec()
                })
            }),
        );
        let create = format!("CT.CREATE k TABLE_SLOTS {SLOTS} SCHEMA likes 24 reposts 24 comments 16 views 24");
        let create = create.split(' ').map(str::to_owned).collect();
        // A separate engine: the first one still gives memory of its growing dictionary back.
        let node = Setup::new(engine).without_log().start();
        let set = growth(
            &node,
            std::iter::once(create).chain(ids().map(|id| {
                let head = ["CT.SET".to_owned(), "k".to_owned(), id.to_string()];
                let pairs = (0..4_usize).flat_map(|at| [FIELDS[at].to_owned(), value(id, at as u64).to_string()]);
                head.into_iter().chain(pairs).collect()
            })),
        );
        let counted = ids().count() as u64;
        println!("{engine:?}: {} B an id as keys, {} B in the set", keys / counted, set / counted);
        assert!(set * 10 < keys, "{set} of {keys}");
        // The engine's figure is what the set says.
        let said = node.wire().run("MEMORY USAGE k").int().unsigned_abs();
        assert!(said.abs_diff(set) < set / 10, "MEMORY USAGE {said}, the engine grew by {set}");
        assert!(set / counted <= 20, "{} B an id", set / counted);
    }
}

#[test]
fn w5_one_request_reads_all_counters_of_many_objects() {
    for engine in Engine::ALL {
        let node = Setup::new(engine).without_log().start();
        let mut wire = node.wire();
        wire.done("CT.CREATE k SCHEMA likes 24 reposts 24 comments 16 views 24");
        let ids: Vec<u64> = (0..64).map(|n| n * 1_000).collect();
        for id in &ids {
            wire.done(&format!("CT.SET k {id} likes {id} views 7"));
        }
        let before = node.info("stats", "total_commands_processed");
        let mut command = vec!["CT.MGET".to_owned(), "k".to_owned()];
        command.extend(ids.iter().map(u64::to_string));
        let rows: Vec<Vec<i64>> = wire.call(&command).items().iter().map(|row| row.ints()).collect();
        let expected: Vec<Vec<i64>> = ids.iter().map(|id| vec![id.cast_signed(), 0, 0, 7]).collect();
        assert_eq!(rows, expected);
        let after = node.info("stats", "total_commands_processed");
        let count = |text: String| text.parse::<u64>().expect("a number");
        assert!(count(after) - count(before) <= 3, "256 counters in one command");
    }
}
