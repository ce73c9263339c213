//! What readers have found on pages, while the set changes.

use super::*;
use crate::cold::Need;

fn search(disk: &Disk, needs: &[Need]) -> Fetched {
    let mut fetched = Fetched::none();
    for needs in needs.chunk_by(|one, next| one.page == next.page) {
        fetched.append(Fetched::of(needs[0].page, needs, disk.read(needs[0].page)));
    }
    fetched
}

/// What a command on these ids finds once it has waited.
fn found(set: &mut CounterSet, disk: &Disk, ids: &[u64]) -> Fetched {
    let needs = set.unread(ids.iter().copied(), &Fetched::none());
    assert!(!needs.is_empty());
    search(disk, &needs)
}

fn values(set: &mut CounterSet, ids: &[u64], fetched: &Fetched) -> Result<Vec<i64>, Refusal> {
    let mut values = Vec::new();
    set.read_many(ids, fetched, &mut values).map(|()| values)
}

#[test]
fn w3_a_command_names_the_ids_to_search_on_each_page() {
    let mut disk = Disk::default();
    let (mut set, second) = two_files(&mut disk);
    let ids = [second + 9, 5, 69_999, 3, 5, second - 1, u64::MAX];
    let needs = set.unread(ids.into_iter(), &Fetched::none());
    // The last table is in memory, with all ids above it.
    assert!(needs.iter().map(|need| need.id).eq([3, 5, second - 1, second + 9].map(Some)), "{needs:?}");
    assert!(needs.is_sorted() && needs[0].page == needs[1].page && needs[2].page != needs[0].page, "{needs:?}");
    let fetched = search(&disk, &needs[1..]);
    assert_eq!(fetched.len(), 3, "a record for each, and no page");
    assert_eq!(set.unread(ids.into_iter(), &fetched), needs[..1]);
    assert_eq!(set.read_field(3, 0, &fetched), Err(Refusal::Cold));
    assert_eq!(values(&mut set, &[5, second - 1, 5], &fetched), Ok(vec![6, 0, second as i64, 0, 6, 0]));
}

#[test]
fn w3_what_was_found_stays_below_what_is_written_meanwhile() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    let fetched = found(&mut set, &disk, &[1, 2, 3, 4, 5]);
    let none = || Fetched::none();
    // Other commands, between the search and the command: of a client, of a primary, and of both.
    assert_eq!(set.set(Mode::Decide, 1, &[(0, 50), (1, 5)], &none()), Ok(()));
    add(&mut set, 2..4);
    assert_eq!(set.set(Mode::Decide, 3, &[(0, 0), (1, 0)], &none()), Ok(()));
    let other = found(&mut set, &disk, &[4]);
    assert_eq!(set.increment(Mode::Decide, 4, &[(0, 10)], &other, &mut Vec::new()), Ok(()));
    assert!(set.unread(1..6, &fetched).is_empty());
    assert_eq!(values(&mut set, &[1, 2, 3, 4, 5], &fetched), Ok(vec![50, 5, 4, -1, 0, 0, 15, 0, 6, 0]));
    // The command itself counts once, above all of it.
    for id in 1..6 {
        assert_eq!(set.increment(Mode::Decide, id, &[(0, 100)], &fetched, &mut Vec::new()), Ok(()));
    }
    assert_eq!(values(&mut set, &[1, 2, 3, 4, 5], &none()), Ok(vec![150, 5, 104, -1, 100, 0, 115, 0, 106, 0]));
}

#[test]
fn w3_what_was_found_in_a_file_that_was_replaced_is_no_answer() {
    let mut disk = Disk::default();
    let (mut set, second) = two_files(&mut disk);
    let ids = [7, second + 7];
    let fetched = found(&mut set, &disk, &ids);
    add(&mut set, 0..5_000);
    let job = set.next_job().expect("a merge");
    assert!(disk.run(&mut set, job));
    // The record of the old file lacks what the merge has put into the new one.
    assert_eq!(set.read_field(7, 0, &fetched), Err(Refusal::Cold));
    assert_eq!(set.increment(Mode::Decide, 7, &[(0, 1)], &fetched, &mut Vec::new()), Err(Refusal::Cold));
    let needs = set.unread(ids.into_iter(), &fetched);
    let file = set.files()[0].0;
    assert!(matches!(needs[..], [Need { page, id: Some(7) }] if page.file == file), "{needs:?}");
    let mut both = search(&disk, &needs);
    both.append(fetched);
    assert_eq!(values(&mut set, &ids, &both), Ok(vec![9, -1, second as i64 + 8, 0]));
}

#[test]
fn w3_what_was_found_is_read_by_the_schema_of_the_moment() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    let fetched = found(&mut set, &disk, &[7]);
    set.alter(Change::Add(Field::parse(b"c", b"8").unwrap())).unwrap();
    assert_eq!(values(&mut set, &[7], &fetched), Ok(vec![8, 0, 0]));
    assert_eq!(set.increment(Mode::Decide, 7, &[(2, 4)], &fetched, &mut Vec::new()), Ok(()));
    set.alter(Change::Retire(b"a".to_vec())).unwrap();
    assert_eq!(values(&mut set, &[7], &fetched), Ok(vec![0, 4]));
    assert!(set.increment(Mode::Decide, 7, &[(0, 4)], &fetched, &mut Vec::new()).is_err());
}

#[test]
fn w3_what_was_found_on_a_page_that_is_damaged_now_is_refused() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    let fetched = found(&mut set, &disk, &[1, 2]);
    let page = PageRef { file: set.files()[0].0, page: 0 };
    let failing: Fetched = [(page, Err(PageFault::Checksum))].into_iter().collect();
    let (_, faults) = set.check(0, &failing).unwrap();
    assert!(faults.iter().any(|fault| fault.starts_with("DAMAGED page 0 ")), "{faults:?}");
    assert!(matches!(set.read_field(1, 0, &fetched), Err(Refusal::Damaged(_))));
    assert!(set.unread([1, 2].into_iter(), &fetched).is_empty());
    // A repair has the record of one, and says that the other one is 0.
    assert_eq!(set.repair(Mode::Decide, 0, 1_000, &[1], &[77, 7]), Ok(1));
    assert_eq!(values(&mut set, &[1, 2], &fetched), Ok(vec![77, 7, 0, 0]));
}

#[test]
fn w3_a_page_that_could_not_be_searched_is_remembered_as_the_page_is() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    let needs = set.unread([1].into_iter(), &Fetched::none());
    let page = needs[0].page;
    let unread = || Err::<Page, _>(PageFault::Unread("EIO".to_owned()));
    let failed = Fetched::of(page, &needs, unread());
    assert!(set.unread([1].into_iter(), &failed).is_empty(), "it is not read again for this command");
    assert!(matches!(set.read_field(1, 0, &failed), Err(Refusal::Unreadable { page: 0, .. })));
    assert_eq!(set.totals().damaged, 0);
    assert_eq!(set.read_field(1, 0, &search(&disk, &needs)), Ok(2));
    let damaged = Fetched::of(page, &needs, Err(PageFault::Checksum));
    assert!(matches!(set.read_field(1, 0, &damaged), Err(Refusal::Damaged(_))));
    // Without ids the page is kept as a whole.
    let whole = Fetched::of(page, &[Need { page, id: None }], disk.read(page));
    assert!(matches!(whole.get(page), Some(Ok(_))) && whole.len() == 1 && !whole.is_empty());
}

/// The cache may forget a record between the moment when a command is found to have all it needs, and the moment when it runs.
#[test]
fn w3_a_command_takes_along_what_the_cache_has() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    set.alter(Change::Option(b"CACHE_BYTES".to_vec(), b"4096".to_vec())).unwrap();
    let first = found(&mut set, &disk, &[1]);
    assert_eq!(set.read_field(1, 0, &first), Ok(2));
    let ids = [1, 5_000];
    let needs = set.unread(ids.into_iter(), &Fetched::none());
    assert!(matches!(needs[..], [Need { id: Some(5_000), .. }]), "the other one is in the cache: {needs:?}");
    let mut fetched = search(&disk, &needs);
    assert!(set.gather(ids.into_iter(), &mut fetched).is_empty());
    let counts = |set: &CounterSet| (set.totals().cache_hits, set.totals().cache_misses);
    assert_eq!((fetched.len(), counts(&set)), (2, (0, 1)));
    assert_eq!(values(&mut set, &ids, &fetched), Ok(vec![2, 0, 5_001, 0]));
    assert_eq!(counts(&set), (1, 2), "each counts as what it was");
    // Other commands read more records than the cache has room for.
    let others: Vec<u64> = (10_000..11_000).collect();
    for some in others.chunks(crate::IDS_MAX) {
        let read = found(&mut set, &disk, some);
        values(&mut set, some, &read).unwrap();
    }
    // Each step adds pending records to the cache.
    (0..20).for_each(|_| {
        set.step(0);
    });
    assert_eq!(set.unread([1].into_iter(), &Fetched::none()).len(), 1, "the cache has forgotten it");
    assert!(set.unread(ids.into_iter(), &fetched).is_empty());
    assert_eq!(values(&mut set, &ids, &fetched), Ok(vec![2, 0, 5_001, 0]));
}

/// A command that has waited locates its ids once: it is complete when all that it needed was read, unless a file was replaced meanwhile.
#[test]
fn w3_a_command_is_complete_when_all_was_read_and_no_file_was_replaced() {
    let mut disk = Disk::default();
    let (mut set, second) = two_files(&mut disk);
    set.alter(Change::Option(b"CACHE_BYTES".to_vec(), b"65536".to_vec())).unwrap();
    let first = found(&mut set, &disk, &[1, 2, 3]);
    values(&mut set, &[1, 2, 3], &first).unwrap();
    let ids: Vec<u64> = (0..350).map(|n| n * 7 % 1_000).chain(69_000..69_150).chain([second + 5, 1]).collect();
    let mut fetched = Fetched::none();
    let needs = set.first_unread(&ids, &mut fetched);
    assert!(needs.len() > 300 && !set.is_complete(&fetched), "nothing was read yet");
    // Another command writes an id of this one.
    add(&mut set, 14..15);
    fetched.append(search(&disk, &needs));
    assert!(set.is_complete(&fetched) && set.unread(ids.iter().copied(), &fetched).is_empty());
    let expected = |id: u64, set: &mut CounterSet| {
        let alone = set.unread([id].into_iter(), &Fetched::none());
        let mut values = Vec::new();
        set.read(id, &search(&disk, &alone), &mut values).map(|()| values).unwrap()
    };
    let all = values(&mut set, &ids, &fetched).unwrap();
    for (id, values) in ids.iter().zip(all.chunks(2)) {
        assert_eq!(values, expected(*id, &mut set), "{id}");
    }
    add(&mut set, 0..5_000);
    let job = set.next_job().expect("a merge");
    assert!(disk.run(&mut set, job));
    assert!(!set.is_complete(&fetched));
    let needs = set.gather(ids.iter().copied(), &mut fetched);
    assert!(!needs.is_empty() && !set.is_complete(&fetched));
    fetched.append(search(&disk, &needs));
    assert!(set.is_complete(&fetched));
}

/// A page that fails gives no records: the command locates its ids again, and finds that the page is known.
#[test]
fn w3_a_command_whose_page_fails_is_complete_when_it_locates_its_ids_again() {
    let mut disk = Disk::default();
    let (mut set, _) = two_files(&mut disk);
    let mut fetched = Fetched::none();
    let needs = set.first_unread(&[1, 5], &mut fetched);
    assert_eq!(needs.len(), 2);
    fetched.append(Fetched::of(needs[0].page, &needs, Err(PageFault::Checksum)));
    assert!(!set.is_complete(&fetched));
    assert_eq!(set.gather([1, 5].into_iter(), &mut fetched), []);
    assert!(set.is_complete(&fetched));
    assert!(matches!(set.read_field(1, 0, &fetched), Err(Refusal::Damaged(_))));
}
