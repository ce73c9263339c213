//! A cold table, its merges, its damage and its dumps against a plain map.

use super::*;
use crate::refusal::{Damage, Refusal};
use crate::schema::{Field, Schema};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// A field of each number.
fn schema() -> Schema {
    let fields = (0..=u8::MAX).map(|number| Field::parse(format!("f{number}").as_bytes(), b"1"));
    Schema::new(fields.collect::<Result<_, _>>().unwrap()).unwrap()
}

/// A cold table, the files of its host, and the plain map that it must equal.
struct Bench {
    table: ColdTable,
    cache: RecordCache,
    files: HashMap<FileId, Vec<Bytes>>,
    next_file: u64,
    job: Option<MergeJob>,
    plain: BTreeMap<u64, Record>,
    /// Ids whose records may be lost.
    suspect: Vec<RangeInclusive<u64>>,
    /// The bits that were changed: file, page, bit.
    changed: Vec<(FileId, usize, usize)>,
}

fn open(files: &HashMap<FileId, Vec<Bytes>>, place: PageRef) -> Result<Page, PageFault> {
    let bytes = files.get(&place.file).and_then(|pages| pages.get(place.page as usize));
    Page::open(place, bytes.ok_or(PageFault::Missing)?.clone())
}

/// The page to read before an id can be read.
fn page_needed(table: &ColdTable, id: u64, fetched: &Fetched, cache: &RecordCache) -> Option<PageRef> {
    match table.base_of(id, fetched, cache) {
        Base::OnPage(page) => Some(page),
        Base::Known | Base::Cached(_) => None,
    }
}

fn read(table: &mut ColdTable, id: u64, fetched: &Fetched, cache: &mut RecordCache) -> Result<Record, Refusal> {
    table.read(id, Source { fetched, cache, keeps: id.is_multiple_of(3) }, Record::clone)
}

impl Bench {
    fn new(plain: BTreeMap<u64, Record>, cache_bytes: usize) -> Bench {
        let (pages, index) = write_file(FileId(1), &plain);
        Bench {
            table: ColdTable::new(FileId(1), "1.pages".into(), index),
            cache: RecordCache::new(cache_bytes),
            files: HashMap::from([(FileId(1), pages)]),
            next_file: 2,
            job: None,
            plain,
            suspect: Vec::new(),
            changed: Vec::new(),
        }
    }

    fn new_file(&mut self) -> FileId {
        self.next_file += 1;
        FileId(self.next_file - 1)
    }

    fn change_plain(&mut self, id: u64, change: impl Fn(i64, u8) -> i64, numbers: impl Iterator<Item = u8>) {
        let record = self.plain.entry(id).or_default();
        numbers.for_each(|number| record.set(number, change(record.get(number), number)));
    }

    /// The record, read as a host does it.
    fn read(&mut self, id: u64) -> Result<Record, Refusal> {
        let needed = page_needed(&self.table, id, &Fetched::none(), &self.cache);
        let known = read(&mut self.table, id, &Fetched::none(), &mut self.cache);
        let Some(place) = needed else {
            assert_ne!(known, Err(Refusal::Cold), "nothing was needed");
            return known;
        };
        assert_eq!(known, Err(Refusal::Cold));
        // With the page, or with what a thread has found on it.
        let need = Need { page: place, id: Some(id) };
        let found = Fetched::of(place, &[need], open(&self.files, place));
        let fetched: Fetched = [(place, open(&self.files, place))].into_iter().collect();
        let [first, second] = if id.is_multiple_of(2) { [&found, &fetched] } else { [&fetched, &found] };
        assert_eq!(page_needed(&self.table, id, first, &self.cache), None);
        let value = read(&mut self.table, id, first, &mut self.cache);
        assert_ne!(value, Err(Refusal::Cold), "one page is enough");
        assert_eq!(read(&mut self.table, id, second, &mut RecordCache::new(0)), value);
        assert_eq!(page_needed(&self.table, id, &Fetched::none(), &RecordCache::new(0)).is_none(), value.is_err());
        value
    }

    fn check_id(&mut self, id: u64) {
        match self.read(id) {
            Ok(record) => assert_eq!(&record, self.plain.get(&id).unwrap_or(&Record::default()), "id {id}"),
            Err(Refusal::Damaged(damage)) => {
                assert!((damage.first..=damage.last).contains(&id), "{id} in {damage:?}");
                assert!(self.suspect.iter().any(|range| range.contains(&id)), "{id} is lost for no reason");
            }
            Err(refusal) => panic!("{refusal}"),
        }
    }

    fn damage(&mut self, place: usize, bit: usize) {
        let file = self.table.file();
        let Some(pages) = self.files.get_mut(&file).filter(|pages| !pages.is_empty()) else { return };
        let page = place % pages.len();
        pages[page][bit / 8] ^= 1 << (bit % 8);
        self.changed.push((file, page, bit));
        let (first, last) = self.table.index().range(page as u32).unwrap();
        self.suspect.push(first..=last);
    }

    /// Undoes what was done to a page of the file.
    fn put_right(&mut self, page: usize) {
        let file = self.table.file();
        let (own, rest) = self.changed.iter().partition(|(of, number, _)| (*of, *number) == (file, page));
        self.changed = rest;
        let own: Vec<(FileId, usize, usize)> = own;
        for (_, _, bit) in own {
            self.files.get_mut(&file).unwrap()[page][bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn end_merge(&mut self, is_written: bool) {
        let Some(job) = self.job.take() else { return };
        if !is_written {
            let written =
                job.run(FileId(0), &mut |place| open(&self.files, place), &mut |_| Err("disk full".to_owned()));
            assert!(written.is_err() || written.is_ok_and(|merged| merged.index().pages() == 0));
            return self.table.abort_merge();
        }
        let file = self.new_file();
        let mut pages = Vec::new();
        let files = &self.files;
        let merged = job.run(file, &mut |place| open(files, place), &mut |page| {
            pages.push(Box::new(*page));
            Ok::<(), String>(())
        });
        let merged = merged.unwrap();
        assert_eq!((merged.index().pages() as usize, merged.file()), (pages.len(), file));
        self.files.insert(file, pages);
        let old = self.table.finish_merge(format!("{}.pages", file.0), merged.clone()).unwrap();
        assert_eq!(old.file, job.file());
        self.files.remove(&old.file);
        assert!(self.table.finish_merge("late".into(), merged).is_err(), "a merge ends once");
    }

    /// Writes a dump, and loads it as another process does.
    fn move_house(&mut self) {
        let (mut records, mut damage, mut held) = (BTreeMap::new(), Vec::new(), Vec::new());
        let view = self.table.view();
        for stretch in 0..view.stretches() {
            let place = PageRef { file: self.table.file(), page: stretch };
            let page = (stretch < self.table.index().pages()).then(|| open(&self.files, place));
            view.fold(stretch, page.as_ref(), &mut |folded| match folded {
                Folded::Record(id, record) => {
                    assert!(view.stretch(stretch).0 <= id && id <= view.stretch(stretch).1);
                    assert!(records.insert(id, record).is_none());
                }
                Folded::Damaged(found) => damage.push(found),
                Folded::Held(id, entry) => held.push((id, entry)),
            })
            .expect("each page is there, or damaged");
        }
        let suspect = std::mem::take(&mut self.suspect);
        *self = Bench { next_file: 100 + self.next_file, ..Bench::new(records, 0) }
            .with_plain(std::mem::take(&mut self.plain));
        self.suspect = suspect;
        damage.iter().for_each(|damage| self.table.add_damage(damage));
        held.into_iter().for_each(|(id, entry)| self.table.restore(id, entry));
        assert_eq!(self.table.damage().collect::<Vec<Damage>>(), damage);
    }

    fn with_plain(self, plain: BTreeMap<u64, Record>) -> Bench {
        Bench { plain, ..self }
    }

    fn check_all(&mut self) {
        let ids: Vec<u64> = self.plain.keys().flat_map(|id| [*id, id.saturating_add(1)]).chain([0, u64::MAX]).collect();
        ids.into_iter().for_each(|id| self.check_id(id));
    }
}

#[test]
fn w3_a_repair_keeps_what_is_known() {
    let record = |value: i64| Record::new(vec![value]);
    let mut bench = Bench::new([(1, record(1)), (2, record(2)), (3, record(3)), (4, record(4))].into(), 0);
    bench.damage(0, 3_000);
    assert!(bench.read(1).is_err_and(|refusal| refusal.to_string().contains("1.pages")));
    bench.table.write(2, record(20));
    bench.table.add_unread(3, &[(0, 30)]);
    bench.job = bench.table.begin_merge(&schema());
    bench.put_right(0);
    bench.table.add_unread(4, &[(0, 40)]);
    let copy = [1, 2, 3].map(|id| (id, record(100 * id as i64))).into();
    assert_eq!(bench.table.repair(0, 9, &copy), 2);
    bench.plain = [(1, record(100)), (2, record(20)), (3, record(300)), (4, record(0))].into();
    bench.check_all();
    bench.end_merge(true);
    bench.check_all();
    bench.job = bench.table.begin_merge(&schema());
    bench.end_merge(true);
    bench.check_all();
    assert_eq!((bench.table.index().records(), bench.table.overlay_len()), (3, 0));
}

proptest! {
    #![proptest_config(config())]

    /// The end of a merge puts the fewer writes to the others, whichever are earlier.
    #[test]
    fn w3_writes_are_put_together_from_both_sides(steps in prop::collection::vec((any::<bool>(), 0..20_u64, 0..3_u8, -9..9_i64), 0..60)) {
        let (mut earlier, mut later) = (Overlay::default(), Overlay::default());
        for (is_later, id, kind, value) in steps {
            let overlay = if is_later { &mut later } else { &mut earlier };
            match kind {
                0 => overlay.insert(id, Entry::Absolute(Record::new(vec![value, 1]))),
                1 => overlay.change(id, |entry| entry.add(0, value)),
                _ => overlay.change(id, |entry| entry.set(1, value)),
            }
        }
        let layered: Vec<_> = (0..20).map(|id| overlay::entry_of(&[&later, &earlier], id)).collect();
        let (mut above, mut below) = (earlier.clone(), later.clone());
        above.append(later);
        below.put_below(earlier);
        for overlay in [above, below] {
            prop_assert_eq!(&(0..20).map(|id| overlay.get(id).cloned()).collect::<Vec<_>>(), &layered);
        }
    }
}

/// A merge leaves the damage of a whole file above the few pages that follow, and a fold takes it in steps.
#[test]
fn w3_no_step_of_a_fold_has_all_damage_of_a_stretch() {
    let record = Record::new(vec![7]);
    let mut bench = Bench::new([(5, record.clone()), (100_000, record)].into(), 0);
    for first in (10..90_000).step_by(30) {
        bench.table.add_damage(&Damage { file: "an older file".into(), page: first as u32, first, last: first + 9 });
        bench.table.write(first + 1, Record::new(vec![1]));
        bench.table.write(first + 20, Record::new(vec![2]));
    }
    let view = bench.table.view();
    let place = PageRef { file: bench.table.file(), page: 0 };
    let (page, mut all, mut from) = (open(&bench.files, place), Vec::new(), 0);
    loop {
        let before = all.len();
        let (fault, next) = view.fold_from(0, from, FOLD_STEP, Some(&page), &mut |folded| all.push(folded)).unwrap();
        assert!(fault.is_none() && all.len() - before <= FOLD_STEP, "{} at once", all.len() - before);
        let Some(next) = next else { break };
        assert!(next > from, "{next}");
        from = next;
    }
    let mut at_once = Vec::new();
    view.fold(0, Some(&page), &mut |folded| at_once.push(folded)).unwrap();
    assert_eq!((all.len(), at_once), (2 + 3 * 3_000, all.clone()));
    let lost = all.iter().filter(|folded| matches!(folded, Folded::Damaged(_))).count();
    let held = all.iter().filter(|folded| matches!(folded, Folded::Held(..))).count();
    assert_eq!((lost, held), (3_000, 3_000));
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    Write(u64, Record),
    Add(u64, Vec<(u8, i64)>),
    Set(u64, Vec<(u8, i64)>),
    BeginMerge,
    EndMerge(bool),
    Damage(usize, usize),
    /// Reads a page again; the bytes may have been put right before.
    Check(usize, bool),
    Repair(u64, u64),
    MoveHouse,
}

fn step() -> impl Strategy<Value = Step> {
    let id = || prop_oneof![6 => 0..400_u64, 2 => 0..5_000_u64, 1 => any::<u64>(), 1 => (u64::MAX - 3)..=u64::MAX];
    let fields = || prop::collection::vec((0..5_u8, prop_oneof![-9..9_i64, any::<i64>()]), 1..4);
    prop_oneof![
        6 => id().prop_map(Step::Read),
        3 => (id(), record()).prop_map(|(id, record)| Step::Write(id, record)),
        6 => (id(), fields()).prop_map(|(id, fields)| Step::Add(id, fields)),
        3 => (id(), fields()).prop_map(|(id, fields)| Step::Set(id, fields)),
        2 => Just(Step::BeginMerge),
        2 => any::<bool>().prop_map(Step::EndMerge),
        1 => (0..9_usize, 0..PAGE_BYTES * 8).prop_map(|(page, bit)| Step::Damage(page, bit)),
        1 => (0..9_usize, any::<bool>()).prop_map(|(page, is_right)| Step::Check(page, is_right)),
        1 => (id(), id()).prop_map(|(one, other)| Step::Repair(one.min(other), one.max(other))),
        1 => Just(Step::MoveHouse),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn w3_a_cold_table_equals_a_plain_map(records in records(), cache in prop_oneof![Just(0), Just(1 << 16)], steps in prop::collection::vec(step(), 0..80)) {
        let mut bench = Bench::new(records, cache);
        for step in steps {
            match step {
                Step::Read(id) => bench.check_id(id),
                Step::Write(id, record) => {
                    bench.table.write(id, record.clone());
                    bench.plain.insert(id, record);
                    bench.check_id(id);
                }
                Step::Add(id, deltas) => {
                    bench.table.add_unread(id, &deltas);
                    for (number, delta) in deltas {
                        bench.change_plain(id, |value, _| value.wrapping_add(delta), std::iter::once(number));
                    }
                }
                Step::Set(id, values) => {
                    bench.table.set_unread(id, &values);
                    for (number, value) in values {
                        bench.change_plain(id, |_, _| value, std::iter::once(number));
                    }
                }
                Step::BeginMerge => {
                    let job = bench.table.begin_merge(&schema());
                    prop_assert_eq!(job.is_none(), bench.job.is_some());
                    bench.job = job.or(bench.job.take());
                }
                Step::EndMerge(is_written) => bench.end_merge(is_written),
                Step::Damage(page, bit) => bench.damage(page, bit),
                Step::Check(page, is_right) => {
                    if is_right {
                        bench.put_right(page);
                    }
                    let (file, page) = (bench.table.file(), page as u32);
                    let read = open(&bench.files, PageRef { file, page });
                    let is_fit = read.is_ok() || page >= bench.table.index().pages();
                    prop_assert_eq!(bench.table.check(page, &read, false).is_ok(), is_fit);
                }
                Step::Repair(first, last) => {
                    let copy = bench.plain.range(first..=last).map(|(id, record)| (*id, record.clone())).collect();
                    bench.table.repair(first, last, &copy);
                    prop_assert!(bench.table.damage().all(|damage| damage.last < first || damage.first > last));
                    bench.check_id(first);
                    bench.check_id(last);
                }
                Step::MoveHouse => {
                    bench.end_merge(true);
                    bench.move_house();
                }
            }
        }
        bench.check_all();
        // With every damage found and repaired, nothing differs.
        for page in 0..bench.table.index().pages() {
            let read = open(&bench.files, PageRef { file: bench.table.file(), page });
            let _ = bench.table.check(page, &read, false);
        }
        let copy = bench.plain.clone();
        bench.table.repair(0, u64::MAX, &copy);
        bench.suspect.clear();
        bench.check_all();
        for _ in 0..2 {
            bench.end_merge(true);
            bench.job = bench.table.begin_merge(&schema());
        }
        bench.end_merge(true);
        bench.check_all();
        bench.plain.retain(|_, record| !record.is_zero());
        prop_assert_eq!(bench.table.index().records(), bench.plain.len() as u64);
        prop_assert_eq!((bench.table.overlay_len(), bench.table.damage().count()), (0, 0));
    }
}
