//! Serials rise with each table of a set, and a cursor has 24 bits for a serial (W4). A set that begins its range again and again takes one
//! each time.

use super::bounds::piece;
use super::*;
use crate::SET_TABLES_MAX;
use crate::set::Tables;
use crate::set::dump::kind;
use crate::set::serials::{RESTORED_TABLES_MAX, SERIALS_KEPT, SERIALS_LOWER, SERIALS_MAX, restored};

/// Each id is far below the range of the ids before.
const FAR: u64 = (1 << 31) + 12_345;

fn rising(set: &mut CounterSet) -> &mut crate::set::Rising {
    let Tables::Rising(rising) = &mut set.tables else { panic!("a set by range") };
    rising
}

/// A set whose range begins again with each lower id.
fn falling() -> CounterSet {
    let fields = vec![Field::parse(b"a", b"24").unwrap()];
    let options = Options { table_slots: 16, key_bytes: 4, ..Options::default() };
    CounterSet::new(Schema::new(fields).unwrap(), options, 7).unwrap()
}

/// Counts ids that fall, and deletes each of them ten steps later.
fn fall(set: &mut CounterSet, steps: std::ops::Range<u64>) {
    let id = |step: u64| u64::MAX - step * FAR;
    for step in steps {
        set.increment(Mode::Decide, id(step), &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
        if step >= 10 {
            assert_eq!(set.delete(Mode::Decide, id(step - 10), &Fetched::none()), Ok(true));
        }
    }
}

fn records(set: &CounterSet) -> BTreeMap<u64, i64> {
    let mut found = BTreeMap::new();
    set.for_each(&mut |_| unreachable!(), |folded| match folded {
        Folded::Record(id, record) => drop(found.insert(id, record.get(0))),
        other => panic!("{other:?}"),
    });
    let (mut scanned, mut cursor) = (BTreeMap::new(), 0);
    for _ in 0..100_000 {
        let scan = set.scan(cursor, 100, &Fetched::none()).unwrap();
        let fields = scan.values.len() / scan.ids.len().max(1);
        scanned.extend(scan.ids.into_iter().zip(scan.values.chunks(fields.max(1)).map(|values| values[0])));
        cursor = scan.next;
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((cursor, &scanned), (0, &found), "a scan ends, and has the same records");
    found
}

/// Dumps a set, and makes another one of that.
fn copy(set: &CounterSet, mode: Mode) -> CounterSet {
    let mut restored = None;
    let take = &mut |piece: &[u8]| CounterSet::restore(&mut restored, mode, piece, &mut NoFiles).unwrap();
    set.dump(&mut |_| unreachable!(), take).unwrap();
    restored.unwrap()
}

#[test]
fn w4_a_set_whose_range_begins_again_and_again_can_be_loaded() {
    // The serials of a set that has begun its range this often. Only an earlier version, without a bound, reaches the first value.
    for from in [SERIALS_MAX - 300, SERIALS_LOWER - 300] {
        let mut set = falling();
        fall(&mut set, 0..500);
        assert!(rising(&mut set).next_serial > 200, "{}", rising(&mut set).next_serial);
        rising(&mut set).next_serial = from;
        fall(&mut set, 500..2_500);
        let expected: Vec<u64> = (2_490..2_500).rev().map(|step| u64::MAX - step * FAR).collect();
        let mut copies = [Mode::Decide, Mode::Apply].map(|mode| copy(&set, mode));
        for set in copies.iter_mut().chain([&mut set]) {
            assert_eq!(records(set).into_keys().collect::<Vec<_>>(), expected);
            assert!(rising(set).next_serial <= from.max(SERIALS_LOWER));
            // Rising ids still get tables.
            let tables = set.tables(0, usize::MAX).len();
            for id in 0..1_500 {
                let id = u64::MAX - 300 * FAR + id;
                set.increment(Mode::Decide, id, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
            }
            assert!(set.tables(0, usize::MAX).len() > tables + 50, "{tables}");
            assert_eq!(records(set).len(), 1_510);
        }
    }
}

#[test]
fn w4_a_dump_with_serials_that_no_cursor_holds_is_loaded() {
    let mut set = super::set(Order::Rising, 16);
    fill(&mut set, 0..60);
    // As an earlier version wrote them.
    let mut serials = std::iter::once(0).chain(SERIALS_MAX - 2..).map(u64::from);
    let mut pieces = Vec::new();
    let take = &mut |bytes: &[u8]| {
        pieces.push(match bytes[0] {
            kind::TABLE => {
                let mut reader = crate::bytes::Reader(&bytes[1..]);
                let mut numbers = [0; 5].map(|_: u64| reader.number().unwrap());
                numbers[0] = serials.next().unwrap();
                piece(kind::TABLE, numbers)
            }
            _ => bytes.to_vec(),
        });
    };
    set.dump(&mut |_| unreachable!(), take).unwrap();
    assert!(pieces.iter().filter(|piece| piece[0] == kind::TABLE).count() > 3);
    let expected = records(&set);
    for mode in [Mode::Decide, Mode::Apply] {
        let mut restored = None;
        for piece in &pieces {
            CounterSet::restore(&mut restored, mode, piece, &mut NoFiles).unwrap();
        }
        let mut set = restored.unwrap();
        assert_eq!(records(&set), expected);
        let tables = set.tables(0, usize::MAX).len();
        fill(&mut set, 60..400);
        assert!(set.tables(0, usize::MAX).len() > tables + 10);
        assert_eq!(records(&set).len(), 400);
        assert_eq!(records(&copy(&set, mode)), records(&set));
    }
}

#[test]
fn w4_a_set_gets_no_table_whose_serial_a_cursor_cannot_hold() {
    let mut set = super::set(Order::Rising, 16);
    fill(&mut set, 0..20);
    rising(&mut set).next_serial = SERIALS_MAX - 3;
    let count =
        |set: &mut CounterSet, id: u64| set.increment(Mode::Decide, id, &[(0, 1)], &Fetched::none(), &mut Vec::new());
    let full = (20..1_000).find(|id| count(&mut set, *id) == Err(Refusal::Full)).expect("a set that is full");
    assert_eq!(rising(&mut set).next_serial, SERIALS_MAX);
    assert_eq!(records(&set).len() as u64, full);
    while set.step(0) {}
    // What a primary has accepted is applied. A copy counts from its own tables on.
    set.increment(Mode::Apply, full, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
    let mut copy = copy(&set, Mode::Apply);
    assert_eq!(records(&copy), records(&set));
    fill(&mut copy, full + 1..full + 500);
    assert_eq!(records(&copy).len() as u64, full + 500);
}

/// A forged snapshot may have the maximum number of tables, the first with the greatest serial that a restore keeps.
#[test]
fn w4_serials_that_are_restored_leave_room_for_all_tables() {
    let last = (0..RESTORED_TABLES_MAX).fold(SERIALS_KEPT - 1, |last, _| restored(last + 1, Some(last)));
    let tables = SET_TABLES_MAX as u32;
    assert!(last + tables < SERIALS_MAX && SERIALS_LOWER + tables < SERIALS_KEPT, "{last}");
}
