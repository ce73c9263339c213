//! Cold tables of a dump that stay in memory, because no file can be written (W4).

use super::*;
use crate::set::Tables;
use crate::set::rising::Body;

/// The first id: far above 0, where the range of the first table begins.
const FIRST: u64 = 1 << 60;
const IDS: u64 = 14_000;

/// Three tables in files, with writes above them, and one in memory.
fn cold(disk: &mut Disk) -> CounterSet {
    let mut set = set(Order::Rising, 1 << 12);
    for id in 0..IDS {
        let deltas = [(0, 1 + id.cast_signed())];
        set.increment(Mode::Decide, FIRST + id, &deltas, &Fetched::none(), &mut Vec::new()).unwrap();
    }
    memory_max(&mut set, 1);
    for _ in 0..3 {
        let job = set.next_job().expect("a table is to be written");
        assert!(!disk.run(&mut set, job));
    }
    memory_max(&mut set, 0);
    assert_eq!((set.totals().cold_tables, set.totals().hot_tables), (3, 1));
    add(&mut set, FIRST..FIRST + 100);
    set
}

fn pieces_of(set: &CounterSet, disk: &Disk) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    set.dump(&mut |page| disk.read(page), &mut |piece| pieces.push(piece.to_vec())).unwrap();
    pieces
}

fn in_memory(pieces: &[Vec<u8>]) -> CounterSet {
    let mut set = None;
    for piece in pieces {
        CounterSet::restore_in_memory(&mut set, piece).unwrap();
    }
    set.expect("the first piece makes it")
}

/// The values of all ids.
fn content(set: &CounterSet, disk: &Disk) -> BTreeMap<u64, [i64; 2]> {
    let mut values = BTreeMap::new();
    set.for_each(&mut |page| disk.read(page), |folded| match folded {
        Folded::Record(id, record) => drop(values.insert(id, [0, 1].map(|number| record.get(number)))),
        other => panic!("{other:?}"),
    });
    values
}

fn faults(set: &mut CounterSet) -> Vec<String> {
    let (mut cursor, mut faults) = (0, Vec::new());
    loop {
        let (next, found) = set.check(cursor, &Fetched::none()).unwrap();
        faults.extend(found);
        cursor = next;
        if cursor == 0 {
            return faults;
        }
    }
}

#[test]
fn w4_cold_tables_of_a_dump_come_into_memory_and_move_to_files_later() {
    let mut disk = Disk::default();
    let set = cold(&mut disk);
    let mut expected = content(&set, &disk);
    assert_eq!((expected.len() as u64, expected[&(FIRST + 7)]), (IDS, [9, -1]));
    let mut kept = in_memory(&pieces_of(&set, &disk));
    assert!(!kept.is_restoring());
    assert_eq!((kept.totals().cold_tables, kept.totals().hot_tables), (0, 4));
    assert!(content(&kept, &Disk::default()) == expected);
    assert!(kept.totals().extend < 100, "{} ids have no slots", kept.totals().extend);
    // It goes on as any other set: ids that it has, and new ones.
    for id in (FIRST..FIRST + 2 * IDS).step_by(7) {
        kept.increment(Mode::Decide, id, &[(0, 1), (1, -2)], &Fetched::none(), &mut Vec::new()).unwrap();
        let values = expected.entry(id).or_default();
        *values = [values[0] + 1, values[1] - 2];
        assert_eq!(kept.read_field(id, 0, &Fetched::none()), Ok(values[0]));
    }
    assert_eq!(faults(&mut kept), Vec::<String>::new());
    assert!(content(&kept, &Disk::default()) == expected);
    let mut other = Disk::default();
    memory_max(&mut kept, 1);
    while let Some(job) = kept.next_job() {
        other.run(&mut kept, job);
    }
    assert!(kept.totals().cold_tables >= 3 && kept.totals().hot_tables == 1);
    assert!(content(&kept, &other) == expected);
}

/// A table that stays in memory keeps all later ones there, also if these could be written.
#[test]
fn w4_a_set_whose_tables_stay_in_memory_takes_the_other_pieces() {
    let mut disk = Disk::default();
    let set = cold(&mut disk);
    let (pieces, expected) = (pieces_of(&set, &disk), content(&set, &disk));
    for place in (1..pieces.len()).step_by(13) {
        let begun = || in_memory(&pieces[..place]);
        assert!(begun().is_restoring(), "after {place} pieces");
        // A copy of what has come so far.
        let copy = in_memory(&pieces_of(&begun(), &Disk::default()));
        for (set, has_files) in [(begun(), false), (begun(), true), (copy, true)] {
            let (mut set, mut files) = (Some(set), Disk::default());
            for piece in &pieces[place..] {
                let taken = match has_files {
                    true => CounterSet::restore(&mut set, Mode::Apply, piece, &mut files),
                    false => CounterSet::restore_in_memory(&mut set, piece),
                };
                assert_eq!(taken, Ok(()), "after {place} pieces");
            }
            let set = set.expect("it is there");
            assert!(!set.is_restoring() && content(&set, &files) == expected, "after {place} pieces");
            let Tables::Rising(rising) = &set.tables else { panic!("a set by range") };
            let are_cold = rising.parts.iter().map(|part| matches!(part.body, Body::Cold(_)));
            assert!(are_cold.is_sorted_by(|lower, upper| lower >= upper), "after {place} pieces");
        }
    }
}

#[test]
fn w4_damage_is_not_lost_in_memory() {
    let mut disk = Disk::default();
    let set = cold(&mut disk);
    let file = set.files()[1].0;
    disk.0.get_mut(&file).unwrap()[0][99] ^= 1;
    let (mut kept, mut refused) = (None, None);
    for piece in pieces_of(&set, &disk) {
        let taken = CounterSet::restore_in_memory(&mut kept, &piece);
        refused = refused.or(taken.err());
    }
    assert!(refused.expect("damage").to_string().contains("damaged pages"));
    assert!(kept.expect("a set").is_restoring(), "it does not seem complete");
}
