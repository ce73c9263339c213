//! A set has a bounded number of tables, so that a pass over all of them is short (W2). Work that comes often makes no such pass.

use super::*;
use crate::bytes::{Reader, Writer};
use crate::set::dump::kind;
use crate::set::random::Node;
use crate::set::rising::Body;
use crate::set::{Random, Tables};
use crate::{Refusal, SET_TABLES_MAX};

fn count(set: &mut CounterSet, mode: Mode, id: u64) -> Result<(), Refusal> {
    set.increment(mode, id, &[(0, 1)], &Fetched::none(), &mut Vec::new())
}

fn hot_tables(set: &CounterSet) -> usize {
    set.totals().hot_tables
}

/// A set that refuses the first new id, and this id.
fn full(order: Order) -> (CounterSet, u64) {
    let mut set = set(order, 16);
    for id in 0..200_000 {
        match count(&mut set, Mode::Decide, id) {
            Ok(()) => {}
            Err(refusal) => {
                assert_eq!(refusal, Refusal::Full);
                while set.step(0) {}
                return (set, id);
            }
        }
    }
    panic!("{} tables, and no id is refused", hot_tables(&set));
}

#[test]
fn w2_a_set_has_so_many_tables_and_no_more() {
    for order in [Order::Rising, Order::Random] {
        let (mut set, next) = full(order);
        if order == Order::Rising {
            assert_eq!(hot_tables(&set), SET_TABLES_MAX);
            // Tables in files count too.
            let mut disk = Disk::default();
            memory_max(&mut set, 1);
            for _ in 0..10 {
                let job = set.next_job().expect("a table is to be written");
                assert!(!disk.run(&mut set, job));
            }
            memory_max(&mut set, 0);
            assert_eq!(hot_tables(&set), SET_TABLES_MAX - 10);
        }
        let tables = set.tables(0, usize::MAX).len();
        assert!(tables <= SET_TABLES_MAX && tables > SET_TABLES_MAX / 2, "{tables}");
        assert_eq!(count(&mut set, Mode::Decide, next), Err(Refusal::Full), "{order:?}");
        // Ids that have a place go on.
        for id in next - 1_000..next {
            count(&mut set, Mode::Decide, id).unwrap();
        }
        // What a primary has accepted is applied.
        for id in next..next + 1_000 {
            count(&mut set, Mode::Apply, id).unwrap();
        }
        assert_eq!(set.tables(0, usize::MAX).len(), tables);
        let value = |set: &mut CounterSet, id: u64| set.read_field(id, 0, &Fetched::none()).unwrap();
        assert_eq!([next - 1_000, next - 1, next, next + 999].map(|id| value(&mut set, id)), [2, 2, 1, 1]);
    }
}

#[test]
fn w2_a_full_set_allocates_no_tables_in_advance() {
    let (mut set, _) = full(Order::Rising);
    set.alter(Change::Option(b"TABLES_PREALLOCATED".to_vec(), b"8".to_vec())).unwrap();
    let before = set.memory_bytes();
    while set.step(0) {}
    assert_eq!(set.memory_bytes(), before);
}

pub(super) fn piece(kind: u8, numbers: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut piece = Writer::new(kind);
    numbers.into_iter().for_each(|number| piece.number(number));
    sealed(piece.0)
}

/// A piece with its checksum.
pub(super) fn sealed(mut piece: Vec<u8>) -> Vec<u8> {
    let sum = crc32c::crc32c(&piece);
    piece.extend_from_slice(&sum.to_le_bytes());
    piece
}

/// Pieces of version 1 have the begin of a slice of tokens, and not its end: they are forgotten no earlier than others.
#[test]
fn w4_tokens_of_version_1_are_taken() {
    let mut before = set(Order::Rising, 16);
    let (window_ms, now_ms) = (before.options().token_window_ms, 1_700_000_000_000);
    let token = |time_ms| crate::Token { text: b"a", time_ms, content: &[b"1"] };
    let times: Vec<u64> = (0..8).map(|step| now_ms - step * window_ms / 8).collect();
    times.iter().for_each(|time_ms| before.remember(token(*time_ms)));
    let slice_ms = window_ms / 8;
    let mut restored = None;
    let mut take = |piece: &[u8]| {
        let (piece, _) = piece.split_last_chunk::<4>().unwrap();
        let old = match piece[0] {
            kind::HEADER => [&[kind::HEADER, 1], &piece[2..]].concat(),
            kind::TOKENS => {
                let mut reader = Reader(&piece[1..]);
                let (begin_ms, _) = (reader.number().unwrap(), reader.number().unwrap());
                let mut old = Writer::new(kind::EQUAL_TOKENS);
                old.number(begin_ms / slice_ms * slice_ms);
                [&old.0[..], reader.0].concat()
            }
            _ => piece.to_vec(),
        };
        CounterSet::restore(&mut restored, Mode::Decide, &sealed(old), &mut NoFiles).unwrap();
    };
    before.dump(&mut |_| unreachable!(), &mut take).unwrap();
    let mut set = restored.unwrap();
    while set.step(now_ms) {}
    for time_ms in times {
        assert_eq!(set.admit(Mode::Decide, token(time_ms), now_ms), Ok(crate::Admission::Repeated));
    }
    assert_eq!(set.admit(Mode::Decide, token(now_ms + 1), now_ms), Ok(crate::Admission::New));
}

/// The pieces of a set with more tables than a set gets by itself.
fn too_many(order: Order) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    set(order, 16).dump(&mut |_| unreachable!(), &mut |piece| pieces.push(piece.to_vec())).unwrap();
    let header = pieces.swap_remove(0);
    let tables = 2 * SET_TABLES_MAX as u64;
    let mut pieces = vec![header];
    match order {
        Order::Rising => {
            for serial in 0..tables {
                pieces.push(piece(kind::TABLE, [serial, 100 * serial, 0, 100 * serial, 8]));
                pieces.push(piece(kind::END, []));
            }
        }
        Order::Random => pieces.push(piece(kind::TREE, (0..tables).map(|_| u64::from(tables.ilog2())))),
    }
    pieces.push(piece(kind::END, []));
    pieces
}

#[test]
fn w2_a_larger_set_is_taken_only_from_a_primary_or_a_snapshot() {
    for order in [Order::Rising, Order::Random] {
        let restore = |mode: Mode| {
            let mut restored = None;
            let mut take = |piece: &Vec<u8>| CounterSet::restore(&mut restored, mode, piece, &mut NoFiles);
            let refused = too_many(order).iter().find_map(|piece| take(piece).err());
            (restored.expect("a set"), refused)
        };
        let (set, refused) = restore(Mode::Decide);
        let reason = format!("a set has at most {SET_TABLES_MAX} tables");
        assert_eq!(refused, Some(Refusal::invalid(reason)), "{order:?}");
        assert!(set.is_restoring() && set.tables(0, usize::MAX).len() <= SET_TABLES_MAX);
        let (mut set, refused) = restore(Mode::Apply);
        assert_eq!((refused, set.is_restoring(), hot_tables(&set)), (None, false, 2 * SET_TABLES_MAX));
        // It goes on with the tables that it has.
        (0..20_000).for_each(|id| count(&mut set, Mode::Decide, 40 * id).unwrap());
        assert_eq!(hot_tables(&set), 2 * SET_TABLES_MAX);
    }
}

/// The payload of a RESTORE may be anything. Tables without records take little memory, and are not without number.
#[test]
fn w4_a_hostile_piece_takes_little_memory() {
    let begin = |order: Order| {
        let (mut pieces, mut restored) = (Vec::new(), None);
        set(order, 1 << 26).dump(&mut |_| unreachable!(), &mut |piece| pieces.push(piece.to_vec())).unwrap();
        CounterSet::restore(&mut restored, Mode::Apply, &pieces[0], &mut NoFiles).unwrap();
        restored
    };
    let tree = |depth: u32| piece(kind::TREE, std::iter::repeat_n(u64::from(depth), 1 << depth));
    let mut restored = begin(Order::Random);
    CounterSet::restore(&mut restored, Mode::Decide, &tree(12), &mut NoFiles).unwrap();
    let memory = restored.unwrap().memory_bytes();
    assert!(memory < 4 << 20, "{memory} bytes for 4,096 tables without a record");
    let refused = |refusal: Result<(), Refusal>| refusal.unwrap_err().to_string();
    let reason = "ERR a set has at most 65536 tables";
    let mut restored = begin(Order::Random);
    assert_eq!(refused(CounterSet::restore(&mut restored, Mode::Apply, &tree(17), &mut NoFiles)), reason);
    let mut restored = begin(Order::Rising);
    let mut tables = (0..).map(|serial| {
        let table = piece(kind::TABLE, [serial, 100 * serial, 0, 100 * serial, 8]);
        CounterSet::restore(&mut restored, Mode::Apply, &table, &mut NoFiles)
    });
    assert_eq!(tables.by_ref().take(65_536).find_map(Result::err), None);
    assert_eq!(refused(tables.next().unwrap()), reason);
}

#[test]
fn w2_tables_in_memory_are_counted_as_they_come_and_go() {
    let mut disk = Disk::default();
    let mut set = many(40, 10, &mut disk);
    let tables_max = |set: &mut CounterSet, tables: usize| {
        let tables = tables.to_string().into_bytes();
        set.alter(Change::Option(b"TABLES_MAX".to_vec(), tables)).unwrap();
    };
    // Ids without end, until one is refused.
    let fill_up = |set: &mut CounterSet| {
        let next = set.tables(0, usize::MAX).last().map_or(0, |last| figure(last, "first_id")) as u64;
        assert!((next..next + 1_000).any(|id| count(set, Mode::Decide, id).is_err()));
    };
    tables_max(&mut set, 33);
    fill_up(&mut set);
    assert_eq!((hot_tables(&set), set.totals().cold_tables), (33, 10));
    // A table that moves to a file makes room for another one.
    memory_max(&mut set, 1);
    for _ in 0..3 {
        let job = set.next_job().expect("a table is to be written");
        disk.run(&mut set, job);
    }
    memory_max(&mut set, 0);
    fill_up(&mut set);
    assert_eq!((hot_tables(&set), set.totals().cold_tables), (33, 13));
    // A restored set counts alike.
    let (mut pieces, mut restored) = (Vec::new(), None);
    set.dump(&mut |page| disk.read(page), &mut |piece| pieces.push(piece.to_vec())).unwrap();
    for piece in pieces {
        CounterSet::restore(&mut restored, Mode::Decide, &piece, &mut disk).unwrap();
    }
    let mut set = restored.unwrap();
    tables_max(&mut set, 35);
    fill_up(&mut set);
    assert_eq!((hot_tables(&set), set.totals().cold_tables), (35, 13));
}

#[test]
fn w1_a_conversion_does_not_visit_all_tables_for_each_group() {
    for order in [Order::Rising, Order::Random] {
        let mut set = set(order, 16);
        fill(&mut set, 0..15_000);
        while set.step(0) {}
        let tables = hot_tables(&set);
        assert!(tables > 1_000, "{tables}");
        set.alter(Change::Add(Field::parse(b"c", b"30").unwrap())).unwrap();
        let mut all = 0;
        loop {
            let (more, visited) = visits(|| set.step(0));
            assert!(visited <= 64, "{visited} tables in a step");
            all += visited;
            if !more {
                break;
            }
        }
        assert!(all >= tables, "{all} of {tables}");
        let is_converted = |table: &Figures| figure(table, "converting") == 0;
        assert!(set.tables(0, usize::MAX).iter().all(is_converted));
        // All have the new layout: a value of the new field moves no record to a dictionary.
        (0..15_000).for_each(|id| {
            set.increment(Mode::Decide, id, &[(2, 1 << 20)], &Fetched::none(), &mut Vec::new()).unwrap();
        });
        assert_eq!(set.totals().aux, 0);
    }
}

#[test]
fn w2_tables_that_split_while_they_are_converted_have_the_new_layout() {
    let mut set = set(Order::Random, 64);
    fill(&mut set, 0..3_000);
    let mut next = 3_000;
    for (name, width) in [("c", "30"), ("d", "31"), ("e", "29")] {
        set.alter(Change::Add(Field::parse(name.as_bytes(), width.as_bytes()).unwrap())).unwrap();
        // Some steps of the background between new ids, and a further change before the last one has ended.
        for _ in 0..40 {
            set.step(0);
            fill(&mut set, next..next + 30);
            next += 30;
        }
    }
    while set.step(0) {}
    for id in 0..next {
        let deltas = [(2, 1 << 20), (3, 1 << 20), (4, 1 << 20)];
        set.increment(Mode::Decide, id, &deltas, &Fetched::none(), &mut Vec::new()).unwrap();
    }
    assert_eq!(set.totals().aux, 0);
    let Tables::Random(Random { .. }) = &set.tables else { panic!("a set by hash") };
}

#[test]
fn w3_a_repair_visits_the_tables_of_its_range() {
    let mut disk = Disk::default();
    let mut set = many(TABLES, 1_000, &mut disk);
    let [first, _] = set_ids(&set, 500);
    let file = FileId(501);
    disk.0.get_mut(&file).unwrap()[0][77] ^= 1;
    let page = PageRef { file, page: 0 };
    assert!(matches!(set.read(first, &disk.fetch(page), &mut Vec::new()), Err(Refusal::Damaged(_))));
    let (repaired, visited) = visits(|| set.repair(Mode::Decide, first, first + 1, &[first + 1, first], &[7, 0, 8, 0]));
    assert_eq!((repaired, visited), (Ok(2), 1));
    let value = |set: &mut CounterSet, id: u64| set.read_field(id, 0, &Fetched::none());
    assert_eq!((value(&mut set, first), value(&mut set, first + 1)), (Ok(8), Ok(7)));
    assert!(matches!(value(&mut set, first + 2), Err(Refusal::Damaged(_))), "it is not of the range");
    // A range over all tables has an id here, too.
    assert_eq!(set.repair(Mode::Decide, 0, u64::MAX, &[5, first + 2, u64::MAX], &[1, 0, 9, 0, 1, 0]), Ok(1));
    assert_eq!(value(&mut set, first + 2), Ok(9));
    assert_eq!(set.totals().damaged, 0);
}

/// Damage of a whole file, and writes that came since, are repaired in parts.
#[test]
fn w3_a_repair_changes_a_bounded_number_of_ranges_and_ids() {
    let mut disk = Disk::default();
    let mut set = many(TABLES, 1_000, &mut disk);
    for number in 1..=1_000 {
        disk.0.get_mut(&FileId(number)).unwrap()[0][77] ^= 1;
    }
    let (mut cursor, mut fetched) = (0, Fetched::none());
    while set.totals().damaged < 1_000 {
        match set.check(cursor, &fetched) {
            Ok((next, _)) => cursor = next,
            Err(page) => fetched = disk.fetch(page),
        }
    }
    let before = set.totals().damaged;
    assert_eq!(set.repair(Mode::Decide, 0, u64::MAX, &[], &[]), Err(Refusal::TooLarge));
    assert_eq!(set.totals().damaged, before, "nothing has changed");
    let first_id = |set: &CounterSet, serial: u32| figure(&set.tables(serial, 1)[0], "first_id") as u64;
    let middle = first_id(&set, 128);
    assert_eq!(set.repair(Mode::Decide, 0, middle - 1, &[3], &[7, 0]), Ok(1));
    assert_eq!(set.totals().damaged, before - 128);
    // Each id of a few ranges was written since: a set of all fields does not read the page.
    let (from, to) = (first_id(&set, 128), first_id(&set, 200));
    let fits = first_id(&set, 160);
    for id in from..to {
        set.set(Mode::Decide, id, &[(0, 9), (1, -9)], &Fetched::none()).unwrap();
    }
    assert!(to - from > 512 && fits - from < 512, "{from} to {to}");
    assert_eq!(set.repair(Mode::Decide, from, to - 1, &[], &[]), Err(Refusal::TooLarge));
    assert_eq!(set.repair(Mode::Decide, from, fits - 1, &[], &[]), Ok(0));
    assert_eq!(set.read_field(from, 0, &Fetched::none()), Ok(9));
    // A replica applies what its primary has accepted.
    assert_eq!(set.repair(Mode::Apply, 0, u64::MAX, &[], &[]), Ok(0));
    assert_eq!(set.totals().damaged, 0);
}

#[test]
fn w1_segments_are_visited_once_whatever_the_pieces() {
    let mut disk = Disk::default();
    let small = || {
        let mut set = set(Order::Random, 64);
        fill(&mut set, 0..3_000);
        set
    };
    let large = || {
        let mut set = set(Order::Rising, 40_000);
        fill(&mut set, 0..100_000);
        set
    };
    for mut set in [small(), large(), many(50, 20, &mut disk)] {
        // Some tables are being converted.
        set.alter(Change::Add(Field::parse(b"c", b"30").unwrap())).unwrap();
        (0..3).for_each(|_| assert!(set.step(0)));
        let mut all = Vec::new();
        let end = set.segments(0, |segment| {
            all.push(segment.as_ptr().addr());
            true
        });
        assert!(end == 0 && all.len() >= 7, "{}", all.len());
        for piece in [1, 2, 5] {
            let (mut cursor, mut visited) = (0, Vec::new());
            loop {
                let begin = visited.len();
                cursor = set.segments(cursor, |segment| {
                    visited.push(segment.as_ptr().addr());
                    visited.len() < begin + piece
                });
                assert!(visited.len() <= begin + piece);
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(visited, all, "pieces of {piece}");
        }
        // A cursor of a table that is gone goes on with the one before.
        let first = set.segments(0, |_| false);
        assert_ne!(set.segments(first | u64::from(u32::MAX) << 32, |_| false), 0);
    }
    assert_eq!(set(Order::Rising, 16).segments(0, |_| true), 0);
}

#[test]
fn w3_a_scan_passes_writes_above_a_table_in_steps() {
    // A wide range has more ids than a cursor can distinguish.
    for spread in [1_000, 1 << 45] {
        let mut set = set(Order::Rising, 64);
        let ids: Vec<u64> = (0..200).map(|id| id * spread).collect();
        ids.iter().for_each(|id| count(&mut set, Mode::Decide, *id).unwrap());
        memory_max(&mut set, 1);
        // A disk that is full: the table stays, with what is written to it.
        let Some(Job::Spill(job)) = set.next_job() else { panic!("a table is to be written") };
        let serial = job.serial;
        drop(job);
        set.abort_spill(serial);
        let last = figure(&set.tables(serial + 1, 1)[0], "first_id") as u64;
        let others: Vec<u64> = (0..5_000).map(|step| step * (last / 5_000) + 1).collect();
        for id in others.iter().chain(ids.iter().filter(|id| **id < last)) {
            count(&mut set, Mode::Decide, *id).unwrap();
        }
        let (mut cursor, mut found, mut calls) = (0, Vec::new(), 0);
        loop {
            let scan = set.scan(cursor, 1, &Fetched::none()).unwrap();
            assert!(scan.ids.len() <= 64, "{} ids at once", scan.ids.len());
            found.extend(scan.ids);
            (cursor, calls) = (scan.next, calls + 1);
            if cursor == 0 {
                break;
            }
        }
        let mut expected: Vec<u64> = ids.iter().chain(&others).copied().collect();
        expected.sort_unstable();
        expected.dedup();
        found.sort_unstable();
        found.dedup();
        assert!(found == expected, "{} of {}, in {calls} calls", found.len(), expected.len());
        let (mut cursor, mut faults) = (0, Vec::new());
        while let Ok((next, more)) = set.check(cursor, &Fetched::none()) {
            faults.extend(more);
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!((cursor, faults), (0, Vec::new()));
    }
}

/// A command of so many ids.
const COMMAND: u64 = crate::IDS_MAX as u64;

/// By how much each command of new ids makes the set larger, from the id `first` on.
fn growth(set: &mut CounterSet, ids: std::ops::Range<u64>) -> Vec<usize> {
    let mut growth = Vec::new();
    for first in ids.step_by(COMMAND as usize) {
        let before = set.memory_bytes();
        fill(set, first..first + COMMAND);
        growth.push(set.memory_bytes().saturating_sub(before));
    }
    growth
}

/// The ids of a new set wait for the memory of its first table, which gets ready step by step.
#[test]
fn w1_a_new_set_needs_little_new_memory_in_one_command() {
    const SLOTS: u64 = 1 << 18;
    for (order, steps) in [(Order::Rising, 0), (Order::Random, 0), (Order::Rising, 3), (Order::Random, 3)] {
        let mut set = set(order, SLOTS);
        // A small set has no table, whatever the background does.
        fill(&mut set, 0..SLOTS / 64);
        while set.step(0) {}
        let small = set.memory_bytes();
        assert!(small < (SLOTS / 64) as usize * 150, "{small} bytes");
        assert_eq!((set.totals().ids, set.totals().extend, hot_tables(&set)), (SLOTS / 64, 0, 1));
        let (mut most, mut next) = (0, SLOTS / 64);
        while next < SLOTS / 2 {
            (0..steps).for_each(|_| _ = set.step(0));
            most = most.max(growth(&mut set, next..next + 1)[0]);
            next += COMMAND;
            assert_eq!(set.totals().ids, next, "each id is counted once");
        }
        // Two segments, and what waits in the dictionary.
        assert!(most <= 3 << 18, "{order:?}: {most} bytes in one command");
        while set.step(0) {}
        let slots = SLOTS as usize * 15;
        assert!(set.memory_bytes() < slots, "{order:?}: nothing waits any more");
        for id in 0..next {
            assert_eq!(set.read_field(id, 0, &Fetched::none()), Ok(1 + id.cast_signed()), "{order:?}");
        }
    }
}

/// A scan between commands meets each id that is there all the time, while ids that wait get slots, and fields come and go.
#[test]
fn w2_ids_that_wait_are_scanned_altered_deleted_and_dumped() {
    const SLOTS: u64 = 1 << 17;
    for order in [Order::Rising, Order::Random] {
        let mut set = set(order, SLOTS);
        let known = 2_500;
        fill(&mut set, 0..known);
        let (mut cursor, mut met, mut next) = (0, std::collections::BTreeSet::new(), known);
        loop {
            let scan = set.scan(cursor, 1, &Fetched::none()).unwrap();
            met.extend(scan.ids);
            cursor = scan.next;
            if cursor == 0 {
                break;
            }
            fill(&mut set, next..next + 100);
            next += 100;
            if next == known + 1_000 {
                set.alter(Change::Add(Field::parse(b"c", b"9").unwrap())).unwrap();
                set.alter(Change::Retire(b"b".to_vec())).unwrap();
            }
            if next.is_multiple_of(500) {
                set.step(0);
            }
        }
        assert!((0..known).all(|id| met.contains(&id)), "{order:?}: {} of {known}", met.len());
        assert!(next > known + 3_000, "{next}");
        assert!(set.delete(Mode::Decide, 7, &Fetched::none()).unwrap());
        assert!(!set.delete(Mode::Decide, 7, &Fetched::none()).unwrap());
        let (mut pieces, mut restored, mut seen) = (Vec::new(), None, 0);
        set.dump(&mut |_| unreachable!(), &mut |piece| pieces.push(piece.to_vec())).unwrap();
        for piece in pieces {
            CounterSet::restore(&mut restored, Mode::Decide, &piece, &mut NoFiles).unwrap();
        }
        set.for_each(&mut |_| unreachable!(), |_| seen += 1);
        assert_eq!(seen, next - 1, "each record once");
        for set in [&mut set, &mut restored.unwrap()] {
            for id in (0..next).filter(|id| *id != 7) {
                assert_eq!(set.read_field(id, 0, &Fetched::none()), Ok(1 + id.cast_signed()), "{order:?}");
            }
            assert_eq!(set.read_field(7, 0, &Fetched::none()), Ok(0));
        }
        while set.step(0) {}
        assert_eq!((set.totals().aux, set.totals().extend), (0, 0));
    }
}

/// Memory costs the engine's time when it is first used, page by page: some milliseconds for a whole table.
#[test]
fn w1_a_command_of_new_ids_needs_little_new_memory() {
    for steps in [0, 3] {
        let mut set = set(Order::Rising, 1 << 18);
        let end = (1 << 18) * 9 / 10;
        fill(&mut set, 0..end);
        let before = set.memory_bytes();
        (0..100).for_each(|_| _ = set.step(0));
        assert_eq!(set.memory_bytes(), before, "a table that is full, and no id that needs another one");
        let mut most = 0;
        for first in (end..2 * end).step_by(COMMAND as usize) {
            (0..steps).for_each(|_| _ = set.step(0));
            most = most.max(growth(&mut set, first..first + 1)[0]);
        }
        assert!(most <= 3 << 18, "{most} bytes in one command");
        assert_eq!(hot_tables(&set), 2);
        assert!(set.totals().extend < end / 1_000, "{} ids without a slot", set.totals().extend);
        let used: Vec<i64> = set.tables(0, 2).iter().map(|table| figure(table, "used")).collect();
        let late = used[0] - end.cast_signed();
        assert!(late > 0 && late <= (1 << 18) / 32 + 1, "{used:?}");
        let idle = set.memory_bytes();
        while set.step(0) {}
        assert_eq!(set.memory_bytes(), idle, "no table is allocated before another one is full");
    }
}

/// Ids that leave the reach of a table's keys end its range. The next table gets ready meanwhile, as that of a full one.
#[test]
fn w1_a_range_that_ids_leave_ends_with_little_new_memory_in_one_command() {
    // Ids of 41 bits of time and 22 low bits: a table's keys of 5 bytes reach some minutes of them.
    const GAP: u64 = 1 << 32;
    for steps in [0, 3] {
        let mut set = set(Order::Rising, 1 << 18);
        fill(&mut set, 0..20_000);
        while set.step(0) {}
        let (mut most, mut next) = (0, 1 << 40);
        let mut last = next;
        while next < (1 << 40) + 80 * COMMAND * GAP && hot_tables(&set) < 2 {
            (0..steps).for_each(|_| _ = set.step(0));
            let before = set.memory_bytes();
            for id in (0..COMMAND).map(|number| next + number * GAP) {
                count(&mut set, Mode::Decide, id).unwrap();
                last = id;
            }
            most = most.max(set.memory_bytes().saturating_sub(before));
            next = last + GAP;
        }
        assert_eq!(hot_tables(&set), 2);
        assert!(most <= 3 << 18, "{most} bytes in one command");
        let next = &set.tables(0, 2)[1];
        // Those that have no slot yet have moved all at once.
        let moved = figure(next, "used");
        assert!(moved <= 3 * COMMAND.cast_signed(), "{moved} ids moved, or came in the same command");
        for id in (0..20_000).chain((1 << 40..=last).step_by(GAP as usize)) {
            assert_ne!(set.read_field(id, 0, &Fetched::none()), Ok(0), "{id}");
        }
    }
}

/// Ids of a far future that come now and then do not keep later ids from beginning tables.
#[test]
fn w2_far_ids_do_not_end_the_tables_of_a_set() {
    const GAP: u64 = 1 << 32;
    let mut set = set(Order::Rising, 1 << 12);
    let (mut next, mut far) = (1 << 40, 1 << 62);
    for number in 0..60_000 {
        next += GAP;
        count(&mut set, Mode::Decide, next).unwrap();
        if number % 40 == 0 {
            far += 1;
            count(&mut set, Mode::Decide, far).unwrap();
        }
        set.step(0);
    }
    let last = set.tables(0, usize::MAX).last().map_or(0, |last| figure(last, "first_id")) as u64;
    assert!(
        far - (1 << 62) > 1_024 && next - last < 2_000 * GAP,
        "the last of {} tables begins early",
        hot_tables(&set)
    );
    for id in ((1 << 40) + GAP..=next).step_by(GAP as usize).chain((1 << 62) + 1..=far) {
        assert_eq!(set.read_field(id, 0, &Fetched::none()), Ok(1), "{id}");
    }
}

/// A split makes memory ready, then moves groups. Fields are added in each of these times.
#[test]
fn w2_a_table_of_several_segments_is_converted_while_it_splits() {
    for changes in [[1, 40], [5, 6], [20, 30], [30, 60]] {
        let mut set = set(Order::Random, 1 << 16);
        let begin = (1 << 16) * 9 / 10;
        fill(&mut set, 0..begin);
        for (command, first) in (begin..begin + 3 * (1 << 14)).step_by(256).enumerate() {
            if let Some(place) = changes.iter().position(|change| *change == command) {
                let field = Field::parse(format!("c{place}").as_bytes(), b"60").unwrap();
                set.alter(Change::Add(field)).unwrap();
            }
            fill(&mut set, first..first + 256);
            (0..command % 3).for_each(|_| _ = set.step(0));
            assert_eq!(set.totals().ids, first + 256, "command {command}");
            for id in first - 2_000..first + 256 {
                assert_eq!(set.read_field(id, 0, &Fetched::none()), Ok(1 + id.cast_signed()), "{changes:?} {command}");
            }
        }
        while set.step(0) {}
        assert_eq!(hot_tables(&set), 2);
        for id in 0..begin + 3 * (1 << 14) {
            assert_eq!(set.read_field(id, 0, &Fetched::none()), Ok(1 + id.cast_signed()), "{changes:?}");
        }
    }
}

#[test]
fn w1_a_split_does_little_for_each_new_id() {
    let mut set = set(Order::Random, 1 << 18);
    let end = (1 << 18) * 9 / 10;
    fill(&mut set, 0..end);
    let moved = |set: &CounterSet| {
        let Tables::Random(random) = &set.tables else { panic!("a set by hash") };
        match &random.root {
            Node::Splitting(split) => Some(split.next_group),
            _ => None,
        }
    };
    let (mut next, mut groups) = (end, 0);
    loop {
        let grown = growth(&mut set, next..next + 1)[0];
        next += COMMAND;
        assert!(grown <= 4 << 18, "{grown} bytes in one command");
        assert_eq!(set.totals().ids, next, "each id is counted once");
        let Some(now) = moved(&set) else { break };
        assert!(now - groups <= COMMAND as u32 / 12 + 1, "{} groups in one command", now - groups);
        groups = now;
    }
    assert!(groups > 16_000 && next < end + (1 << 18) * 7 / 8, "{} new ids until it has ended", next - end);
    assert_eq!(hot_tables(&set), 2);
    assert!(set.totals().extend < end / 1_000, "{} ids without a slot", set.totals().extend);
    for id in 0..next {
        assert_eq!(set.read_field(id, 0, &Fetched::none()), Ok(1 + id.cast_signed()));
    }
}

/// A stray below the other ids makes each search visit the strays, as long as it is one.
#[test]
fn w2_searches_skip_the_strays_above_them() {
    let mut set = set(Order::Rising, 1 << 12);
    let far_from = |set: &CounterSet| match &set.tables {
        Tables::Rising(rising) => match &rising.parts.last().unwrap().body {
            Body::Hot(table) => table.far_from(),
            _ => None,
        },
        Tables::Random(_) => None,
    };
    count(&mut set, Mode::Decide, 1 << 50).unwrap();
    for stray in [3, 1 << 62, (1 << 62) + 1, 7] {
        count(&mut set, Mode::Decide, stray).unwrap();
    }
    assert_eq!(far_from(&set), Some(3));
    assert!(set.delete(Mode::Decide, 3, &Fetched::none()).unwrap());
    assert_eq!(far_from(&set), Some(7), "the stray is gone");
    // Later ids pass the other one, and it gets a place among them.
    for step in 1..20 {
        count(&mut set, Mode::Decide, (1 << 50) + step).unwrap();
    }
    assert_eq!(far_from(&set), Some(1 << 62));
    assert_eq!(set.read_field(7, 0, &Fetched::none()), Ok(1));
}
