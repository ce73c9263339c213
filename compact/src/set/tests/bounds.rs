//! A set has a bounded number of tables, so that a pass over all of them is short (W2). Work that comes often makes no such pass.

use super::*;
use crate::bytes::{Reader, Writer};
use crate::set::dump::kind;
use crate::set::{Random, Tables};
use crate::{Refusal, SET_TABLES_MAX};

pub(super) fn count(set: &mut CounterSet, mode: Mode, id: u64) -> Result<(), Refusal> {
    set.increment(mode, id, &[(0, 1)], &Fetched::none(), &mut Vec::new())
}

pub(super) fn hot_tables(set: &CounterSet) -> usize {
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

/// Without it, the id that begins a table waits for all memory of the table.
#[test]
fn w2_a_table_that_was_allocated_in_advance_takes_no_memory_when_it_begins() {
    // A table of 32,768 slots of 10 bytes.
    for (in_advance, expected) in [(0, 300_000..400_000), (1, 0..100_000)] {
        let mut set = set_with(Options { table_slots: 1 << 15, tables_preallocated: in_advance, ..Options::default() });
        fill(&mut set, 0..10_000);
        while set.step(0) {}
        let (before, mut next) = (set.memory_bytes(), 10_000);
        while hot_tables(&set) == 1 {
            fill(&mut set, next..next + 1);
            next += 1;
        }
        let grown = set.memory_bytes() - before;
        assert!(expected.contains(&grown), "{in_advance} in advance: {grown} B");
    }
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
