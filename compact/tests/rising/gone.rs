//! Ids whose counters become 0, and that come back (W2): no other id is lost, and the tables go on.

use super::{count, reads_ones, set};
use tallystone_compact::{CounterSet, Fetched, Mode, Options};

/// Some segments of memory: the first ids wait for the first table.
fn waiting() -> Options {
    Options { table_slots: 1 << 18, ..Options::default() }
}

fn zero(set: &mut CounterSet, id: u64) {
    assert_eq!(set.delete(Mode::Decide, id, &Fetched::none()), Ok(true));
}

/// Counts the sequence from 1 on, without and with background work, until each of its ids has a slot. Then it and the others read 1.
fn counts_on(fill: impl Fn(&mut CounterSet), others: &[u64]) {
    for steps in [0, 1] {
        let mut set = set(waiting());
        fill(&mut set);
        for id in 1..40_000 {
            count(&mut set, id);
            (0..steps).for_each(|_| _ = set.step(0));
        }
        reads_ones(&mut set, others);
        reads_ones(&mut set, &(1..40_000).collect::<Vec<_>>());
        let totals = set.totals();
        assert!(totals.extend <= others.len() as u64 + 400, "{totals:?}");
    }
}

#[test]
fn w2_an_id_that_comes_and_goes_hides_no_other_when_a_range_begins_lower() {
    let wild: Vec<u64> = (1..10).map(|step| (1 << 62) + step).collect();
    let fill = |set: &mut CounterSet| {
        wild.iter().for_each(|id| count(set, *id));
        for _ in 0..1_030 {
            zero(set, wild[8]);
            count(set, wild[8]);
        }
    };
    counts_on(fill, &wild);
}

#[test]
fn w2_ids_that_remain_of_many_are_not_lost_when_a_range_begins_lower() {
    let wild: Vec<u64> = (0..1_400).map(|step| (1 << 62) + step).collect();
    let fill = |set: &mut CounterSet| {
        wild.iter().for_each(|id| count(set, *id));
        wild[400..].iter().for_each(|id| zero(set, *id));
    };
    counts_on(fill, &wild[..400]);
}

#[test]
fn w2_a_wild_id_that_comes_and_goes_does_not_hold_the_table() {
    let mut set = set(waiting());
    let wild = 999_999_999_999;
    count(&mut set, wild);
    for _ in 0..1_100 {
        zero(&mut set, wild);
        count(&mut set, wild);
    }
    let ids: Vec<u64> = (1..600_000).collect();
    ids.iter().for_each(|id| count(&mut set, *id));
    let totals = set.totals();
    assert!(totals.hot_tables >= 3 && totals.extend < 600, "{totals:?}");
    reads_ones(&mut set, &ids);
    reads_ones(&mut set, &[wild]);
}

/// Other wild ids each time: those that are gone do not count.
#[test]
fn w2_wild_ids_that_are_gone_do_not_hold_the_table() {
    let mut set = set(waiting());
    for wild in 0..3_000 {
        count(&mut set, 999_999_990_000 + wild);
        zero(&mut set, 999_999_990_000 + wild);
    }
    let ids: Vec<u64> = (1..600_000).collect();
    ids.iter().for_each(|id| count(&mut set, *id));
    let totals = set.totals();
    assert!(totals.hot_tables >= 3 && totals.extend < 600, "{totals:?}");
    reads_ones(&mut set, &ids);
}

/// Strays that are gone leave no memory, and those that are there are counted.
#[test]
fn w2_strays_take_memory_as_long_as_they_are_there() {
    let mut set = set(Options { table_slots: 1 << 20, ..Options::default() });
    (1..1_000).for_each(|id| count(&mut set, id));
    let without = set.memory_bytes();
    let wild = || (0..1_000).map(|step| (1 << 62) + step);
    wild().for_each(|id| count(&mut set, id));
    let each = (set.memory_bytes() - without) / 1_000;
    assert!(each > 90, "{each} bytes a stray: an entry with one value, and its place in the order of all strays");
    wild().for_each(|id| zero(&mut set, id));
    assert!(set.memory_bytes() < without + 20_000, "{} bytes", set.memory_bytes() - without);
}
