//! The same as `longest` of sets with 256 fields (W1, W3): what takes a time for each field, also for fields that are retired.

use super::cold::until_cold;
use super::longest::{Command, MOST_US, RUNS, held_us, logged, took_us, words};
use tallystone_tests::SmallDisk;
use tallystone_tests::compact::{Engine, Node, Setup, Turns, Wire, eventually};

/// As many as a schema may have.
const FIELDS: u64 = 256;
/// Ids that a command may write in a set with so many fields.
const WRITTEN: u64 = 64;

/// Names as long as they may be, which differ in the end only.
fn name(field: u64) -> String {
    format!("{field:_>64}")
}

fn schema() -> String {
    (0..FIELDS).map(|field| format!(" {} 1", name(field))).collect()
}

/// Counts ids in one field, one for each. Returns how many were refused.
fn count(node: &Node, key: &str, ids: std::ops::Range<u64>, field: u8) -> u64 {
    let commands = ids.clone().step_by(WRITTEN as usize).map(|first| {
        let ids = first..(first + WRITTEN).min(ids.end);
        let packed = ids.flat_map(|id| [&id.to_le_bytes()[..], &[field], &1_i32.to_le_bytes()].concat());
        [b"CT.PINCRBY".to_vec(), key.as_bytes().to_vec(), packed.collect()].to_vec()
    });
    let replies = node.wire().pipeline(&commands.collect::<Vec<_>>());
    ids.end - ids.start - replies.iter().map(|reply| reply.items()[0].int().unsigned_abs()).sum::<u64>()
}

/// A command with a word for each of its ids, and what follows it.
fn line(head: &str, ids: impl Iterator<Item = u64>, rest: &str) -> Vec<Vec<u8>> {
    [words(head), ids.flat_map(|id| words(&format!("{id}{rest}"))).collect()].concat()
}

/// A command that names all fields of an id.
fn all_fields(head: &str, rest: &str) -> Vec<Vec<u8>> {
    [words(head), (0..FIELDS).flat_map(|field| words(&format!("{}{rest}", name(field)))).collect()].concat()
}

/// The time of the longest of the commands that scan a set. Of a command that may be the longest, the shortest run counts.
fn scan_us(wire: &mut Wire, key: &str) -> i64 {
    let (mut cursor, mut longest_us) = ("0".to_owned(), 0);
    loop {
        let command = words(&format!("CT.SCAN {key} {cursor} COUNT 1024"));
        let (mut shortest_us, reply) = logged(wire, &command);
        assert_eq!(reply.code(), None, "{reply:.200}");
        for _ in 1..RUNS {
            if shortest_us > longest_us {
                shortest_us = shortest_us.min(logged(wire, &command).0);
            }
        }
        longest_us = longest_us.max(shortest_us);
        cursor = reply.items()[0].text();
        if cursor == "0" {
            return longest_us;
        }
    }
}

#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w1_no_command_on_ids_of_256_fields_takes_the_engine_a_millisecond() {
    for order in ["RISING", "RANDOM"] {
        let node = Setup::new(Engine::Redis).without_log().start();
        let mut wire = node.wire();
        wire.done(&format!("CT.CREATE wide ORDER {order} TABLE_SLOTS 16384 SCHEMA{}", schema()));
        // The first ids of a large table wait for it in a dictionary.
        wire.done(&format!("CT.CREATE waiting ORDER {order} SCHEMA{}", schema()));
        // Each record is in the aux dictionary.
        wire.done(&format!("CT.CREATE aux ORDER {order} TABLE_SLOTS 16384 SCHEMA{}", schema()));
        let refused = [("wide", 255), ("waiting", 254), ("aux", 254), ("aux", 254)];
        let refused = refused.map(|(key, field)| count(&node, key, 0..12_000, field));
        assert_eq!(refused, [0; 4]);
        wire.done("CONFIG SET slowlog-log-slower-than 0");
        let mut longest = Vec::new();
        longest.push((scan_us(&mut wire, "waiting"), "SCAN waiting"));
        longest.push((scan_us(&mut wire, "aux"), "SCAN aux"));
        // One field stays, which no id has.
        for key in ["waiting", "aux"] {
            (0..FIELDS - 1).for_each(|field| drop(wire.done(&format!("CT.ALTER {key} RETIRE {}", name(field)))));
        }
        longest.push((scan_us(&mut wire, "waiting"), "SCAN retired, waiting"));
        longest.push((scan_us(&mut wire, "aux"), "SCAN retired, aux"));
        let ids = |count: u64| (0..count).map(|n| (n * 7_919) % 12_000);
        let last = name(FIELDS - 1);
        let packed_newer = |time: u64| {
            let item = |id: u64| [id, 1, time].map(u64::to_le_bytes).concat();
            let head = words(&format!("CT.PSETNEWER wide {} {}", name(0), name(FIELDS - 1)));
            [head, vec![ids(WRITTEN).flat_map(item).collect()]].concat()
        };
        let commands: [(&str, &Command<'_>); 11] = [
            ("MINCRBY", &|_, _| line("CT.MINCRBY wide", ids(WRITTEN), &format!(" {last} 0"))),
            ("MINCRBY retired", &|_, _| line("CT.MINCRBY waiting", ids(512), &format!(" {last} 0"))),
            ("MINCRBY too large", &|_, _| line("CT.MINCRBY wide", ids(1_024), &format!(" {last} 1"))),
            ("INCRBY", &|_, _| all_fields("CT.INCRBY wide 7", " 0")),
            ("SET", &|_, _| all_fields("CT.SET wide 8", " 1")),
            ("SET aux", &|_, run| all_fields("CT.SET wide 9", &format!(" {}", run + 2))),
            ("GET", &|_, _| all_fields("CT.GET wide 8", "")),
            ("MGET", &|_, _| line("CT.MGET wide", ids(16), "")),
            ("PSETNEWER", &|_, run| packed_newer(1_000 + run as u64)),
            ("DEL", &|_, _| line("CT.DEL wide", ids(WRITTEN), "")),
            ("DEL of nothing", &|_, _| line("CT.DEL wide", ids(WRITTEN), "")),
        ];
        for (shown, command) in commands {
            let shortest = (0..RUNS).map(|run| {
                let (took, reply) = logged(&mut wire, &command(&[], run));
                assert_eq!(reply.code().is_some(), shown.ends_with("too large"), "{shown}: {reply:.200}");
                took
            });
            longest.push((shortest.min().expect("a run"), shown));
        }
        // Slots keep records of zeros.
        (0..12_000).step_by(WRITTEN as usize).for_each(|first| {
            let ids = first..(first + WRITTEN).min(12_000);
            took_us(&mut wire, &line("CT.DEL wide", ids, ""));
        });
        longest.push((scan_us(&mut wire, "wide"), "SCAN of nothing"));
        println!("{order}, in µs: {longest:?}");
        assert!(longest.iter().all(|(took, _)| *took < MOST_US), "{longest:?}");
    }
}

/// The table waits for a disk that is full, so what is written to it is in an overlay.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w3_no_scan_of_a_table_that_waits_for_its_disk_takes_the_engine_a_millisecond() {
    const IDS: u64 = 14_000;
    let disk = SmallDisk::mount(1 << 20);
    disk.leave(0);
    let node = Setup::new(Engine::Redis).without_log().cold(disk.path()).start();
    let mut wire = node.wire();
    wire.done(&format!("CT.CREATE k TABLE_SLOTS 16384 MEMORY_MAX 1 SCHEMA{}", schema()));
    assert_eq!(count(&node, "k", 0..20_000, 255), 0);
    eventually("the disk is full", || node.log().contains("a cold table cannot be written"));
    assert_eq!(count(&node, "k", 0..IDS, 254), 0);
    assert!(wire.done("CT.INFO k").field("overlay_ids").int() > 10_000);
    wire.done("CONFIG SET slowlog-log-slower-than 0");
    let took = scan_us(&mut wire, "k");
    println!("SCAN: {took} µs");
    assert!(took < MOST_US, "{took} µs");
}

/// Each id has a value in its first field, and few have one in the last: a page has many records, and a column for each field.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w3_no_command_on_cold_ids_of_256_fields_takes_the_engine_a_millisecond() {
    const IDS: u64 = 60_000;
    let turns = Turns::new();
    let node = Setup::new(Engine::Redis).without_log().wrapped(|program| turns.program(program)).start();
    let mut wire = node.wire();
    wire.done(&format!("CT.CREATE k TABLE_SLOTS 16384 CACHE_BYTES 0 SCHEMA{}", schema()));
    assert_eq!(count(&node, "k", 0..IDS, 0), 0);
    let some = (0..IDS).step_by(64).map(|id| words(&format!("CT.INCRBY k {id} {} 1", name(FIELDS - 1))));
    wire.pipeline(&some.collect::<Vec<_>>());
    wire.done("CT.ALTER k OPTION MEMORY_MAX 1");
    until_cold(&node, "k");
    wire.done("CT.ALTER k OPTION MEMORY_MAX 0");
    println!("{} pages", wire.run("CT.TABLES k").items()[0].field("pages").int());
    let mut next = 0;
    let mut measure = |name: &str, ids: u64, command: &Command<'_>| {
        let runs = (0..RUNS).map(|run| {
            // Ids that no earlier command has written: what is written is in memory from then on.
            next += 1;
            let ids: Vec<u64> = (0..ids).map(|n| n * 700 + next).collect();
            held_us(&turns, &mut wire, &command(&ids, run))
        });
        (runs.min().expect("a run"), name.to_owned())
    };
    let [first, last] = [name(0), name(FIELDS - 1)];
    let longest = [
        measure("MGET", 16, &|ids, _| line("CT.MGET k", ids.iter().copied(), "")),
        measure("GET", 1, &|ids, _| all_fields(&format!("CT.GET k {}", ids[0]), "")),
        measure("INCRBY", 1, &|ids, _| all_fields(&format!("CT.INCRBY k {}", ids[0]), " 1")),
        measure("SET", 1, &|ids, _| all_fields(&format!("CT.SET k {}", ids[0]), " 1")),
        measure("MINCRBY", WRITTEN, &|ids, _| line("CT.MINCRBY k", ids.iter().copied(), &format!(" {last} 1"))),
        measure("DEL", WRITTEN, &|ids, _| line("CT.DEL k", ids.iter().copied(), "")),
        measure("PSETNEWER", WRITTEN, &|ids, _| {
            let item = |id: &u64| [*id, 1, 1 << 24].map(u64::to_le_bytes).concat();
            let head = words(&format!("CT.PSETNEWER k {first} {last}"));
            [head, vec![ids.iter().flat_map(item).collect()]].concat()
        }),
        measure("SCAN", 1, &|_, _| words("CT.SCAN k 0 COUNT 1024")),
        measure("CHECK", 1, &|_, _| words("CT.CHECK k")),
    ];
    println!("in µs: {longest:?}");
    assert!(longest.iter().all(|(took, _)| *took < MOST_US), "{longest:?}");
}
