//! The largest command of each kind takes the engine less than 1 ms (W1). Each runs several times, and the shortest time counts, because
//! other processes interrupt the engine. Of new ids, the same command of several equal sets is measured. Bounds on new memory, and on the
//! records that a split moves, are tests of the tables.

use super::cold::until_cold;
use super::fuzz::pieces;
use tallystone_link::wall_ms;
use tallystone_tests::compact::{Engine, Node, Reply, Setup, Turns, Wire, eventually};

pub(super) const RUNS: usize = 15;
/// Sets that get the same new ids.
const SETS: usize = 5;
/// Sets at most, on a machine so busy that a command was interrupted in each of [`SETS`]. One that takes too long takes so long in all of them.
const BUSY_SETS: usize = 15;
/// New ids of a command: as many as it may write.
const NEW_IDS: u64 = 512;
/// Commands of new ids: until the first table of a set is full, and the next one has begun or the split has ended.
const NEW_COMMANDS: u64 = 3_520;
pub(super) const MOST_US: i64 = 1_000;
/// Of reads of cold ids: on a busy machine they take up to twice as long, which is still less than [`MOST_US`].
const COLD_READ_MOST_US: i64 = 500;

pub(super) fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// The time of a command, in microseconds, as the engine's log of slow commands has it.
pub(super) fn took_us(wire: &mut Wire, command: &[Vec<u8>]) -> i64 {
    let (took, reply) = logged(wire, command);
    assert_eq!(reply.code(), None, "{reply:.200}");
    took
}

/// The same of a command that may be refused, with its reply.
pub(super) fn logged(wire: &mut Wire, command: &[Vec<u8>]) -> (i64, Reply) {
    wire.done("SLOWLOG RESET");
    let reply = wire.call(command);
    let log = wire.done("SLOWLOG GET 10");
    let is_it = |name: &str| name.as_bytes().eq_ignore_ascii_case(&command[0]);
    let entry = log.items().iter().find(|entry| is_it(&entry.items()[3].items()[0].text()));
    (entry.expect("the command").items()[2].int(), reply)
}

/// The longest processor time for which a command holds the engine's thread, in microseconds. A command that waits for pages holds it
/// several times, between which the engine serves others. The log of slow commands would add the wait itself.
pub(super) fn held_us(turns: &Turns, wire: &mut Wire, command: &[Vec<u8>]) -> i64 {
    wire.done("PING");
    turns.reset();
    let reply = wire.call(command);
    assert_eq!(reply.code(), None, "{reply:.200}");
    // The engine answers this after the iteration that sent the first reply, so that iteration is measured as a whole.
    wire.done("PING");
    let longest_us = turns.longest_us();
    assert!(longest_us > 0, "the engine runs without the library that measures it");
    longest_us
}

/// The shortest time of a command.
fn shortest_us(node: &Node, command: &[Vec<u8>]) -> i64 {
    let mut wire = node.wire();
    wire.done("CONFIG SET slowlog-log-slower-than 0");
    let shortest = (0..RUNS).map(|_| took_us(&mut wire, command)).min().expect("a run");
    node.wire().done("CONFIG SET slowlog-log-slower-than -1");
    shortest
}

fn packed(ids: impl Iterator<Item = u64>) -> Vec<u8> {
    ids.flat_map(|id| [&id.to_le_bytes()[..], &[0], &1_i32.to_le_bytes()].concat()).collect()
}

/// Counts this number of ids, and returns how many were refused.
fn count(node: &Node, key: &str, ids: std::ops::Range<u64>) -> u64 {
    let commands = ids.clone().step_by(500).map(|first| {
        let packed = packed(first..(first + 500).min(ids.end));
        [b"CT.PINCRBY".to_vec(), key.as_bytes().to_vec(), packed].to_vec()
    });
    let replies = node.wire().pipeline(&commands.collect::<Vec<_>>());
    ids.end - ids.start - replies.iter().map(|reply| reply.items()[0].int().unsigned_abs()).sum::<u64>()
}

#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w1_no_command_takes_the_engine_a_millisecond() {
    for engine in Engine::ALL {
        for order in ["RISING", "RANDOM"] {
            let node = Setup::new(engine).without_log().start();
            let mut wire = node.wire();
            // Four fields and 512 ids; 32 fields, and a reply of 4,096 values or 16,384 values to write.
            wire.done(&format!("CT.CREATE four ORDER {order} TABLE_SLOTS 131072 SCHEMA a 24 b 24 c 16 d 24"));
            let fields: String = (0..32).map(|field| format!(" f{field} 8")).collect();
            wire.done(&format!("CT.CREATE wide ORDER {order} TABLE_SLOTS 16384 SCHEMA{fields}"));
            assert_eq!(count(&node, "four", 0..200_000) + count(&node, "wide", 0..30_000), 0);
            // A table without a free slot: a search ends at the last group that it may examine.
            let options = "TABLE_SLOTS 131072 TABLES_MAX 1 PROBE_MAX 64";
            wire.done(&format!("CT.CREATE full ORDER {order} {options} SCHEMA a 24 b 24 c 16 d 24"));
            assert!(count(&node, "full", 0..150_000) > 0);
            // As many tables as a set may have.
            wire.done(&format!("CT.CREATE tables ORDER {order} TABLE_SLOTS 16 SCHEMA a 8"));
            let is_full = |first: &u64| count(&node, "tables", *first..first + 5_000) > 0;
            assert!((0..200_000).step_by(5_000).any(|first| is_full(&first)));
            let ids = |count: u64, limit: u64| (0..count).map(move |n| (n * 7_919) % limit);
            let line = |head: &str, ids: &mut dyn Iterator<Item = u64>, rest: &str| {
                let mut command = words(head);
                ids.for_each(|id| command.extend(words(&format!("{id}{rest}"))));
                command
            };
            let mut longest = Vec::new();
            for command in [
                line("CT.MINCRBY four", &mut ids(512, 200_000), " b 1"),
                // Each record moves to the aux dictionary.
                line("CT.MINCRBY four", &mut ids(512, 200_000), " c 1000000"),
                line("CT.MINCRBY wide", &mut ids(512, 30_000), " f7 1"),
                line("CT.MGET four", &mut ids(512, 200_000), ""),
                line("CT.MGET wide", &mut ids(128, 30_000), ""),
                line("CT.DEL wide", &mut ids(512, 30_000), ""),
                [words("CT.PINCRBY four"), vec![packed(ids(512, 200_000))]].concat(),
                [words("CT.PGET four"), vec![ids(512, 200_000).flat_map(u64::to_le_bytes).collect()]].concat(),
                [words("CT.PGET full"), vec![(200_000..200_512_u64).flat_map(u64::to_le_bytes).collect()]].concat(),
                // Refused one by one.
                [words("CT.PINCRBY full"), vec![packed(200_000..200_512)]].concat(),
                words("CT.SCAN four 0 COUNT 1000"),
                words("CT.CHECK four"),
                words("CT.INFO tables"),
                words("CT.TABLES tables"),
                words("MEMORY USAGE tables"),
                words("INFO tallystone_compact"),
            ] {
                let shown = String::from_utf8_lossy(&command[..2].join(&b' ')).into_owned();
                longest.push((shortest_us(&node, &command), shown));
            }
            // What is not newer is not set, so each command has a later time; it is wider than its field.
            wire.done("CONFIG SET slowlog-log-slower-than 0");
            let newer = |time: u64| {
                let item = |id: u64| [id, 1, time].map(u64::to_le_bytes).concat();
                [words("CT.PSETNEWER wide f0 f1"), vec![ids(512, 30_000).flat_map(item).collect()]].concat()
            };
            let took = (1_000..).take(RUNS).map(|time| took_us(&mut wire, &newer(time))).min().expect("a run");
            longest.push((took, "CT.PSETNEWER wide".to_owned()));
            // All count or none: the last one is refused, and all others are taken back, ids that were there and new ones.
            let now_ms = wall_ms();
            for (name, first) in [("taken back", 100_000), ("new ids taken back", 200_000)] {
                let took = (0..RUNS as u64).map(|run| {
                    let ids = first + run * 512..first + run * 512 + 511;
                    let refused = [&0_u64.to_le_bytes()[..], &[2], &i32::MIN.to_le_bytes()].concat();
                    let token = format!("TOKEN {first}-{run} TIME {now_ms}");
                    let command =
                        [words("CT.PINCRBY four"), vec![[packed(ids), refused].concat()], words(&token)].concat();
                    let (took, reply) = logged(&mut wire, &command);
                    assert_eq!((reply.items()[0].int(), reply.items().len()), (0, 513), "{reply:.200}");
                    took
                });
                longest.push((took.min().expect("a run"), format!("CT.PINCRBY four, {name}")));
            }
            println!("{engine:?} {order}, in µs: {longest:?}");
            assert!(longest.iter().all(|(took, _)| *took < MOST_US), "{longest:?}");
        }
    }
}

/// Ids of a cache that one command reads: as many as may wait for their place in it.
const CACHED_IDS: u64 = 512;

/// A set of four values for each id, of which all tables but the last are in files. A page has about 340 ids. The cache is half full, and
/// the overlays have the ids that were `written` since.
pub(super) fn fill_cold(node: &Node, ids: u64, cache_bytes: i64, written: &[u64]) {
    let mut wire = node.wire();
    wire.done(&format!("CT.CREATE cold TABLE_SLOTS 131072 CACHE_BYTES {cache_bytes} SCHEMA a 24 b 24 c 24 d 24"));
    for first in (0..ids).step_by(125) {
        let value = |id: u64, field: u8| ((id * 4 + u64::from(field)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as i32;
        let item = |id: u64, field: u8| [&id.to_le_bytes()[..], &[field], &value(id, field).to_le_bytes()].concat();
        let packed: Vec<u8> =
            (first..first + 125).flat_map(|id| (0..4).flat_map(move |field| item(id, field))).collect();
        assert_eq!(wire.call(&[words("CT.PINCRBY cold"), vec![packed]].concat()).items()[0].int(), 500);
    }
    wire.done("CT.ALTER cold OPTION MEMORY_MAX 1");
    until_cold(node, "cold");
    let tables = wire.run("CT.TABLES cold");
    let pages: i64 = tables.items().iter().rev().skip(1).map(|table| table.field("pages").int()).sum();
    assert!(pages > 1_024, "{pages} pages");
    // So that a merge is due by the number of these ids alone.
    wire.done("CT.ALTER cold OPTION MEMORY_MAX 0");
    for some in written.chunks(500) {
        let command = [words("CT.PINCRBY cold"), vec![packed(some.iter().copied())]].concat();
        assert_eq!(wire.call(&command).items()[0].int(), some.len() as i64);
    }
    until_cold(node, "cold");
    let overlay_ids = wire.run("CT.INFO cold").field("overlay_ids").int();
    assert!(overlay_ids >= written.len() as i64 * 9 / 10, "{overlay_ids} of {}", written.len());
    if cache_bytes == 0 {
        return;
    }
    let memory = || node.wire().run("CT.INFO cold").field("memory_bytes").int();
    let (enough, mut next) = (memory() + cache_bytes / 2, 0);
    eventually("the cache is half full", || {
        let some = (next..next + CACHED_IDS).map(|number| number * 23 % ids);
        next += CACHED_IDS;
        let read = wire.call(&[words("CT.PGET cold"), vec![some.flat_map(u64::to_le_bytes).collect()]].concat());
        assert_eq!(read.code(), None, "{read:.200}");
        memory() >= enough
    });
}

/// The words of a command on these ids, in this run.
pub(super) type Command<'a> = dyn Fn(&[u64], usize) -> Vec<Vec<u8>> + 'a;

#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w3_no_command_on_cold_ids_takes_the_engine_a_millisecond() {
    for engine in Engine::ALL {
        judge_cold_ids(engine, 500_000, (0, 0), 370);
    }
}

/// As many tables, and a cache and overlays as large, as a set that is in use may have.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w3_no_command_on_cold_ids_of_a_large_set_takes_the_engine_a_millisecond() {
    judge_cold_ids(Engine::Redis, 4_000_000, (16 << 20, 100_000), 3_700);
}

/// Commands on as many ids as they may have, each on another page. Measures the longest time for which one holds the engine: until the
/// client is blocked, and after the pages were searched. A script reads as many pages as it may, in place. Also measures the commands that
/// create, alter, repair, scan and check sets. `stride`: from one id of a command to the next.
fn judge_cold_ids(engine: Engine, ids: u64, (cache_bytes, written): (i64, u64), stride: u64) {
    let turns = Turns::new();
    let node = Setup::new(engine).without_log().wrapped(|program| turns.program(program)).start();
    // None that a command has: those begin at multiples of the stride.
    let others = (0..ids).filter(|id| id % stride > stride / 2);
    let others: Vec<u64> = others.step_by((ids / 2 / written.max(1)) as usize).take(written as usize).collect();
    fill_cold(&node, ids, cache_bytes, &others);
    let mut wire = node.wire();
    wire.done("CT.CREATE tables TABLE_SLOTS 16 SCHEMA a 8");
    let is_full = |first: &u64| count(&node, "tables", *first..first + 5_000) > 0;
    assert!((0..200_000).step_by(5_000).any(|first| is_full(&first)));
    let fields: String = (0..200).map(|field| format!(" f{field} 1")).collect();
    // Ids that no earlier command has written: what is written is in memory from then on.
    let mut next = 0;
    let mut measure = |name: &str, ids: u64, command: &Command<'_>| {
        let runs = (0..RUNS).map(|run| {
            next += 1;
            let ids: Vec<u64> = (0..ids).map(|n| n * stride + next % stride).collect();
            held_us(&turns, &mut wire, &command(&ids, run))
        });
        (runs.min().expect("a run"), name.to_owned())
    };
    let line = |head: &str, ids: &[u64], rest: &str| {
        [words(head), ids.iter().flat_map(|id| words(&format!("{id}{rest}"))).collect()].concat()
    };
    let longest = [
        measure("PGET", 512, &|ids, _| {
            [words("CT.PGET cold"), vec![ids.iter().flat_map(|id| id.to_le_bytes()).collect()]].concat()
        }),
        measure("MGET", 512, &|ids, _| line("CT.MGET cold", ids, "")),
        measure("EVAL", 16, &|ids, _| {
            let script = "return redis.call('CT.MGET', KEYS[1], unpack(ARGV))";
            let head = ["EVAL", script, "1", "cold"].map(|word| word.as_bytes().to_vec());
            head.into_iter().chain(ids.iter().map(|id| id.to_string().into_bytes())).collect()
        }),
        measure("PINCRBY", 512, &|ids, _| [words("CT.PINCRBY cold"), vec![packed(ids.iter().copied())]].concat()),
        measure("MINCRBY", 512, &|ids, _| line("CT.MINCRBY cold", ids, " b 1")),
        measure("DEL", 512, &|ids, _| line("CT.DEL cold", ids, "")),
        measure("PSETNEWER", 512, &|ids, _| {
            let item = |id: &u64| [*id, 1, 1 << 24].map(u64::to_le_bytes).concat();
            [words("CT.PSETNEWER cold a b"), vec![ids.iter().flat_map(item).collect()]].concat()
        }),
        measure("REPAIR", 1, &|_, _| {
            let item = |id: u64| [id, 1, 2, 3, 4].map(u64::to_le_bytes).concat();
            [words("CT.REPAIR cold 0 511"), vec![(0..512).flat_map(item).collect()]].concat()
        }),
        measure("SCAN", 1, &|_, _| words("CT.SCAN cold 0 COUNT 1024")),
        measure("CHECK", 1, &|_, _| words("CT.CHECK cold")),
        measure("CREATE", 1, &|_, run| words(&format!("CT.CREATE new{run} TABLE_SLOTS 67108864 SCHEMA{fields}"))),
        measure("ALTER", 1, &|_, run| words(&format!("CT.ALTER tables ADD b{run} 8"))),
    ];
    println!("{engine:?}, {ids} ids, in µs: {longest:?}");
    let most = |name: &str| if ["PGET", "MGET"].contains(&name) { COLD_READ_MOST_US } else { MOST_US };
    assert!(longest.iter().all(|(took, name)| *took < most(name)), "{longest:?}");
}

/// A dump has pieces of bounded work, also where each record is an entry of a dictionary, or is in a file.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w4_no_piece_of_a_dump_takes_the_engine_a_millisecond() {
    const COLD: &str = "TABLE_SLOTS 16384 MEMORY_MAX 1";
    for options in ["ORDER RISING", "ORDER RANDOM", COLD] {
        for (width, delta) in [(24, 1), (8, 1_000)] {
            let node = Setup::new(Engine::Redis).without_fsync().args("--aof-use-rdb-preamble no").start();
            let mut wire = node.wire();
            wire.done(&format!("CT.CREATE k {options} SCHEMA a {width} b {width} c {width} d {width}"));
            for first in (0..100_000_u64).step_by(500) {
                let item = |id: u64| [&id.to_le_bytes()[..], &[0], &i32::to_le_bytes(delta)].concat();
                let packed = (first..first + 500).flat_map(item).collect();
                assert_eq!(wire.call(&[words("CT.PINCRBY k"), vec![packed]].concat()).items()[0].int(), 500);
            }
            if options == COLD {
                until_cold(&node, "k");
                assert!(wire.run("CT.INFO k").field("cold_tables").int() > 3);
            }
            let pieces = pieces(&node);
            wire.done("CONFIG SET slowlog-log-slower-than 0");
            let mut shortest = vec![i64::MAX; pieces.len()];
            for set in 0..SETS {
                for (piece, shortest) in pieces.iter().zip(&mut shortest) {
                    let command = [words(&format!("CT.RESTORE new{set}")), vec![piece.clone()]].concat();
                    *shortest = took_us(&mut wire, &command).min(*shortest);
                }
                assert_eq!(node.digest(&format!("new{set}")), node.digest("k"));
            }
            let longest = shortest.iter().max().expect("a piece");
            println!("{options}, {width} bits: {} pieces, the longest takes {longest} µs", pieces.len());
            assert!(*longest < MOST_US, "{longest}");
        }
    }
}

/// A client may send forged pieces as long as a command accepts, with many small records or too many fields.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w4_no_piece_that_is_refused_takes_the_engine_a_millisecond() {
    const BYTES: usize = 262_000;
    let node = Setup::new(Engine::Redis).without_fsync().args("--aof-use-rdb-preamble no").start();
    let mut wire = node.wire();
    // A small table: the records of a larger one that has no memory yet are in a thousand pages that were never used.
    wire.done("CT.CREATE k TABLE_SLOTS 65536 SCHEMA a 24");
    wire.done("CT.INCRBY k 1 a 1");
    let pieces = pieces(&node);
    wire.done("CONFIG SET slowlog-log-slower-than 0");
    // The kind, what comes before its items, and an item: ids and values, ids and three bytes, names and widths.
    let hostile: [(&str, &[u8], &[u8]); 3] = [
        ("records", &[6], &[2, 1, 2]),
        ("slots", &[5, 3, 1, 0, 48], &[2, 1, 0, 0]),
        ("fields", &[1, 2, 7, 0, 0, 0xff, 0xff, 3], &[1, b'a', 4]),
    ];
    for (name, begin, item) in hostile {
        let mut piece = [begin, &item.repeat((BYTES - begin.len()) / item.len())].concat();
        piece.extend(crc32c::crc32c(&piece).to_le_bytes());
        let took = (0..RUNS).map(|run| {
            let key = format!("{name}{run}");
            let restore = |piece: &[u8]| [words(&format!("CT.RESTORE {key}")), vec![piece.to_vec()]].concat();
            // The header, and the begin of a table.
            let count = if name == "fields" { 0 } else { 2 };
            pieces[..count].iter().for_each(|piece| assert_eq!(wire.call(&restore(piece)).code(), None));
            let (took, reply) = logged(&mut wire, &restore(&piece));
            assert_eq!(reply.code(), Some("ERR"), "{reply}");
            took
        });
        let took = took.min().expect("a run");
        println!("{name}: {took} µs");
        assert!(took < MOST_US, "{name}: {took} µs");
    }
}

/// While the first table of a set begins, while the next one begins, and while a table splits.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w1_no_command_of_new_ids_takes_the_engine_a_millisecond() {
    for order in ["RISING", "RANDOM"] {
        judge_new_ids(order, order, |number| number);
    }
}

/// The next table begins, and wild ids move to it: as many as have slots at most, and any number of strays.
#[test]
#[ignore = "a figure: other processes on the machine make it longer; ./test --long runs it alone"]
fn w1_no_command_of_new_ids_that_moves_wild_ones_takes_the_engine_a_millisecond() {
    let first_are_wild = |number: u64| if number < 1_023 { (1 << 38) + 7 * number } else { number };
    judge_new_ids("outliers", "RISING", first_are_wild);
    let a_third_is_wild = |number: u64| if number.is_multiple_of(3) { (1 << 62) + number } else { number };
    judge_new_ids("strays", "RISING", a_third_is_wild);
}

/// Each of the commands that fill a set until its second table has begun, with the ids of these numbers, takes less than 1 ms.
fn judge_new_ids(name: &str, order: &str, id: impl Fn(u64) -> u64) {
    let node = Setup::new(Engine::Redis).without_log().start();
    let mut wire = node.wire();
    wire.done("CONFIG SET slowlog-log-slower-than 0");
    let mut shortest = vec![i64::MAX; NEW_COMMANDS as usize];
    for set in 0..BUSY_SETS {
        if set >= SETS && shortest.iter().all(|took| *took < MOST_US) {
            break;
        }
        wire.done(&format!("CT.CREATE new ORDER {order} SCHEMA a 24 b 24 c 16 d 24"));
        for (first, shortest) in (0..).step_by(NEW_IDS as usize).zip(&mut shortest) {
            let command = [words("CT.PINCRBY new"), vec![packed((first..first + NEW_IDS).map(&id))]].concat();
            *shortest = took_us(&mut wire, &command).min(*shortest);
        }
        assert_eq!(wire.done("CT.INFO new").field("hot_tables").int(), 2);
        wire.done("UNLINK new");
    }
    let mut longest: Vec<(i64, usize)> = shortest.into_iter().zip(0..).collect();
    longest.sort_unstable();
    println!("{name}, in µs, with the numbers of the commands: {:?}", &longest[longest.len() - 10..]);
    assert!(longest.iter().all(|(took, _)| *took < MOST_US), "{longest:?}");
}
