//! The same as `longest` of damaged pages, and of many commands that wait for pages (W3).

use super::cold::until_cold;
use super::longest::{MOST_US, fill_cold, held_us, words};
use std::os::unix::fs::FileExt;
use tallystone_tests::compact::{Engine, FailingDisk, Setup, Turns, eventually};

const PAGE_BYTES: u64 = 4_096;

/// As many damaged pages as a command repairs, and as many ids in them that were written since, in each of some tables.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w3_no_repair_takes_the_engine_a_millisecond() {
    const TABLES: usize = 5;
    const PAGES: u64 = 128;
    const WRITTEN: u64 = 512;
    let turns = Turns::new();
    let node = Setup::new(Engine::Redis).without_log().wrapped(|program| turns.program(program)).start();
    let mut wire = node.wire();
    wire.done("CT.CREATE k TABLE_SLOTS 65536 CACHE_BYTES 0 SCHEMA a 64 b 64 c 64 d 64");
    // So that a page has few records: the other bits of the values are random.
    let value = |id: u64, field: u64| ((id * 4 + field).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1).to_string();
    let fields = |id: u64| ["a", "b", "c", "d"].into_iter().zip(0..).map(move |(name, field)| (name, value(id, field)));
    let set = |id: u64| {
        let words = ["CT.SET".to_owned(), "k".to_owned(), id.to_string()].into_iter();
        words.chain(fields(id).flat_map(|(name, value)| [name.to_owned(), value])).collect::<Vec<_>>()
    };
    let count = |wire: &mut tallystone_tests::compact::Wire| wire.run("CT.TABLES k").items().len();
    let mut next = 0;
    while count(&mut wire) <= TABLES {
        wire.pipeline(&(next..next + 5_000).map(set).collect::<Vec<_>>());
        next += 5_000;
    }
    wire.done("CT.ALTER k OPTION MEMORY_MAX 1");
    until_cold(&node, "k");
    // No merge takes the writes.
    wire.done("CT.ALTER k OPTION MEMORY_MAX 0");
    let tables = wire.run("CT.TABLES k");
    let runs = tables.items()[..TABLES].iter().map(|table| {
        let (name, first) = (table.field("file").text(), table.field("first_id").int().unsigned_abs());
        let path = node.cold_files().into_iter().find(|path| path.ends_with(&name)).expect("the file of the table");
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("a file");
        for page in 0..PAGES {
            let (at, mut byte) = (page * PAGE_BYTES + 100, [0]);
            file.read_exact_at(&mut byte, at).expect("a byte");
            file.write_all_at(&[byte[0] ^ 8], at).expect("a byte");
        }
        let faults = node.faults("k");
        assert_eq!(faults.len() as u64, PAGES, "{:?}", faults.first());
        // Of each page as many. A set of all fields does not read the page.
        let ids_of = |fault: &String| {
            let ids = fault.split_once("(ids ").expect("ids").1.trim_end_matches(')');
            let (first, last) = ids.split_once(" to ").expect("two ids");
            [first, last].map(|id| id.parse::<u64>().expect("an id"))
        };
        let pages: Vec<[u64; 2]> = faults.iter().map(ids_of).collect();
        let of_page = |[first, last]: [u64; 2], from: u64, count: u64| {
            let ids = first + from..first + from + count;
            assert!(ids.end <= last + 1, "{first} to {last}");
            ids
        };
        let written: Vec<u64> = pages.iter().flat_map(|page| of_page(*page, 0, WRITTEN / PAGES)).collect();
        wire.pipeline(&written.iter().copied().map(set).collect::<Vec<_>>());
        // As many records as a command may have; half of them are of ids that were written.
        let ids = pages.iter().flat_map(|page| of_page(*page, 2, WRITTEN / PAGES));
        let record = |id: u64| [id, 1, 2, 3, 4].map(u64::to_le_bytes).concat();
        let range = format!("CT.REPAIR k {first} {}", pages.last().expect("a page")[1]);
        let repair = [words(&range), vec![ids.flat_map(record).collect()]].concat();
        let took = held_us(&turns, &mut wire, &repair);
        assert!(node.faults("k").is_empty());
        took
    });
    let runs: Vec<i64> = runs.collect();
    println!("REPAIR, in µs: {runs:?}");
    assert!(*runs.iter().min().expect("a run") < MOST_US, "{runs:?}");
}

/// Many commands are in the queue, and the cache has what they need by the time that there is room for them.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w3_commands_in_the_queue_are_located_a_few_at_a_time() {
    const CLIENTS: usize = 400;
    const IDS: u64 = 512;
    let (turns, disk) = (Turns::new(), FailingDisk::new());
    let node = Setup::new(Engine::Redis).without_log().wrapped(|redis| turns.program(&disk.program(redis))).start();
    fill_cold(&node, 500_000, 0, &[]);
    let mut wire = node.wire();
    wire.done("CT.ALTER cold OPTION CACHE_BYTES 16777216");
    let figure = |name: &str| -> usize {
        node.info("tallystone_compact", &format!("tallystone_compact_{name}")).parse().expect("a number")
    };
    let get = [words("CT.PGET cold"), vec![(0..IDS).flat_map(|n| (n * 370).to_le_bytes()).collect()]].concat();
    let before = figure("cold_commands");
    disk.set_stalls(true);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| node.wire()).collect();
    for client in &mut clients {
        client.add(&get);
        client.flush().expect("a connection");
    }
    eventually("all commands wait", || figure("cold_commands") == before + CLIENTS);
    wire.done("PING");
    turns.reset();
    disk.set_stalls(false);
    let replies: Vec<_> = clients.iter_mut().map(|client| client.read().expect("a connection")).collect();
    assert!(replies.iter().all(|reply| reply.bytes() == replies[0].bytes()));
    wire.done("PING");
    let longest_us = turns.longest_us();
    println!("{CLIENTS} commands, {} pages: {longest_us} µs", figure("cold_pages_read"));
    assert!(longest_us > 0, "the engine runs without the library that measures it");
    assert!(longest_us < 4 * MOST_US, "{longest_us} µs");
}
