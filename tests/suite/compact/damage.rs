//! Flipped bits (W3, W4): a page of a cold table, a snapshot, a log. What is damaged is refused by name, or recovered; a number is
//! never wrong.

use super::cold::{cold_node, until_cold};
use super::engine::figure;
use super::random;
use super::snapshots::{KINDS, Once, fill_all};
use rand::Rng;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tallystone_tests::compact::{Engine, FailingDisk, Node, Reply, Setup, eventually};

const PAGE: u64 = 4_096;

fn flip(path: &Path, at: u64, bit: u8) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("a byte");
    file.write_all_at(&[byte[0] ^ 1 << bit], at).expect("a byte");
}

/// The file name, page and ids of a refusal.
fn damage(reply: &Reply) -> (String, u64, u64, u64) {
    let text = reply.to_string();
    let words: Vec<&str> = text.trim_start_matches('!').trim_end_matches(')').split(' ').collect();
    let ["DAMAGED", "page", page, "of", file, "is", "damaged", "or", "missing", "(ids", first, "to", last] = words[..]
    else {
        panic!("a refusal of a damaged page, not {text}");
    };
    let number = |text: &str| text.parse().expect("a number");
    (file.to_owned(), number(page), number(first), number(last))
}

#[test]
fn w3_a_damaged_page_is_named_refused_and_repaired() {
    for engine in Engine::ALL {
        let mut random = random("a damaged page");
        let node = cold_node(Setup::new(engine).without_fsync());
        let replica = Setup::new(engine).without_fsync().start();
        replica.follow(&node);
        let mut wire = node.wire();
        let tables = wire.run("CT.TABLES k");
        let table = &tables.items()[2];
        let (name, first) = (table.field("file").text(), table.field("first_id").int());
        let path = node.cold_files().into_iter().find(|path| path.ends_with(&name)).expect("the file of the table");
        // What was read before the damage may be in the cache.
        wire.done("CT.ALTER k OPTION CACHE_BYTES 0");
        flip(&path, random.random_range(0..PAGE), random.random_range(0..8));
        let refused = wire.run(&format!("CT.GET k {first}"));
        let (file, page, begin, end) = damage(&refused);
        assert_eq!((&file, page), (&name, 0), "{refused}");
        assert!((begin..=end).contains(&first.cast_unsigned()), "{refused}");
        // Writes to it are refused too; its neighbours and the others of a command are served.
        assert_eq!(wire.run(&format!("CT.INCRBY k {first} likes 1")).code(), Some("DAMAGED"));
        assert_eq!(wire.run(&format!("CT.MGET k {first} 5")).code(), Some("DAMAGED"));
        for neighbour in [begin.checked_sub(1), end.checked_add(1)].into_iter().flatten() {
            let reply = wire.run(&format!("CT.GET k {neighbour} likes"));
            assert_eq!(reply.to_string(), format!("[{}]", neighbour + 1));
        }
        let reply = wire.run(&format!("CT.MINCRBY k {first} likes 1 {} likes 1", end + 1));
        assert_eq!(reply.items()[0].code(), Some("DAMAGED"), "{reply}");
        assert_eq!(reply.items()[1].int(), (end + 3).cast_signed());
        assert!(node.faults("k").iter().any(|fault| fault.starts_with("DAMAGED") && fault.contains(&name)));
        assert_eq!(wire.run("CT.INFO k").field("damaged_ranges").int(), 1);
        let damaged_ranges = || figure(&node, "damaged_ranges");
        assert_eq!(damaged_ranges(), 1);
        // A write of all fields needs nothing of what was there.
        assert_eq!(wire.run(&format!("CT.SET k {first} likes 77 balance 0 views 0")).to_string(), "OK");
        assert_eq!(wire.run(&format!("CT.GET k {first} likes")).to_string(), "[77]");
        // The replica has the values of the others.
        replica.has_caught_up_with(&node);
        let ids: Vec<u64> = (begin..=end).filter(|id| *id != first.cast_unsigned()).take(1_000).collect();
        let packed: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        let values = replica.wire().call(&[b"CT.PGET".as_slice(), b"k", &packed]);
        let records = ids.iter().zip(values.bytes().chunks(24));
        let records: Vec<u8> = records.flat_map(|(id, values)| [&id.to_le_bytes()[..], values].concat()).collect();
        let [begin, end] = [begin, end].map(|id| id.to_string());
        let repaired = wire.call(&[b"CT.REPAIR".as_slice(), b"k", begin.as_bytes(), end.as_bytes(), &records]);
        assert_eq!(repaired.int(), ids.len() as i64);
        replica.has_caught_up_with(&node);
        assert_eq!(node.scan("k"), replica.scan("k"));
        assert_eq!(node.digest("k"), replica.digest("k"));
        until_cold(&node, "k");
        assert_eq!((node.faults("k"), damaged_ranges()), (Vec::<String>::new(), 0));
    }
}

#[test]
fn w3_a_page_that_the_file_has_no_more_is_refused_and_the_others_are_served() {
    for engine in Engine::ALL {
        let mut node = cold_node(Setup::new(engine).without_fsync());
        let mut wire = node.wire();
        wire.done("CT.ALTER k OPTION CACHE_BYTES 0");
        let tables = wire.run("CT.TABLES k");
        let table = &tables.items()[2];
        let (name, pages) = (table.field("file").text(), table.field("pages").int());
        let last = tables.items()[3].field("first_id").int() - 1;
        let path = node.cold_files().into_iter().find(|path| path.ends_with(&name)).expect("the file of the table");
        let file = std::fs::OpenOptions::new().write(true).open(&path).expect("a file");
        let whole = file.metadata().expect("a file").len();
        file.set_len(whole - PAGE / 2).expect("a shorter file");
        let refused = wire.run(&format!("CT.GET k {last}"));
        assert_eq!(damage(&refused).1.cast_signed(), pages - 1, "{refused}");
        let next = last + 1;
        assert_eq!(wire.run(&format!("CT.GET k {next} likes")).to_string(), format!("[{}]", next + 1));
        assert_eq!(node.faults("k").len(), 1);
        // A snapshot is written without it, and the log of the engine says so.
        wire.done("SAVE");
        let log = node.log();
        assert!(log.contains(&format!("page {} of {name} is missing in a copy of a counter set", pages - 1)), "{log}");
        // So is a rewritten log. A restart and a replica refuse the same ids.
        node.rewrite_log();
        node.kill();
        node.start_again();
        let replica = Setup::new(engine).without_fsync().start();
        replica.follow(&node);
        for (node, what) in [(&node, "the restarted node"), (&replica, "the replica")] {
            let mut wire = node.wire();
            let again = wire.run(&format!("CT.GET k {last}"));
            assert_eq!(damage(&again), damage(&refused), "{engine:?}, {what}");
            for neighbour in [damage(&refused).2.cast_signed() - 1, next] {
                let reply = wire.run(&format!("CT.GET k {neighbour} likes"));
                assert_eq!(reply.to_string(), format!("[{}]", neighbour + 1), "{engine:?}, {what}");
            }
            assert_eq!(wire.run("CT.INFO k").field("damaged_ranges").int(), 1, "{engine:?}, {what}");
        }
    }
}

/// A repair of all damage at once would hold the engine.
#[test]
fn w3_a_repair_of_too_much_is_refused_and_done_in_parts() {
    const WRITTEN: u64 = 1_000;
    let node = cold_node(Setup::new(Engine::Redis).without_fsync());
    let mut wire = node.wire();
    wire.done("CT.ALTER k OPTION CACHE_BYTES 0");
    node.cold_files().iter().for_each(|path| flip(path, 100, 3));
    assert!(node.faults("k").len() > 10);
    // A set of all fields does not read the page.
    for id in 0..WRITTEN {
        wire.done(&format!("CT.SET k {id} likes 1 balance -1 views 1"));
    }
    let repair = |first: u64, last: u64| {
        let words = ["CT.REPAIR".to_owned(), "k".to_owned(), first.to_string(), last.to_string(), String::new()];
        node.wire().call(&words)
    };
    assert_eq!(repair(0, u64::MAX).code(), Some("TOOLARGE"));
    assert!(node.faults("k").len() > 10, "nothing has changed");
    for (first, last) in [(0, WRITTEN / 2), (WRITTEN / 2 + 1, WRITTEN - 1), (WRITTEN, u64::MAX)] {
        assert_eq!(repair(first, last).to_string(), "0", "{first} to {last}");
    }
    assert_eq!(node.faults("k"), Vec::<String>::new());
    let likes: Vec<i64> = node.scan("k").into_iter().filter(|(id, _)| *id < WRITTEN).map(|(_, row)| row[0]).collect();
    assert_eq!(likes, vec![1; WRITTEN as usize]);
}

/// A read that fails says nothing of the bytes: nothing is lost, and no snapshot leaves records out.
#[test]
fn w3_a_disk_that_fails_to_read_loses_nothing() {
    for engine in Engine::ALL {
        let disk = FailingDisk::new();
        let node = cold_node(Setup::new(engine).without_fsync().wrapped(|engine| disk.program(engine)));
        let mut wire = node.wire();
        wire.done("CT.ALTER k OPTION CACHE_BYTES 0");
        disk.set_fails(true);
        assert_eq!(wire.run("CT.GET k 5").code(), Some("IOERR"));
        assert_eq!(wire.run("CT.INCRBY k 5 likes 1").code(), Some("IOERR"));
        assert!(node.faults("k").iter().any(|fault| fault.starts_with("IOERR ")));
        let saved = |node: &Node, status: &str| {
            node.wire().done("BGSAVE");
            eventually("the child has ended", || node.info("persistence", "rdb_bgsave_in_progress") == "0");
            assert_eq!(node.info("persistence", "rdb_last_bgsave_status"), status, "{}", node.log());
        };
        saved(&node, "err");
        let entries = std::fs::read_dir(node.dir()).expect("a folder").flatten();
        let names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|name| !name.starts_with("temp-")), "{names:?}");
        disk.set_fails(false);
        assert_eq!(wire.run("CT.GET k 5 likes").to_string(), "[6]");
        assert_eq!((node.faults("k"), wire.run("CT.INFO k").field("damaged_ranges").int()), (vec![], 0));
        saved(&node, "ok");
        // A page that stays unreadable is given up by an operator: then it is a damaged one.
        disk.set_fails(true);
        // Who may only read the key cannot do so.
        wire.done("ACL SETUSER reader reset on nopass +@all %R~k");
        let mut reader = node.wire();
        reader.done("AUTH reader any");
        assert!(reader.run("CT.CHECK k").to_string().contains("IOERR page 0 of "));
        assert_eq!(reader.run("CT.GIVEUP k 0").code(), Some("NOPERM"));
        assert_eq!(wire.run("CT.GET k 5").code(), Some("IOERR"), "a check gives up nothing");
        let given_up = wire.run("CT.GIVEUP k 0").to_string();
        assert!(given_up.contains("DAMAGED page 0 of "), "{given_up}");
        assert_eq!(wire.run("CT.GET k 5").code(), Some("DAMAGED"));
        disk.set_fails(false);
        assert_eq!(node.faults("k"), Vec::<String>::new(), "a check that can read it finds it sound");
        assert_eq!(wire.run("CT.GET k 5 likes").to_string(), "[6]");
    }
}

#[test]
fn w3_each_flipped_bit_of_a_page_is_found() {
    // The module finds them; of Valkey a sample is enough.
    for (engine, flips) in [(Engine::Redis, 300), (Engine::Valkey, 60)] {
        let mut random = random("bits of pages");
        let node = cold_node(Setup::new(engine).without_fsync());
        let mut wire = node.wire();
        wire.done("CT.ALTER k OPTION CACHE_BYTES 0");
        let files = node.cold_files();
        for _ in 0..flips {
            let path: &PathBuf = &files[random.random_range(0..files.len())];
            let pages = std::fs::metadata(path).expect("a file").len() / PAGE;
            let (at, bit) = (random.random_range(0..pages * PAGE), random.random_range(0..8));
            flip(path, at, bit);
            let faults = node.faults("k");
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let expected = format!("page {} of {name}", at / PAGE);
            assert!(faults.iter().any(|fault| fault.contains(&expected)), "byte {at}, bit {bit} of {name}: {faults:?}");
            flip(path, at, bit);
            assert_eq!(node.faults("k"), Vec::<String>::new(), "the damage is forgotten");
        }
        let likes: i64 = node.scan("k").values().map(|row| row[0]).sum();
        assert_eq!(likes, (1..=6_000).sum::<i64>());
    }
}

pub(super) type State = Vec<BTreeMap<u64, Vec<i64>>>;

pub(super) fn state(node: &Node) -> State {
    KINDS.iter().map(|(key, _)| node.scan(key)).collect()
}

/// Starts the engine on its damaged file: it must refuse the file, or have all values and know the tokens that have counted.
fn judge(node: &mut Node, before: &State, once: &[Once], what: &str) -> bool {
    node.kill();
    let has_started = node.try_start().is_ok();
    if has_started {
        assert_eq!(state(node), *before, "{what}: other numbers");
        KINDS.iter().zip(once).for_each(|((key, _), once)| once.again(node, key));
    }
    node.kill();
    has_started
}

#[test]
fn w4_a_flipped_bit_of_a_snapshot_is_refused() {
    for engine in Engine::ALL {
        let mut random = random("bits of a snapshot");
        let mut node = Setup::new(engine).without_log().start();
        let once = fill_all(&node);
        let before = state(&node);
        node.wire().done("SAVE");
        let path = node.dir().join("dump.rdb");
        let bytes = std::fs::metadata(&path).expect("a file").len();
        let mut started = 0;
        for _ in 0..20 {
            let (at, bit) = (random.random_range(0..bytes), random.random_range(0..8));
            flip(&path, at, bit);
            let what = format!("{engine:?}, byte {at}, bit {bit} of {bytes}");
            started += u32::from(judge(&mut node, &before, &once, &what));
            flip(&path, at, bit);
        }
        // A bit of what the engine notes for itself may say nothing.
        assert!(started <= 2, "{started} of 20 went unnoticed");
        node.start_again();
        assert_eq!(state(&node), before);
    }
}

/// The engine has no checksum for the tail of its log: a digit that becomes another one is a number that a client may have sent. Snapshots
/// in front of it have one, and so do the pieces of a rewrite. Without a snapshot in front, the number of the database has none.
#[test]
fn w4_a_flipped_bit_of_a_rewritten_log_is_refused() {
    const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
    for engine in Engine::ALL {
        for preamble in ["yes", "no"] {
            let mut random = random("bits of a rewritten log");
            let args = format!("--aof-use-rdb-preamble {preamble} --aof-load-truncated no");
            let mut node = Setup::new(engine).without_fsync().args(&args).start();
            let once = fill_all(&node);
            let before = state(&node);
            let path = node.rewrite_log();
            let log = std::fs::read(&path).expect("a file");
            assert_eq!(log.starts_with(SELECT), preamble == "no", "{engine:?}, preamble {preamble}");
            let begin = if preamble == "no" { SELECT.len() as u64 } else { 0 };
            let bytes = log.len() as u64;
            let mut started = 0;
            for _ in 0..10 {
                let (at, bit) = (random.random_range(begin..bytes), random.random_range(0..8));
                flip(&path, at, bit);
                let what = format!("{engine:?}, preamble {preamble}, byte {at}, bit {bit} of {bytes}");
                started += u32::from(judge(&mut node, &before, &once, &what));
                flip(&path, at, bit);
            }
            // Of a command of the log, the engine ignores the case of the name and some bytes between the arguments: 2 % of the bits.
            assert!(started <= 4, "{started} of 10 went unnoticed");
            node.start_again();
            assert_eq!(state(&node), before);
        }
    }
}

/// The manifest names the files of the log. No engine notices that the type of the latest log, `i`, becomes `h`, which is one bit: it would
/// take that log for history, and delete it. The module refuses that start.
#[test]
fn w4_a_flipped_bit_of_the_manifest_of_the_log_changes_no_number() {
    const FLIPS: usize = 12;
    for engine in Engine::ALL {
        let mut random = random("bits of a manifest");
        let mut node = Setup::new(engine).without_fsync().start();
        let once = fill_all(&node);
        node.rewrite_log();
        // What the file of the rewrite does not have.
        KINDS.iter().for_each(|(key, _)| drop(node.wire().done(&format!("CT.INCRBY {key} 3 likes 1"))));
        let before = state(&node);
        node.kill();
        let folder = node.dir().join("appendonlydir");
        let entries = std::fs::read_dir(&folder).expect("a folder").flatten().map(|entry| entry.path());
        let files: Vec<(PathBuf, Vec<u8>)> =
            entries.map(|path| (path.clone(), std::fs::read(&path).expect("a file"))).collect();
        let is_manifest = |(path, _): &&(PathBuf, Vec<u8>)| path.to_string_lossy().ends_with(".manifest");
        let (path, manifest) = files.iter().find(is_manifest).expect("a manifest");
        let latest = manifest.windows(7).rposition(|bytes| bytes == b" type i").expect("a log") + 6;
        let mut started = 0;
        let others = || (random.random_range(0..manifest.len()), random.random_range(0..8));
        for (at, bit) in std::iter::once((latest, 0)).chain(std::iter::repeat_with(others).take(FLIPS)) {
            flip(path, at as u64, bit);
            let what = format!("{engine:?}, byte {at}, bit {bit} of {}", manifest.escape_ascii());
            started += usize::from(judge(&mut node, &before, &once, &what));
            let is_refused = node.log().contains("the manifest of the append-only file is damaged");
            assert!(is_refused || (at, bit) != (latest, 0), "{what}\n{}", node.log());
            // A process that starts may write its own manifest, and begin other files.
            std::fs::remove_dir_all(&folder).expect("a folder");
            std::fs::create_dir(&folder).expect("a folder");
            files.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).expect("a file"));
        }
        // The case of a key, or a number that is still in order.
        assert!(started < FLIPS / 2, "{started} of {FLIPS} went unnoticed");
        node.start_again();
        assert_eq!(state(&node), before);
    }
}

/// The log of commands is the engine's. As the documentation says, the engine finds a flipped bit of the structure, but not one of an
/// argument. The latter changes the id or the number of that command, and nothing else.
#[test]
fn w4_a_flipped_bit_of_the_log_of_commands_changes_one_command_at_most() {
    for engine in Engine::ALL {
        let mut node = Setup::new(engine).without_fsync().args("--aof-load-truncated no").start();
        let mut wire = node.wire();
        wire.done("CT.CREATE k SCHEMA likes 24");
        wire.done("CT.INCRBY k 5 likes 4321");
        wire.done("CT.INCRBY k 6 likes 7");
        node.kill();
        let entries = std::fs::read_dir(node.dir().join("appendonlydir")).expect("a folder").flatten();
        let mut paths = entries.map(|entry| entry.path());
        let path = paths.find(|path| path.to_string_lossy().contains(".incr.")).expect("a log");
        let log = std::fs::read(&path).expect("a file");
        let argument = log.windows(8).position(|bytes| bytes == b"$4\r\n4321").expect("the increment") as u64;
        let likes = |node: &Node| node.scan("k").into_iter().map(|(id, row)| (id, row[0])).collect::<Vec<_>>();
        for (at, expected) in [(argument, None), (argument + 1, None), (argument + 4, Some(5_321))] {
            flip(&path, at, 0);
            let has_started = node.try_start().is_ok();
            assert_eq!(has_started, expected.is_some(), "{engine:?}, byte {at}");
            if let Some(expected) = expected {
                assert_eq!(likes(&node), [(5, expected), (6, 7)]);
            }
            node.kill();
            flip(&path, at, 0);
        }
        node.start_again();
        assert_eq!(likes(&node), [(5, 4_321), (6, 7)]);
    }
}
