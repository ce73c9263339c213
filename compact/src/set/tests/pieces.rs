//! A piece of a dump holds the engine for a bounded time, also one that no dump has (W1, W4).

use super::bounds::sealed;
use super::*;
use crate::bytes::Writer;
use crate::set::dump::kind;

fn pieces_of(set: &CounterSet) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    set.dump(&mut |_| unreachable!(), &mut |piece| pieces.push(piece.to_vec())).unwrap();
    pieces
}

/// A set that waits for records of its first table, in memory or in a file.
fn open(is_cold: bool) -> CounterSet {
    let mut set = None;
    let header = pieces_of(&super::set(Order::Rising, 1 << 16)).swap_remove(0);
    let table = super::bounds::piece(kind::TABLE, [0, 0, u64::from(is_cold), 0, 8]);
    for piece in [header, table] {
        CounterSet::restore(&mut set, Mode::Decide, &piece, &mut Disk::default()).unwrap();
    }
    set.unwrap()
}

fn take(set: CounterSet, mode: Mode, piece: &[u8]) -> (CounterSet, Result<(), Refusal>) {
    let (mut set, mut disk) = (Some(set), Disk::default());
    disk.0.insert(FileId(1), Vec::new());
    let taken = CounterSet::restore(&mut set, mode, piece, &mut disk);
    (set.unwrap(), taken)
}

/// Pieces of many small items: whether each is for a cold table, its items at most, its begin and one item.
fn hostile() -> Vec<(bool, usize, Vec<u8>, Vec<u8>)> {
    // A layout of one field without bits, or of none at all: a record is an id alone.
    let slots = |fields: &[u8]| [&[kind::SLOTS, 0, fields.len() as u8 / 2], fields].concat();
    vec![
        (false, 128, vec![kind::RECORDS], vec![2, 1, 2]),
        (true, 128, vec![kind::RECORDS], vec![2, 1, 2]),
        (false, 128, slots(&[]), vec![2]),
        (false, 128, slots(&[0, 0]), vec![2]),
        (true, 128, vec![kind::HELD], vec![1, 7, 0]),
        (true, 128, vec![kind::HELD], vec![2, 7, 0]),
        (true, 128, vec![kind::HELD], vec![0, 0, 1, 7, 7]),
        (false, 4_096, vec![kind::TOKENS, 0, 100], vec![9; 16]),
    ]
}

#[test]
fn w1_a_piece_of_too_many_items_is_refused() {
    for (place, (is_cold, most, begin, item)) in hostile().into_iter().enumerate() {
        let piece = |count: usize| sealed([begin.clone(), item.repeat(count)].concat());
        let set = |mode| if begin[0] == kind::TOKENS { between(mode) } else { open(is_cold) };
        let (_, taken) = take(set(Mode::Decide), Mode::Decide, &piece(most));
        assert_eq!(taken, Ok(()), "piece {place}");
        let (failed, refused) = take(set(Mode::Decide), Mode::Decide, &piece(2 * most));
        let why = refused.expect_err("it has too many items").to_string();
        assert!(why.contains("more values than one command takes"), "piece {place}: {why}");
        assert!(failed.is_restoring(), "it does not seem complete");
        // Snapshots and logs of earlier versions may have it.
        let (_, taken) = take(set(Mode::Apply), Mode::Apply, &piece(2 * most));
        assert_eq!(taken, Ok(()), "piece {place}");
    }
}

/// A set that has taken its header.
fn between(mode: Mode) -> CounterSet {
    let mut set = None;
    let header = pieces_of(&super::set(Order::Rising, 16)).swap_remove(0);
    CounterSet::restore(&mut set, mode, &header, &mut NoFiles).unwrap();
    set.unwrap()
}

#[test]
fn w1_a_header_of_too_many_fields_is_refused() {
    let mut header = Writer::new(kind::HEADER);
    [2, 7, 0, 0, 50_000].into_iter().for_each(|number| header.number(number));
    (0..50_000).for_each(|_| [header.bytes(b"a"), header.number(1 << 2 | 2)].into_iter().for_each(drop));
    let refused = CounterSet::restore(&mut None, Mode::Apply, &sealed(header.0), &mut NoFiles).unwrap_err();
    assert!(refused.to_string().contains("at most 256 fields"), "{refused}");
}

/// A restore accepts every piece that a dump writes, also with records that wait for their new layout, wide records and damaged
/// ranges.
#[test]
fn w4_a_dump_has_no_piece_that_a_restore_refuses() {
    for order in [Order::Rising, Order::Random] {
        let mut set = set(order, 1 << 14);
        fill(&mut set, 0..30_000);
        set.alter(Change::Add(Field::parse(b"c", b"8").unwrap())).unwrap();
        set.step(0);
        (30_000..30_100).for_each(|id| fill(&mut set, id..id + 1));
        let mut copy = None;
        for piece in pieces_of(&set) {
            CounterSet::restore(&mut copy, Mode::Decide, &piece, &mut NoFiles).unwrap();
        }
        assert_eq!(copy.unwrap().totals().ids, set.totals().ids);
    }
}

/// Sets of earlier versions have a `PROBE_MAX` of up to 64. With 64 groups, searches of a full table for the ids of one command
/// would take milliseconds.
#[test]
fn w1_a_search_examines_a_bounded_number_of_groups() {
    let probes = |set: &CounterSet| match &set.tables {
        crate::set::Tables::Rising(rising) => match &rising.parts[0].body {
            crate::set::rising::Body::Hot(table) => table.probe_max(),
            _ => panic!("it is in memory"),
        },
        crate::set::Tables::Random(random) => random.newest(crate::hash::Hash::first()).probe_max(),
    };
    for order in [Order::Rising, Order::Random] {
        for (probe_max, expected) in [(1, 1), (16, 16), (17, 16), (64, 16)] {
            let options = Options { order, table_slots: 1 << 10, probe_max, tables_max: 1, ..Options::default() };
            let schema = Schema::new(vec![Field::parse(b"a", b"24").unwrap()]).unwrap();
            let mut set = CounterSet::new(schema, options, 7).unwrap();
            (0..1_500)
                .for_each(|id| drop(set.increment(Mode::Apply, id, &[(0, 1)], &Fetched::none(), &mut Vec::new())));
            assert_eq!((probes(&set), set.totals().ids), (expected, 1_500), "{order:?} {probe_max}");
            let mut copy = None;
            for piece in pieces_of(&set) {
                // As an earlier version wrote it.
                let piece = match piece[0] {
                    kind::TABLE => super::bounds::piece(kind::TABLE, [0, 0, 0, 0, probe_max]),
                    _ => piece,
                };
                CounterSet::restore(&mut copy, Mode::Decide, &piece, &mut NoFiles).unwrap();
            }
            let mut copy = copy.unwrap();
            assert_eq!((probes(&copy), copy.totals().ids), (expected, 1_500), "{order:?} {probe_max}");
            assert_eq!(copy.options().probe_max, probe_max, "as it was given");
            assert!((0..1_500).all(|id| copy.read_field(id, 0, &Fetched::none()) == Ok(1)));
        }
    }
}
