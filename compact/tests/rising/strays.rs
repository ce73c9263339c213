//! Ids far above all others (W2): a few wait in a dictionary, many begin a separate table, and none is lost when it does.

use super::{count, reads_ones, set};
use tallystone_compact::{CounterSet, Fetched, Field, Mode, Options, Schema};

#[test]
fn w2_strays_keep_their_counters_when_their_range_gets_a_table() {
    let schema = || Schema::new(vec![Field::parse(b"a", b"8").unwrap(), Field::parse(b"b", b"i8").unwrap()]).unwrap();
    for jump in [1_u64 << 33, 1 << 45, u64::MAX - 4_000] {
        let options = Options { table_slots: 4_096, key_bytes: 4, ..Options::default() };
        let mut set = CounterSet::new(schema(), options, 7).unwrap();
        let ids: Vec<u64> = (0..100).chain((0..4_000).map(|step| jump + step)).collect();
        let value = |id: u64| (id % 1_000).cast_signed();
        for id in &ids {
            let deltas = [(0, value(*id) + 1), (1, -value(*id))];
            set.increment(Mode::Decide, *id, &deltas, &Fetched::none(), &mut Vec::new()).unwrap();
        }
        let mut found = Vec::new();
        set.read_many(&ids, &Fetched::none(), &mut found).unwrap();
        let expected: Vec<i64> = ids.iter().flat_map(|id| [value(*id) + 1, -value(*id)]).collect();
        assert_eq!(found, expected, "a jump to {jump}");
        assert!(set.totals().extend < 20, "{:?}", set.totals());
    }
}

#[test]
fn w2_a_stray_in_a_full_table_does_not_take_the_range_of_the_next_ids() {
    let mut set = set(Options { table_slots: 128, ..Options::default() });
    // The stray comes when the first table is just full.
    for id in (1..=116).chain([u64::MAX]).chain(117..5_000) {
        count(&mut set, id);
    }
    assert!(set.totals().extend < 20, "{:?}", set.totals());
    reads_ones(&mut set, &[1, 116, 117, 4_999, u64::MAX]);
}
