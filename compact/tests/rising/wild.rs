//! Wild ids among rising ones (W2): they end no range, and the tables go on, whatever their share.

use super::{count, reads_ones, set};
use tallystone_compact::{CounterSet, Fetched, FileId, Mode, Options, PAGE_BYTES, PageFiles};

fn small() -> Options {
    Options { table_slots: 4_096, ..Options::default() }
}

/// Counts each id once, without and with background work, which makes the memory of tables ready early. Then each reads 1, also in a copy,
/// and of those that are not wild at most 1 % have no slot.
fn is_sound(options: &Options, ids: &[u64], wild: impl Fn(u64) -> bool) {
    for steps in [0, 1] {
        let mut set = set(options.clone());
        for (place, id) in ids.iter().enumerate() {
            count(&mut set, *id);
            if place % 16 == 0 {
                (0..steps).for_each(|_| _ = set.step(0));
            }
        }
        judge(set, ids, &wild);
    }
}

fn judge(mut set: CounterSet, ids: &[u64], wild: &impl Fn(u64) -> bool) {
    let usual = ids.iter().filter(|id| !wild(**id)).count() as u64;
    let totals = set.totals();
    assert!(totals.extend <= ids.len() as u64 - usual + usual / 100, "{usual} usual ids: {totals:?}");
    assert_eq!(totals.ids, ids.len() as u64, "each id is counted once: {totals:?}");
    let slots = set.options().table_slots;
    assert!(totals.hot_tables as u64 >= usual / slots, "{totals:?}");
    assert!(totals.hot_tables as u64 <= usual * 5 / (4 * slots) + 9, "{totals:?}");
    reads_ones(&mut set, ids);
    let (mut cursor, mut met) = (0, Vec::new());
    loop {
        let scan = set.scan(cursor, 1_000, &Fetched::none()).unwrap();
        met.extend(scan.ids);
        let (_, faults) = set.check(cursor, &Fetched::none()).unwrap();
        assert_eq!(faults, Vec::<String>::new());
        cursor = scan.next;
        if cursor == 0 {
            break;
        }
    }
    let mut ids = ids.to_vec();
    met.sort_unstable();
    met.dedup();
    ids.sort_unstable();
    assert_eq!(met, ids);
    reads_ones(&mut copy_of(&set), &ids);
}

fn copy_of(set: &CounterSet) -> CounterSet {
    let mut copy = None;
    let mut take = |piece: &[u8]| CounterSet::restore(&mut copy, Mode::Apply, piece, &mut NoFiles).unwrap();
    set.dump(&mut |_| unreachable!("nothing is cold"), &mut take).unwrap();
    copy.unwrap()
}

struct NoFiles;

impl PageFiles for NoFiles {
    fn create(&mut self) -> Result<(FileId, String), String> {
        Err("nothing is cold".to_owned())
    }
    fn append(&mut self, _: FileId, _: &[u8; PAGE_BYTES]) -> Result<(), String> {
        Err("nothing is cold".to_owned())
    }
    fn finish(&mut self, _: FileId) -> Result<(), String> {
        Err("nothing is cold".to_owned())
    }
}

/// A sequence from 1 on in which every `every`th id is a wild one.
fn mixed(count: u64, every: u64, wild: impl Fn(u64) -> u64) -> Vec<u64> {
    (1..=count).map(|id| if id % every == 0 { wild(id / every) } else { id }).collect()
}

#[test]
fn w2_one_wild_id_at_the_roll_does_not_take_the_next_range() {
    for at in (3_600..3_760).step_by(9).chain(3_686..3_690) {
        let ids: Vec<u64> = (1..at).chain([(1 << 40) - 1_000]).chain(at..28_262).collect();
        is_sound(&small(), &ids, |id| id > 1 << 32);
    }
}

#[test]
fn w2_a_few_wild_ids_that_rise_do_not_take_the_next_range() {
    for at in [3_680, 3_686, 3_687, 3_690, 3_700] {
        let wild = (1..=5).map(|step| (1 << 38) - 1_000 + step).chain([1 << 38]);
        let ids: Vec<u64> = (1..at).chain(wild).chain(at..28_262).collect();
        is_sound(&small(), &ids, |id| id > 1 << 32);
    }
}

#[test]
fn w2_wild_ids_out_of_reach_end_no_range() {
    is_sound(&Options::default(), &mixed(2_500_000, 500, |k| (1 << 62) + k), |id| id > 1 << 32);
}

#[test]
fn w2_a_hundredth_of_wild_ids_is_fine() {
    let options = Options { table_slots: 131_072, ..Options::default() };
    is_sound(&options, &mixed(661_000, 100, |k| (1 << 62) + k), |id| id > 1 << 32);
}

#[test]
fn w2_wild_ids_within_reach_of_the_keys_are_fine_too() {
    let scattered = |k: u64| (k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 25) | 1 << 38;
    for (every, slots) in [(100, 4_096), (3, 4_096), (500, 1 << 18), (10, 131_072)] {
        let options = Options { table_slots: slots, ..Options::default() };
        is_sound(&options, &mixed(slots * 6, every, scattered), |id| id > 1 << 32);
    }
}

#[test]
fn w2_first_ids_that_are_wild_do_not_hold_the_set() {
    for wild in [5, 50, 500] {
        let ids: Vec<u64> = (0..wild).map(|step| (1 << 62) + step).chain(1..40_000).collect();
        is_sound(&small(), &ids, |id| id > 1 << 32);
        is_sound(&Options { table_slots: 65_536, ..Options::default() }, &ids, |id| id > 1 << 32);
    }
}

/// As fast as they come, before the memory of a table is ready.
#[test]
fn w2_a_first_id_that_is_wild_does_not_hold_the_set_though_more_follow() {
    for every in [3, 10, 30] {
        let ids: Vec<u64> = (0..200_000).map(|id| if id % every == 0 { (1 << 62) + id } else { id }).collect();
        is_sound(&Options::default(), &ids, |id| id > 1 << 32);
    }
}

#[test]
fn w2_a_sequence_that_reaches_its_wild_ids_counts_on() {
    for wild in [10, 600, 9_000] {
        let cluster: Vec<u64> = (0..wild).map(|step| 30_000_000 + 7 * step).collect();
        let mut ids: Vec<u64> = (1..20_000).collect();
        let (mut place, mut next) = (0, cluster.iter());
        while place < ids.len() {
            place += 3;
            if let Some(id) = next.next() {
                ids.insert(place.min(ids.len()), *id);
            }
        }
        ids.extend(next);
        ids.extend((29_990_000..30_080_000).filter(|id| !cluster.contains(id)));
        is_sound(&small(), &ids, |id| cluster.binary_search(&id).is_ok());
    }
}

#[test]
fn w2_snowflake_ids_get_slots() {
    // Two machines, 50 ids a millisecond in pairs, with gaps of minutes, and one wild id in a hundred.
    let flake = |ms: u64, machine: u64, step: u64| (1_700_000_000_000 + ms) << 22 | machine << 12 | step;
    let mut ids = Vec::new();
    for burst in 0..6 {
        for ms in 0..2_000 {
            for step in 0..5 {
                ids.extend([2, 1].map(|machine| flake(burst * 600_000 + ms, machine, step)));
            }
            if ms % 10 == 0 {
                ids.push(burst * 10_000 + ms);
                ids.push(u64::MAX - (burst * 10_000 + ms));
            }
        }
    }
    let is_wild = |id: u64| !(1 << 60..u64::MAX - 100_000).contains(&id);
    is_sound(&small(), &ids, is_wild);
    is_sound(&Options { key_bytes: 8, ..small() }, &ids, is_wild);
}

#[test]
fn w2_a_burst_of_wild_ids_does_not_move_the_range() {
    let options = Options { table_slots: 1 << 18, ..Options::default() };
    for burst in [5_000, 30_000] {
        let wild = (0..burst).map(|step| (1 << 62) + step);
        let ids: Vec<u64> = (1..300_000).chain(wild).chain(300_000..700_000).collect();
        is_sound(&options, &ids, |id| id > 1 << 32);
    }
}
