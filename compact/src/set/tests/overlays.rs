//! Many writes above a table: no step of a scan or a check has all of them, wherever their ids are (W3).

use super::*;

/// Ids of one step of a walk, and of a reply to a scan of one id, at most.
const STEP: usize = 1_024;

/// Each id of a set, found by scans of one id that may have up to `most` ids, with the calls that it took.
fn scan_all(set: &CounterSet, disk: &Disk, most: usize) -> (Vec<u64>, usize) {
    let (mut cursor, mut fetched, mut found, mut calls) = (0, Fetched::none(), Vec::new(), 0);
    loop {
        match set.scan(cursor, 1, &fetched) {
            Ok(scan) => {
                assert!(scan.ids.len() <= most, "{} ids at once", scan.ids.len());
                found.extend(scan.ids);
                (cursor, calls, fetched) = (scan.next, calls + 1, Fetched::none());
                if cursor == 0 {
                    found.sort_unstable();
                    return (found, calls);
                }
            }
            Err(page) => fetched = disk.fetch(page.expect("no damage")),
        }
    }
}

fn check_all(set: &mut CounterSet, disk: &Disk) -> Vec<String> {
    let (mut cursor, mut fetched, mut faults) = (0, Fetched::none(), Vec::new());
    loop {
        match set.check(cursor, &fetched) {
            Ok((next, found)) => {
                faults.extend(found);
                (cursor, fetched) = (next, Fetched::none());
                if cursor == 0 {
                    return faults;
                }
            }
            Err(page) => fetched = disk.fetch(page),
        }
    }
}

/// The ids of the first table, which is in a file, and of the others.
const FIRST: u64 = 1 << 60;

fn above_a_file(disk: &mut Disk) -> CounterSet {
    let mut set = set(Order::Rising, 4_096);
    let ids = FIRST..FIRST + 10_000;
    ids.for_each(|id| set.increment(Mode::Decide, id, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap());
    memory_max(&mut set, 1);
    let job = set.next_job().expect("a table is to be written");
    assert!(!disk.run(&mut set, job));
    memory_max(&mut set, 0);
    set
}

fn count(set: &mut CounterSet, id: u64) {
    set.increment(Mode::Decide, id, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
}

/// Late ids that are all below the first page: no page is read for them, and no merge may come while the disk is full.
#[test]
fn w3_a_scan_passes_writes_above_a_file_in_steps() {
    let mut disk = Disk::default();
    let mut set = above_a_file(&mut disk);
    let pages = disk.0[&FileId(1)].len();
    let late = FIRST - 50_000..FIRST - 30_000;
    late.clone().for_each(|id| count(&mut set, id));
    // Some of the records that the file has, which the overlay has too.
    for id in FIRST..FIRST + 500 {
        set.increment(Mode::Apply, id, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
    }
    let expected: Vec<u64> = late.clone().chain(FIRST..FIRST + 10_000).collect();
    let (found, calls) = scan_all(&set, &disk, STEP);
    assert!(found == expected, "{} of {}", found.len(), expected.len());
    assert!(calls > pages + late.clone().count() / STEP, "{calls} calls");
    assert_eq!(check_all(&mut set, &disk), Vec::<String>::new());
    // A copy has each of them once.
    let mut copied = Vec::new();
    set.for_each(&mut |page| disk.read(page), |folded| match folded {
        Folded::Record(id, _) => copied.push(id),
        other => panic!("{other:?}"),
    });
    copied.sort_unstable();
    assert!(copied == expected, "{} of {}", copied.len(), expected.len());
    // Records of zeros are no rows, but work.
    late.clone().for_each(|id| assert_eq!(set.delete(Mode::Decide, id, &Fetched::none()), Ok(true)));
    let mut calls = 0;
    let mut cursor = 0;
    let first = disk.fetch(PageRef { file: FileId(1), page: 0 });
    while cursor == 0 || calls < 3 {
        let scan = set.scan(cursor, STEP, &first).unwrap();
        assert!(scan.ids.is_empty(), "the others come after these 20,000");
        (cursor, calls) = (scan.next, calls + 1);
    }
}

/// The scan goes on at its id in the file that replaces another one.
#[test]
fn w3_a_scan_goes_on_in_the_file_of_a_merge() {
    let mut disk = Disk::default();
    let mut set = above_a_file(&mut disk);
    (FIRST - 20_000..FIRST - 10_000).for_each(|id| count(&mut set, id));
    let page = PageRef { file: FileId(1), page: 0 };
    let (mut cursor, mut met) = (0, Vec::new());
    for _ in 0..5 {
        let scan = set.scan(cursor, 1, &disk.fetch(page)).unwrap();
        met.extend(scan.ids);
        cursor = scan.next;
    }
    let before = met.len();
    assert!(before > 2_000 && before < 10_000, "{before}");
    let job = set.next_job().expect("a merge is due");
    assert!(disk.run(&mut set, job));
    let mut fetched = Fetched::none();
    loop {
        match set.scan(cursor, 1, &fetched) {
            Ok(scan) => {
                met.extend(scan.ids);
                cursor = scan.next;
                if cursor == 0 {
                    break;
                }
            }
            Err(page) => fetched = disk.fetch(page.unwrap()),
        }
    }
    let ids = met.len();
    met.sort_unstable();
    met.dedup();
    assert_eq!((met.len(), ids - met.len() <= 2 * STEP), (20_000, true), "{ids} rows");
}

/// A sequence near 2^60 above a table that waits for a disk that is full.
#[test]
fn w3_a_scan_passes_a_sequence_of_great_ids_above_a_table_in_steps() {
    let mut set = set(Order::Rising, 64);
    let ids = FIRST..FIRST + 200;
    ids.clone().for_each(|id| count(&mut set, id));
    memory_max(&mut set, 1);
    let Some(Job::Spill(job)) = set.next_job() else { panic!("a table is to be written") };
    let serial = job.serial;
    drop(job);
    set.abort_spill(serial);
    let late = FIRST - 20_000..FIRST;
    late.clone().for_each(|id| count(&mut set, id));
    let (mut cursor, mut found) = (0, Vec::new());
    loop {
        let scan = set.scan(cursor, 1, &Fetched::none()).unwrap();
        assert!(scan.ids.len() <= 64, "{} ids at once", scan.ids.len());
        found.extend(scan.ids);
        cursor = scan.next;
        if cursor == 0 {
            break;
        }
    }
    found.sort_unstable();
    found.dedup();
    assert!(found == late.chain(ids).collect::<Vec<_>>(), "{} ids", found.len());
    assert_eq!(check_all(&mut set, &Disk::default()), Vec::<String>::new());
}

#[test]
fn w3_no_step_of_a_scan_has_more_values_than_a_reply() {
    const FIELDS: usize = 256;
    const IDS: u64 = 4_000;
    let field = |number: usize| Field::parse(format!("f{number}").as_bytes(), b"1").unwrap();
    // With a small table, records are in slots; with a large one, they wait in a dictionary.
    for table_slots in [2_048, 1 << 20] {
        let mut disk = Disk::default();
        let options = Options { table_slots, ..Options::default() };
        let mut set = CounterSet::new(Schema::new((0..FIELDS).map(field).collect()).unwrap(), options, 7).unwrap();
        let add = |set: &mut CounterSet, id: u64, number: u8| {
            set.increment(Mode::Decide, id, &[(number, 1)], &Fetched::none(), &mut Vec::new())
        };
        // A page of values in the first column alone has a thousand records, and a reply has all columns.
        (0..IDS).for_each(|id| add(&mut set, id, 0).unwrap());
        let find_all = |set: &CounterSet, disk: &Disk| {
            let (found, _) = scan_all(set, disk, crate::VALUES_MAX / FIELDS);
            assert!(found.iter().copied().eq(0..IDS), "{} ids", found.len());
        };
        find_all(&set, &disk);
        if table_slots < IDS {
            memory_max(&mut set, 1);
            let job = set.next_job().expect("a table is to be written");
            assert!(!disk.run(&mut set, job));
            find_all(&set, &disk);
            // In an overlay.
            let all: Vec<(u8, i64)> = (0..=u8::MAX).map(|number| (number, 1)).collect();
            (0..1_500).for_each(|id| set.set(Mode::Decide, id, &all, &Fetched::none()).unwrap());
            find_all(&set, &disk);
        }
    }
}
