//! Sets of many tables: the tables that each command visits are counted. And the merges of a set that is over its memory.

mod bounds;
mod costs;
mod fetched;
mod kept;
mod left;
mod overlays;
mod pieces;
mod serials;
mod small;

use super::{CounterSet, Job, Mode};
use crate::cold::{Fetched, FileId, Folded, PAGE_BYTES, Page, PageFault, PageRef};
use crate::options::{Options, Order};
use crate::schema::{Field, Schema};
use crate::{Change, Figure, Figures, Refusal};
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

thread_local! {
    static VISITED: Cell<usize> = const { Cell::new(0) };
}

/// A table by range was visited.
pub(super) fn visited() {
    VISITED.set(VISITED.get() + 1);
}

fn visits<T>(of: impl FnOnce() -> T) -> (T, usize) {
    let before = VISITED.get();
    let done = of();
    (done, VISITED.get() - before)
}

/// Files in memory.
#[derive(Default)]
struct Disk(HashMap<FileId, Vec<Box<[u8; PAGE_BYTES]>>>);

impl crate::PageFiles for Disk {
    fn create(&mut self) -> Result<(FileId, String), String> {
        let file = FileId(1 + self.0.len() as u64);
        self.0.insert(file, Vec::new());
        Ok((file, file.0.to_string()))
    }

    fn append(&mut self, file: FileId, page: &[u8; PAGE_BYTES]) -> Result<(), String> {
        self.0.get_mut(&file).ok_or("no such file")?.push(Box::new(*page));
        Ok(())
    }

    fn finish(&mut self, _: FileId) -> Result<(), String> {
        Ok(())
    }
}

impl Disk {
    fn read(&self, page: PageRef) -> Result<Page, PageFault> {
        let bytes = self.0.get(&page.file).and_then(|pages| pages.get(page.page as usize));
        Page::open(page, bytes.ok_or(PageFault::Missing)?.clone())
    }

    fn fetch(&self, page: PageRef) -> Fetched {
        [(page, self.read(page))].into_iter().collect()
    }

    /// Carries out a job. Returns whether it was a merge.
    fn run(&mut self, set: &mut CounterSet, job: Job) -> bool {
        let (file, mut pages) = (FileId(1 + self.0.len() as u64), Vec::new());
        let mut write = |page: &[u8; PAGE_BYTES]| {
            pages.push(Box::new(*page));
            Ok::<(), String>(())
        };
        match job {
            Job::Spill(job) => {
                let (serial, index) = (job.serial, job.write(file, &mut write).unwrap());
                drop(job);
                self.0.insert(file, pages);
                assert!(set.finish_spill(serial, file, file.0.to_string(), index).is_some());
                false
            }
            Job::Merge(serial, job) => {
                let merged = job.run(file, &mut |page| self.read(page), &mut write).unwrap();
                self.0.insert(file, pages);
                assert!(set.finish_merge(serial, file.0.to_string(), merged).is_ok());
                true
            }
        }
    }
}

fn set(order: Order, table_slots: u64) -> CounterSet {
    set_with(Options { order, table_slots, ..Options::default() })
}

fn set_with(options: Options) -> CounterSet {
    let fields =
        [("a", "20"), ("b", "i12")].map(|(name, width)| Field::parse(name.as_bytes(), width.as_bytes()).unwrap());
    CounterSet::new(Schema::new(fields.into()).unwrap(), options, 7).unwrap()
}

fn fill(set: &mut CounterSet, ids: std::ops::Range<u64>) {
    for id in ids {
        set.increment(Mode::Decide, id, &[(0, 1 + id.cast_signed())], &Fetched::none(), &mut Vec::new()).unwrap();
    }
}

fn memory_max(set: &mut CounterSet, bytes: u64) {
    set.alter(Change::Option(b"MEMORY_MAX".to_vec(), bytes.to_string().into_bytes())).unwrap();
}

/// Tables of a few ids each, of which so many are in files.
fn many(tables: usize, cold: usize, disk: &mut Disk) -> CounterSet {
    let mut set = set(Order::Rising, 16);
    let mut next = 0;
    while set.tables(0, tables).len() < tables {
        fill(&mut set, next..next + 10);
        next += 10;
    }
    memory_max(&mut set, 1);
    for _ in 0..cold {
        let job = set.next_job().expect("a table is to be written");
        assert!(!disk.run(&mut set, job));
    }
    memory_max(&mut set, 0);
    set
}

fn figure(figures: &Figures, name: &str) -> i64 {
    match figures.iter().find(|(known, _)| *known == name) {
        Some((_, Figure::Number(number))) => *number,
        other => panic!("{name}: {other:?}"),
    }
}

const TABLES: usize = 2_000;

/// Ids for which a table has no slot: their search would be too long, or they are late and it is full.
#[test]
fn w2_ids_without_a_slot_are_in_the_extend_dictionary() {
    const SLOTS: u64 = 1 << 10;
    let reads_all = |set: &mut CounterSet, end: u64| {
        (0..end).all(|id| set.read_field(id, 0, &Fetched::none()) == Ok(1 + id.cast_signed()))
    };
    for order in [Order::Rising, Order::Random] {
        let mut set = set_with(Options { order, table_slots: SLOTS, probe_max: 1, ..Options::default() });
        fill(&mut set, 0..SLOTS * 3 / 4);
        let extend = set.totals().extend;
        assert!(extend > 0 && extend < SLOTS / 4, "{order:?}: {extend}, with a quarter of the slots free");
        assert!(reads_all(&mut set, SLOTS * 3 / 4), "{order:?}");
    }
    let mut set = set(Order::Rising, SLOTS);
    (0..SLOTS).for_each(|id| fill(&mut set, 2 * id..2 * id + 1));
    assert_eq!((set.tables(0, 3).len(), set.totals().extend), (2, 0), "the first table is full");
    (0..SLOTS / 2).for_each(|id| fill(&mut set, 2 * id + 1..2 * id + 2));
    assert_eq!(set.tables(0, 3).len(), 2, "late ids begin no table");
    assert!(set.totals().extend > SLOTS / 4, "{}", set.totals().extend);
    assert!(reads_all(&mut set, SLOTS));
}

#[test]
fn w2_tables_are_shown_without_visiting_the_others() {
    let mut disk = Disk::default();
    let set = many(TABLES, 700, &mut disk);
    let all = set.tables(0, usize::MAX);
    assert!(all.len() >= TABLES && all.is_sorted_by(|one, next| figure(one, "first_id") < figure(next, "first_id")));
    for (from, count) in [(0, 10), (695, 20), (1_990, 1_000), (u32::MAX, 5)] {
        let (shown, visited) = visits(|| set.tables(from, count));
        let begin = all.len().min(from as usize);
        assert_eq!(shown, all[begin..all.len().min(begin + count)]);
        assert_eq!(visited, shown.len());
    }
    let (totals, visited) = visits(|| set.totals());
    assert_eq!((totals.hot_tables, totals.cold_tables, visited), (all.len() - 700, 700, all.len()));
    assert_eq!(totals.memory_bytes, set.memory_bytes());
    let tables: i64 = all.iter().map(|table| figure(table, "memory_bytes")).sum();
    assert_eq!(totals.memory_bytes, tables as usize + set.other_bytes());
}

#[test]
fn w2_a_scan_visits_only_the_tables_it_meets() {
    let mut disk = Disk::default();
    let set = many(TABLES, 300, &mut disk);
    let (mut ids, mut cursor, mut fetched, mut calls) = (Vec::new(), 0, Fetched::none(), 0);
    loop {
        let (scan, visited) = visits(|| set.scan(cursor, 50, &fetched));
        calls += 1;
        assert!(visited <= 64, "{visited} tables for a page");
        match scan {
            Ok(scan) => {
                ids.extend(scan.ids);
                cursor = scan.next;
            }
            Err(page) => fetched = disk.fetch(page.expect("no damage")),
        }
        if cursor == 0 && !ids.is_empty() {
            break;
        }
    }
    assert!(ids.is_sorted_by(|one, next| one < next) && ids.len() > 10 * TABLES && calls > 300);
    assert_eq!(ids.len() as u64, set.totals().ids);
}

#[test]
fn w3_a_check_visits_one_table_in_a_step() {
    let mut disk = Disk::default();
    let mut set = many(TABLES, 300, &mut disk);
    let bad = FileId(100);
    disk.0.get_mut(&bad).unwrap()[0][77] ^= 1;
    let run = |set: &mut CounterSet, disk: &Disk| {
        let (mut cursor, mut fetched, mut faults) = (0, Fetched::none(), Vec::new());
        loop {
            let (checked, visited) = visits(|| set.check(cursor, &fetched));
            assert!(visited <= 2, "{visited} tables in a step");
            match checked {
                Ok((next, found)) => {
                    faults.extend(found);
                    cursor = next;
                    if cursor == 0 {
                        return faults;
                    }
                }
                Err(page) => fetched = disk.fetch(page),
            }
        }
    };
    let faults = run(&mut set, &disk);
    assert!(faults.len() == 1 && faults[0].starts_with("DAMAGED page 0 of 100"), "{faults:?}");
    assert_eq!(set.totals().damaged, 1);
    disk.0.get_mut(&bad).unwrap()[0][77] ^= 1;
    assert_eq!((run(&mut set, &disk), set.totals().damaged), (Vec::new(), 0), "its page was put right");
}

#[test]
fn w2_a_check_sees_tables_out_of_order() {
    let mut set = many(5, 0, &mut Disk::default());
    let super::Tables::Rising(rising) = &mut set.tables else { panic!("a set by range") };
    rising.parts[3].first = rising.parts[2].first;
    let (mut cursor, mut faults) = (0, Vec::new());
    loop {
        let (next, found) = set.check(cursor, &Fetched::none()).unwrap();
        faults.extend(found.into_iter().filter(|fault| fault.contains("table")));
        cursor = next;
        if cursor == 0 {
            break;
        }
    }
    assert!(faults.contains(&"the tables 2 and 3 are not in order".to_owned()), "{faults:?}");
}

#[test]
fn w2_tables_by_hash_are_met_by_their_serials() {
    let mut set = set(Order::Random, 16);
    for id in 0..20_000 {
        fill(&mut set, id..id + 1);
        if id % 500 == 0 {
            set.step(0);
            let shown: Vec<i64> = set.tables(0, usize::MAX).iter().map(|table| figure(table, "serial")).collect();
            assert!(shown.is_sorted_by(|one, next| one < next));
            assert_eq!(shown.len(), set.totals().hot_tables);
            let used: i64 = set.tables(0, usize::MAX).iter().map(|table| figure(table, "used")).sum();
            let extend: i64 = set.tables(0, usize::MAX).iter().map(|table| figure(table, "extend_ids")).sum();
            assert_eq!((used + extend) as u64, set.totals().ids);
        }
    }
    let middle = figure(&set.tables(700, 1)[0], "serial");
    assert!(middle >= 700 && set.tables(middle as u32, 5).len() == 5);
    // A restored tree has its paths too.
    let (mut pieces, mut restored) = (Vec::new(), None);
    set.dump(&mut |_| unreachable!(), &mut |piece| pieces.push(piece.to_vec())).unwrap();
    for piece in pieces {
        CounterSet::restore(&mut restored, Mode::Decide, &piece, &mut NoFiles).unwrap();
    }
    let restored = restored.unwrap();
    let mut found = BTreeMap::new();
    restored.for_each(&mut |_| unreachable!(), |folded| match folded {
        Folded::Record(id, record) => drop(found.insert(id, record.get(0))),
        other => panic!("{other:?}"),
    });
    assert!(found.iter().map(|(id, value)| (*id, *value)).eq((0..20_000_u64).map(|id| (id, 1 + id.cast_signed()))));
}

struct NoFiles;

impl crate::PageFiles for NoFiles {
    fn create(&mut self) -> Result<(FileId, String), String> {
        Err("no files".into())
    }

    fn append(&mut self, _: FileId, _: &[u8; PAGE_BYTES]) -> Result<(), String> {
        Err("no files".into())
    }

    fn finish(&mut self, _: FileId) -> Result<(), String> {
        Err("no files".into())
    }
}

#[test]
fn w3_the_next_job_visits_each_table_once() {
    let mut disk = Disk::default();
    let mut set = many(TABLES, 100, &mut disk);
    let tables = set.totals().hot_tables + set.totals().cold_tables;
    memory_max(&mut set, 1);
    let (job, visited) = visits(|| set.next_job());
    assert_eq!(visited, tables);
    let Some(Job::Spill(job)) = job else { panic!("a table is to be written") };
    let serial = job.serial;
    assert_eq!(serial, 100, "the lowest one");
    drop(job);
    set.abort_spill(serial);
    // A write to each of two ids of one file: that is more than 5 percent.
    memory_max(&mut set, 0);
    for id in set_ids(&set, 40) {
        set.increment(Mode::Apply, id, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
    }
    let (job, visited) = visits(|| set.next_job());
    assert!(matches!(job, Some(Job::Merge(40, _))), "{job:?}");
    assert_eq!(visited, tables);
}

/// Some ids of the table with this serial.
fn set_ids(set: &CounterSet, serial: u32) -> [u64; 2] {
    let first = figure(&set.tables(serial, 1)[0], "first_id") as u64;
    [first, first + 1]
}

/// Two tables in files and one in memory, which is all that can be written of it.
fn two_files(disk: &mut Disk) -> (CounterSet, u64) {
    let mut set = set(Order::Rising, 32_768);
    fill(&mut set, 0..70_000);
    memory_max(&mut set, 1);
    for _ in 0..2 {
        let job = set.next_job().expect("a table is to be written");
        assert!(!disk.run(&mut set, job));
    }
    assert!(set.next_job().is_none(), "nothing was written to files yet");
    let second = figure(&set.tables(1, 1)[0], "first_id") as u64;
    (set, second)
}

/// A replica adds to ids whose pages it does not read.
fn add(set: &mut CounterSet, ids: std::ops::Range<u64>) {
    for id in ids {
        set.increment(Mode::Apply, id, &[(0, 1), (1, -1)], &Fetched::none(), &mut Vec::new()).unwrap();
    }
}

#[test]
fn w3_a_set_that_is_over_its_memory_merges_its_largest_overlay() {
    let mut disk = Disk::default();
    let (mut set, second) = two_files(&mut disk);
    let overlays =
        |set: &CounterSet| -> Vec<i64> { set.tables(0, 2).iter().map(|table| figure(table, "overlay_ids")).collect() };
    add(&mut set, 0..400);
    assert!(set.next_job().is_none(), "it is too small to be worth a file");
    add(&mut set, 400..1_000);
    add(&mut set, second..second + 1_200);
    assert_eq!(overlays(&set), [1_000, 1_200], "less than 5 percent each");
    memory_max(&mut set, 1 << 40);
    assert!(set.next_job().is_none(), "there is memory");
    memory_max(&mut set, 1);
    let job = set.next_job();
    assert!(matches!(job, Some(Job::Merge(1, _))), "{job:?}");
    assert!(set.next_job().is_none(), "one at a time");
    disk.run(&mut set, job.unwrap());
    assert_eq!(overlays(&set), [1_000, 0]);
    let job = set.next_job().expect("the other one");
    disk.run(&mut set, job);
    assert!(overlays(&set) == [0, 0] && set.next_job().is_none());
    // So writes to cold ids are bounded, though each overlay stays below 5 percent.
    let idle = set.memory_bytes();
    for round in 0..20 {
        add(&mut set, round * 200..round * 200 + 200);
        add(&mut set, second + round * 200..second + round * 200 + 200);
        while let Some(job) = set.next_job() {
            assert!(disk.run(&mut set, job), "a merge");
        }
        assert!(set.memory_bytes() < idle + (256 << 10), "{} bytes more", set.memory_bytes() - idle);
    }
    // A table that can be moved gives back more than an overlay.
    fill(&mut set, 70_000..100_000);
    add(&mut set, 0..1_000);
    let job = set.next_job();
    assert!(matches!(job, Some(Job::Spill(_))), "{job:?}");
}

#[test]
fn w3_a_table_that_could_not_be_written_is_written_later_whatever_memory_the_set_may_have() {
    let mut disk = Disk::default();
    let mut set = set(Order::Rising, 32_768);
    fill(&mut set, 0..70_000);
    memory_max(&mut set, 1);
    let Some(Job::Spill(job)) = set.next_job() else { panic!("a table is to be written") };
    let serial = job.serial;
    drop(job);
    memory_max(&mut set, 0);
    assert!(set.next_job().is_none(), "it is being written");
    set.abort_spill(serial);
    let job = set.next_job().expect("its slots no longer change");
    assert!(!disk.run(&mut set, job));
    assert_eq!((set.totals().cold_tables, set.next_job().is_none()), (1, true), "the others stay");
}

#[test]
fn w3_a_page_that_cannot_be_read_now_is_not_damaged() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    let file = set.files()[0].0;
    let page = PageRef { file, page: 0 };
    let unread = || Err::<Page, _>(PageFault::Unread("EIO".to_owned()));
    let failing: Fetched = [(page, unread())].into_iter().collect();
    let refused = Refusal::Unreadable { file: file.0.to_string(), page: 0, why: "EIO".to_owned() };
    assert_eq!(set.read_field(1, 0, &failing), Err(refused.clone()));
    let increment =
        |set: &mut CounterSet, fetched: &Fetched| set.increment(Mode::Decide, 1, &[(0, 1)], fetched, &mut Vec::new());
    assert_eq!(increment(&mut set, &failing), Err(refused.clone()));
    assert_eq!(set.scan(0, 10, &failing), Err(Err(refused.clone())));
    let (next, faults) = set.check(0, &failing).unwrap();
    assert_eq!((next != 0, faults), (true, vec!["IOERR page 0 of 1 cannot be read: EIO".to_owned()]));
    assert!(set.dump(&mut |_| unread(), &mut |_| {}).is_err());
    // The same page can be read the next time.
    assert_eq!((increment(&mut set, &disk.fetch(page)), set.totals().damaged), (Ok(()), 0));
    assert_eq!(set.read_field(1, 0, &Fetched::none()), Ok(3));
    // A merge does not leave out its records.
    add(&mut set, 0..5_000);
    let Some(Job::Merge(serial, job)) = set.next_job() else { panic!("a merge is due") };
    let write = &mut |_: &[u8; PAGE_BYTES]| Ok::<(), String>(());
    assert_eq!(job.run(FileId(9), &mut |_| unread(), write).unwrap_err(), "it cannot be read: EIO");
    set.abort_merge(serial);
    assert_eq!(set.read_field(2, 0, &disk.fetch(page)), Ok(4));
    // An operator gives the page up: it is damaged, and nothing waits for it any more.
    let (_, faults) = set.give_up(0, &failing).unwrap();
    assert!(faults.iter().any(|fault| fault.starts_with("DAMAGED page 0 of 1 ")), "{faults:?}");
    assert_eq!(set.totals().damaged, 1);
    let mut read = |wanted: PageRef| if wanted == page { unread() } else { disk.read(wanted) };
    set.dump(&mut read, &mut |_| {}).unwrap();
    let Some(Job::Merge(_, job)) = set.next_job() else { panic!("the merge is due again") };
    assert_eq!(job.run(FileId(9), &mut read, write).unwrap().damaged_pages().collect::<Vec<_>>(), [0]);
    // A later check that can read it forgets the damage.
    set.check(0, &disk.fetch(page)).unwrap();
    assert_eq!(set.totals().damaged, 0);
}

#[test]
fn w3_a_merge_drops_what_is_retired() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    add(&mut set, 0..1_000);
    set.alter(Change::Add(Field::parse(b"c", b"8").unwrap())).unwrap();
    set.alter(Change::Retire(b"a".to_vec())).unwrap();
    for id in 500..1_500 {
        set.increment(Mode::Apply, id, &[(2, 5)], &Fetched::none(), &mut Vec::new()).unwrap();
    }
    let job = set.next_job().expect("a merge");
    // It is dropped by the next merge: this one knows nothing of it.
    set.alter(Change::Retire(b"b".to_vec())).unwrap();
    let Job::Merge(0, merge) = &job else { panic!("{job:?}") };
    let old = merge.file();
    disk.run(&mut set, job);
    let file = FileId(disk.0.len() as u64);
    assert_ne!(file, old);
    let mut found = BTreeMap::new();
    for page in 0..disk.0[&file].len() as u32 {
        found.extend(disk.read(PageRef { file, page }).unwrap().records().unwrap());
    }
    assert_eq!(found.len(), 1_500, "the others had values of the retired field alone");
    for (id, record) in found {
        let expected = [0, if id < 1_000 { -1 } else { 0 }, if id >= 500 { 5 } else { 0 }];
        assert_eq!([0, 1, 2].map(|number| record.get(number)), expected, "id {id}");
    }
    assert_eq!(set.check(0, &disk.fetch(PageRef { file, page: 0 })).unwrap().1, Vec::<String>::new());
}

/// Strays are in no file. Many of them leave half of `MEMORY_MAX` to tables, so that these do not move to files one right after the other.
#[test]
fn w3_strays_leave_half_of_the_memory_to_tables() {
    let mut disk = Disk::default();
    let mut set = set(Order::Rising, 1 << 12);
    fill(&mut set, 1..20_000);
    for step in 0..6_000 {
        let usual = 20_000 + 2 * step;
        fill(&mut set, usual..usual + 2);
        fill(&mut set, (1 << 62) + step..(1 << 62) + step + 1);
    }
    let tables = set.tables(0, 100);
    let table_bytes = figure(&tables[0], "memory_bytes") as usize;
    let strays_bytes = figure(&tables[tables.len() - 1], "memory_bytes") as usize - table_bytes;
    assert!(set.totals().extend >= 6_000 && strays_bytes > 6 * table_bytes, "{strays_bytes}, {table_bytes}");
    memory_max(&mut set, strays_bytes as u64);
    let mut spilled = 0;
    while let Some(job) = set.next_job() {
        disk.run(&mut set, job);
        spilled += 1;
    }
    let hot = set.totals().hot_tables;
    assert!(spilled > 0 && (2..=4).contains(&hot), "{spilled} in files, {hot} in memory");
    memory_max(&mut set, 1);
    assert!(set.next_job().is_some(), "a bound below the strays moves all tables");
}
