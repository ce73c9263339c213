//! What one command or one step does and takes has a bound (W1, W3).

use super::bounds::{count, hot_tables};
use super::*;
use crate::Refusal;
use crate::set::Tables;
use crate::set::random::Node;
use crate::set::rising::Body;

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
