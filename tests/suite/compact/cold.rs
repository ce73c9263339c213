//! Tables in files (W3): many clients read and write cold ids, files are merged, and no client waits for ever.

use super::engine::figure;
use super::load::{Load, SCHEMA, SET_IDS, judge};
use super::random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tallystone_tests::compact::{Engine, Node, Reply, Setup, Wire, eventually};

const OPTIONS: &str = "TABLE_SLOTS 256 MEMORY_MAX 1 CACHE_BYTES 100000";
const IDS: u64 = 6_000;

fn ids_at_once(name: &str, ids: impl Iterator<Item = u64>, rest: impl Fn(u64) -> Vec<String>) -> Vec<Vec<String>> {
    let ids: Vec<u64> = ids.collect();
    let command = |ids: &[u64]| {
        let head = [name.to_owned(), "k".to_owned()].into_iter();
        head.chain(ids.iter().flat_map(|id| std::iter::once(id.to_string()).chain(rest(*id)))).collect()
    };
    ids.chunks(500).map(command).collect()
}

/// Ids 0 to [`IDS`], `likes` one more than the id, in files but for the last table.
pub(super) fn cold_node(setup: Setup) -> Node {
    let node = setup.start();
    let mut wire = node.wire();
    wire.done(&format!("CT.CREATE k {OPTIONS} {SCHEMA}"));
    let rest = |id: u64| vec!["likes".to_owned(), (id + 1).to_string()];
    wire.pipeline(&ids_at_once("CT.MINCRBY", 0..IDS, rest));
    until_cold(&node, "k");
    node
}

/// Waits until all tables that can be in files are, and nothing is being written.
pub(super) fn until_cold(node: &Node, key: &str) {
    eventually("tables are cold", || {
        let tables = node.wire().run(&format!("CT.TABLES {key}"));
        let (last, others) = tables.items().split_last().expect("a table");
        last.field("state").text() == "hot" && others.iter().all(|table| table.field("state").text() == "cold")
    });
}

/// The pages that commands wait for would take 256 MiB.
#[test]
fn w3_pages_for_commands_that_wait_take_bounded_memory() {
    const CLIENTS: u64 = 128;
    const PAGES_MAX: i64 = 16_384;
    let node = Setup::new(Engine::Redis).without_log().start();
    let mut wire = node.wire();
    wire.done("CT.CREATE k TABLE_SLOTS 65536 MEMORY_MAX 1 CACHE_BYTES 0 SCHEMA a 64 b 64");
    // So that a page has few records.
    let value = |id: u64| (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3).cast_signed();
    for ids in (0..250_000).collect::<Vec<u64>>().chunks(250) {
        let item =
            |id: &u64| ["a", "b"].map(|field| [id.to_string(), field.to_owned(), value(*id).to_string()]).concat();
        wire.call(
            &["CT.MINCRBY", "k"].map(str::to_owned).into_iter().chain(ids.iter().flat_map(item)).collect::<Vec<_>>(),
        );
    }
    until_cold(&node, "k");
    let held = || node.info("tallystone_compact", "tallystone_compact_cold_pages_held").parse().expect("a number");
    let mut clients: Vec<Wire> = (0..CLIENTS).map(|_| node.wire()).collect();
    let wanted = |client: u64| (0..512).map(move |place| place * 380 + client);
    for (client, number) in clients.iter_mut().zip(0..) {
        let packed: Vec<u8> = wanted(number).flat_map(u64::to_le_bytes).collect();
        client.add(&[b"CT.PGET".to_vec(), b"k".to_vec(), packed]);
        client.flush().expect("a connection");
    }
    let mut most = 0_i64;
    for (client, number) in clients.iter_mut().zip(0..) {
        most = most.max(held());
        let expected: Vec<u8> = wanted(number).flat_map(|id| [value(id); 2].map(i64::to_le_bytes).concat()).collect();
        assert!(client.read().expect("a connection").bytes() == expected, "client {number}");
    }
    println!("{most} pages at most");
    assert!(most <= PAGES_MAX && most > 1_024, "{most} pages");
    assert_eq!(held(), 0);
}

#[test]
fn w3_many_clients_read_and_write_cold_ids() {
    for engine in Engine::ALL {
        let mut random = random("many clients on cold ids");
        let node = Setup::new(engine).without_fsync().start();
        node.wire().done(&format!("CT.CREATE k {OPTIONS} {SCHEMA}"));
        let load = Load::new(node.port());
        let is_done = AtomicBool::new(false);
        let sums = std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut wire = node.wire();
                    let ids = (0..200).map(|step| step * 37).filter(|id| !SET_IDS.contains(id));
                    let ids: Vec<String> = ids.map(|id| id.to_string()).collect();
                    let mut least: BTreeMap<usize, i64> = BTreeMap::new();
                    while !is_done.load(Relaxed) {
                        let reply = wire.call(&[vec!["CT.MGET".to_owned(), "k".to_owned()], ids.clone()].concat());
                        // Unsigned fields of the other ids only rise.
                        for (place, row) in reply.items().iter().enumerate() {
                            let (now, before) = (row.ints()[0], least.entry(place).or_default());
                            assert!(now >= *before, "{} had {before} likes and has {now}", ids[place]);
                            *before = now;
                        }
                    }
                });
            }
            let sums = load.run(3, &mut random, |_| load.progress(3_000));
            is_done.store(true, Relaxed);
            sums
        });
        judge(&node, &sums);
        let info =
            |name: &str| node.info("tallystone_compact", &format!("tallystone_compact_{name}")).parse::<u64>().unwrap();
        // Merges replace files: those that are there belong to a table.
        until_cold(&node, "k");
        judge(&node, &sums);
        assert!(info("cold_tables") > 5 && info("cold_commands") > 0 && info("cold_pages_read") > 0);
        eventually("old files are gone", || node.cold_files().len() as u64 == info("cold_tables"));
        node.wire().done("UNLINK k");
        eventually("the files of a deleted set are gone", || node.cold_files().is_empty());
    }
}

#[test]
fn w3_info_sums_files_the_cache_and_dictionaries() {
    for engine in Engine::ALL {
        let node = cold_node(Setup::new(engine).without_fsync());
        let mut wire = node.wire();
        // A record that has outgrown its slot, and a stray.
        wire.done("CT.CREATE other TABLE_SLOTS 1024 SCHEMA a 8");
        wire.done("CT.MINCRBY other 1 a 300 2 a 1 18446744073709551615 a 1");
        // The first read has its record from a page; the background then puts it into the cache.
        eventually("a read finds its record in the cache", || {
            wire.done("CT.GET k 5");
            figure(&node, "cache_hits") > 0
        });
        for name in ["file_bytes", "cache_hits", "cache_misses", "aux_ids", "extend_ids"] {
            let of_key = |key: &str| node.wire().run(&format!("CT.INFO {key}")).field(name).int();
            let (found, sum) = (figure(&node, name), of_key("k") + of_key("other"));
            assert!(sum > 0 && found == sum, "{engine:?}, {name}: {found} and {sum}");
        }
        let files = node.cold_files();
        let bytes: u64 = files.iter().map(|path| std::fs::metadata(path).expect("a file").len()).sum();
        let figures = (figure(&node, "file_bytes"), figure(&node, "open_files"));
        assert_eq!(figures, (bytes.cast_signed(), files.len() as i64), "{engine:?}");
    }
}

#[test]
fn w3_transactions_and_scripts_read_few_cold_pages() {
    for engine in Engine::ALL {
        let node = cold_node(Setup::new(engine).without_fsync());
        let mut wire = node.wire();
        wire.done("MULTI");
        wire.done("CT.GET k 7");
        wire.done("CT.INCRBY k 300 likes 1");
        wire.done("CT.MGET k 8 9 10");
        let replies = wire.run("EXEC").to_string();
        assert_eq!(replies, "[[8 0 0] [302] [[9 0 0] [10 0 0] [11 0 0]]]");
        let script = "return redis.call('CT.MGET', KEYS[1], unpack(ARGV))";
        let mget = |ids: &[u64]| {
            let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
            [vec!["EVAL".to_owned(), script.to_owned(), "1".to_owned(), "k".to_owned()], ids].concat()
        };
        assert_eq!(wire.call(&mget(&[11, 400])).to_string(), "[[12 0 0] [401 0 0]]");
        // A page of each of twenty tables.
        let many: Vec<u64> = (0..20).map(|table| 100 + table * 250).collect();
        let reply = wire.call(&mget(&many)).to_string();
        assert!(reply.starts_with("!COLD") || reply.contains("COLD"), "{reply}");
        wire.done("MULTI");
        wire.call(&[vec!["CT.MGET".to_owned(), "k".to_owned()], many.iter().map(u64::to_string).collect()].concat());
        let reply = wire.run("EXEC");
        assert_eq!(reply.items()[0].code(), Some("COLD"), "{reply}");
        // Outside of them, the client waits.
        let reply = wire
            .call(&[vec!["CT.MGET".to_owned(), "k".to_owned()], many.iter().map(u64::to_string).collect()].concat());
        let likes: Vec<i64> = reply.items().iter().map(|row| row.ints()[0]).collect();
        assert_eq!(likes, many.iter().map(|id| id.cast_signed() + 1).collect::<Vec<_>>());
    }
}

#[test]
fn w3_clients_go_away_while_they_wait() {
    for engine in Engine::ALL {
        let node = cold_node(Setup::new(engine).without_fsync());
        let mut random = random("clients go away");
        let reads = ids_at_once("CT.MGET", (0..IDS).step_by(3), |_| Vec::new());
        let adds = ids_at_once("CT.MINCRBY", (0..IDS).step_by(30), |_| vec!["views".to_owned(), "1".to_owned()]);
        for _ in 0..60 {
            let mut wires: Vec<Wire> = (0..4).map(|_| node.wire()).collect();
            for wire in &mut wires {
                let commands = if rand::Rng::random_bool(&mut random, 0.5) { &reads } else { &adds };
                commands.iter().for_each(|command| wire.add(command));
                wire.flush().expect("a connection");
            }
        }
        // The key goes away too, and comes back with other counters.
        let mut wire = node.wire();
        reads.iter().for_each(|command| wire.add(command));
        wire.flush().expect("a connection");
        node.wire().done("RENAME k away");
        node.wire().done("CT.CREATE k SCHEMA likes 8 balance i8 views 8");
        for _ in &reads {
            let reply = wire.read().expect("an answer");
            if reply.code() == Some("NOSET") {
                // The key was missing when this command began.
                continue;
            }
            let rows = reply.items().iter().map(Reply::ints).collect::<Vec<_>>();
            let sums: i64 = rows.iter().map(|row| row[0]).sum();
            assert!(sums == 0 || rows.iter().all(|row| row[0] > 0), "half of one set, half of another");
        }
        node.wire().done("RENAME away k");
        eventually("all clients are gone", || node.info("clients", "blocked_clients") == "0");
        let likes: i64 = node.scan("k").values().map(|row| row[0]).sum();
        assert_eq!(likes, (1..=IDS.cast_signed()).sum::<i64>());
        assert_eq!(node.faults("k"), Vec::<String>::new());
    }
}
