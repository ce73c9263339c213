//! What a set takes in memory after a restore (W4), and while a table splits (W2).

use super::*;
use crate::options::Order::{Random, Rising};

fn copy_of(set: &CounterSet) -> CounterSet {
    let (mut copy, mut disk) = (None, Disk::default());
    set.dump(&mut |_| unreachable!(), &mut |piece| {
        CounterSet::restore(&mut copy, Mode::Apply, piece, &mut disk).unwrap();
    })
    .unwrap();
    copy.expect("the first piece makes it")
}

fn content(set: &CounterSet) -> BTreeMap<u64, i64> {
    let mut values = BTreeMap::new();
    set.for_each(&mut |_| unreachable!(), |folded| match folded {
        Folded::Record(id, record) => drop(values.insert(id, record.get(0))),
        other => panic!("{other:?}"),
    });
    values
}

#[test]
fn w4_a_small_set_has_no_table_after_a_restore_either() {
    for order in [Rising, Random] {
        let mut small = set(order, Options::default().table_slots);
        fill(&mut small, 0..1_000);
        let mut copy = copy_of(&small);
        let (before, after) = (small.memory_bytes(), copy.memory_bytes());
        assert!(after < before + before / 4, "{order:?}: {before} B, restored {after} B");
        assert_eq!(content(&copy), content(&small), "{order:?}");
        // It gets its table when it grows, and a set that has one gets it by its restore.
        fill(&mut copy, 1_000..100_000);
        while copy.step(0) {}
        let mut again = copy_of(&copy);
        while again.step(0) {}
        assert_eq!(content(&again), content(&copy), "{order:?}");
        assert_eq!(content(&again).len(), 100_000, "{order:?}");
        let (before, after) = (copy.memory_bytes(), again.memory_bytes());
        assert!(after.abs_diff(before) < before / 20, "{order:?}: {before} B, restored {after} B");
    }
}

#[test]
fn w2_a_table_that_splits_leaves_retired_values_behind() {
    let mut set = set(Random, 1 << 12);
    let mut next = 0;
    while set.tables(0, 3).len() < 3 {
        set.increment(Mode::Decide, next, &[(0, 1), (1, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
        next += 1;
    }
    set.alter(Change::Retire(b"b".to_vec())).unwrap();
    while set.step(0) {}
    assert_eq!(figure(&set.info(), "aux_ids"), 0);
    assert_eq!(content(&set), (0..next).map(|id| (id, 1)).collect());
}
