//! Ids far above all others, within reach of the keys (W2): they do not end the range of a table.

use super::{count, reads_ones, set};
use tallystone_compact::{Change, CounterSet, Fetched, Field, Mode, Options, Schema};

#[test]
fn w2_a_few_ids_far_above_do_not_hold_up_the_tables() {
    for (key_bytes, jump) in [(0, 1 << 38), (8, u64::MAX)] {
        let mut set = set(Options { table_slots: 4_096, key_bytes, ..Options::default() });
        let mut ids: Vec<u64> = (1..2_000).collect();
        ids.extend((0..20).map(|step| jump - step));
        ids.extend(2_000..60_000);
        ids.iter().for_each(|id| count(&mut set, *id));
        let totals = set.totals();
        assert!(totals.extend < 200 && totals.hot_tables >= 14, "{totals:?}");
        reads_ones(&mut set, &ids);
        assert_eq!(set.check(0, &Fetched::none()).unwrap().1, Vec::<String>::new());
    }
}

#[test]
fn w2_records_that_outgrew_their_slots_move_with_their_ids() {
    let mut set = set(Options { table_slots: 4_096, ..Options::default() });
    let high = [1 << 21, (1 << 21) + 5];
    for id in high {
        set.increment(Mode::Decide, id, &[(0, 1_000_000)], &Fetched::none(), &mut Vec::new()).unwrap();
    }
    let ids: Vec<u64> = (1..20_000).collect();
    ids.iter().for_each(|id| count(&mut set, *id));
    reads_ones(&mut set, &ids);
    let mut found = Vec::new();
    set.read_many(&high, &Fetched::none(), &mut found).unwrap();
    assert_eq!(found, [1_000_000; 2]);
    assert_eq!(set.totals().aux, 2);
    set.set(Mode::Decide, high[0], &[(0, 0)], &Fetched::none()).unwrap();
    assert_eq!(set.totals().aux, 1);
}

#[test]
fn w2_a_set_without_room_for_tables_refuses_ids_out_of_reach() {
    let mut set = set(Options { table_slots: 4_096, key_bytes: 4, tables_max: 1, ..Options::default() });
    count(&mut set, 1);
    let far = |step: u64| (1 << 40) + step;
    let mut add = |step: u64| set.increment(Mode::Decide, far(step), &[(0, 1)], &Fetched::none(), &mut Vec::new());
    let accepted = (0..1_000).take_while(|step| add(*step).is_ok()).count();
    assert!((1..=64).contains(&accepted), "{accepted}");
    reads_ones(&mut set, &[1, far(0), far(accepted as u64 - 1)]);
}

/// No background work converts the records before they move.
#[test]
fn w2_values_of_retired_fields_do_not_move() {
    let fields = ["a", "b"].map(|name| Field::parse(name.as_bytes(), b"8").unwrap());
    let options = Options { table_slots: 4_096, ..Options::default() };
    let mut set = CounterSet::new(Schema::new(fields.into()).unwrap(), options, 7).unwrap();
    let outliers = [1 << 21, (1 << 21) + 5];
    let strays = [1 << 62, (1 << 62) + 9];
    let passed = 1 << 42;
    for id in outliers.into_iter().chain(strays).chain([passed]) {
        set.increment(Mode::Decide, id, &[(0, 1), (1, 200)], &Fetched::none(), &mut Vec::new()).unwrap();
    }
    set.alter(Change::Retire(b"b".to_vec())).unwrap();
    let ids: Vec<u64> = (1..20_000).collect();
    ids.iter().for_each(|id| count(&mut set, *id));
    reads_ones(&mut set, &outliers);
    assert_eq!(set.totals().aux, 0, "they fit their slots");
    // Ids that pass the lowest stray.
    (passed - 10..passed).chain(passed + 1..passed + 3_000).for_each(|id| count(&mut set, id));
    reads_ones(&mut set, &[passed]);
    assert_eq!(set.totals().aux, 0, "{:?}", set.totals());
    reads_ones(&mut set, &ids);
    // Without its values, a record of a dictionary has no place.
    let before = set.totals().extend;
    for id in strays {
        assert_eq!(set.delete(Mode::Decide, id, &Fetched::none()), Ok(true));
    }
    assert_eq!(set.totals().extend, before - 2);
}
