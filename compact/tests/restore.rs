//! The pieces of a dump, one command each (W4): what may come when, and what a set is between them.

mod disk;

use disk::Disk;
use std::collections::BTreeMap;
use tallystone_compact::*;

type Pieces = Vec<Vec<u8>>;

const SLOTS: u64 = 8_192;
const IDS: u64 = 20_000;

/// What the kinds of pieces are, by their first byte.
const TABLE: u8 = 3;
const SLOTS_KIND: u8 = 5;
const RECORDS: u8 = 6;
const END: u8 = 8;

fn options(order: Order) -> Options {
    Options { order, table_slots: SLOTS, token_window_ms: 60_000, ..Options::default() }
}

/// Two tables and more, with values that need many bytes, so that a table has several pieces.
fn filled(order: Order) -> CounterSet {
    let fields = ["u60", "i60"].iter().enumerate();
    let fields = fields.map(|(number, width)| Field::parse(format!("f{number}").as_bytes(), width.as_bytes()).unwrap());
    let mut set = CounterSet::new(Schema::new(fields.collect()).unwrap(), options(order), 7).unwrap();
    for id in 0..IDS {
        let deltas = [(0, (1 << 58) + id.cast_signed()), (1, -(1 << 57) - id.cast_signed())];
        set.increment(Mode::Decide, id, &deltas, &Fetched::none(), &mut Vec::new()).unwrap();
    }
    // A table that splits counts as three.
    while set.step(0) {}
    for number in 0..9_u64 {
        let text = number.to_le_bytes();
        set.remember(Token { text: &text, time_ms: 1_000_000, content: &[b"1"] });
    }
    set
}

/// Moves the tables to files, lowest first, as many as there are jobs.
fn spill(set: &mut CounterSet, disk: &mut Disk, tables: usize) {
    let memory = |bytes: &str| Change::Option(b"MEMORY_MAX".to_vec(), bytes.as_bytes().to_vec());
    set.alter(memory("1")).unwrap();
    for _ in 0..tables {
        let Some(Job::Spill(job)) = set.next_job() else { panic!("a table is to be written") };
        let (file, name) = disk.create().unwrap();
        let index = job.write(file, &mut |page| disk.append(file, page)).unwrap();
        let serial = job.serial;
        drop(job);
        assert!(set.finish_spill(serial, file, name, index).is_some());
    }
    set.alter(memory("0")).unwrap();
}

fn cold(disk: &mut Disk) -> CounterSet {
    let mut set = filled(Order::Rising);
    spill(&mut set, disk, 2);
    set
}

fn dump(set: &CounterSet, disk: &Disk) -> Pieces {
    let mut pieces = Vec::new();
    set.dump(&mut |page| disk.read(page), &mut |piece| pieces.push(piece.to_vec())).unwrap();
    pieces
}

/// The records, tokens and tables. Where a record lies in a table is local to a process.
fn content(set: &CounterSet, disk: &Disk) -> (BTreeMap<u64, Record>, [usize; 3]) {
    let mut records = BTreeMap::new();
    set.for_each(&mut |page| disk.read(page), |folded| match folded {
        Folded::Record(id, record) => drop(records.insert(id, record)),
        other => panic!("{other:?}"),
    });
    let totals = set.totals();
    (records, [totals.tokens, totals.hot_tables, totals.cold_tables])
}

fn restored(mode: Mode, pieces: &[Vec<u8>], disk: &mut Disk) -> CounterSet {
    let mut set = None;
    for piece in pieces {
        CounterSet::restore(&mut set, mode, piece, disk).unwrap();
    }
    set.expect("the first piece makes it")
}

fn take(set: CounterSet, mode: Mode, piece: &[u8], disk: &mut Disk) -> (CounterSet, Result<(), Refusal>) {
    let mut set = Some(set);
    let taken = CounterSet::restore(&mut set, mode, piece, disk);
    (set.expect("it is there"), taken)
}

fn value(set: &mut CounterSet, id: u64, disk: &Disk) -> i64 {
    let fetched = disk.search(&set.unread([id].into_iter(), &Fetched::none()));
    set.read_field(id, 0, &fetched).unwrap()
}

#[test]
fn w4_a_complete_set_takes_no_piece() {
    let mut disk = Disk::default();
    for order in [Order::Rising, Order::Random] {
        let mut set = filled(order);
        if order == Order::Rising {
            spill(&mut set, &mut disk, 2);
        }
        let pieces = dump(&set, &disk);
        assert!(pieces.len() > 6, "{}", pieces.len());
        let before = content(&set, &disk);
        assert_eq!((before.0.len(), before.1[0]), (IDS as usize, 9));
        let mut set = restored(Mode::Decide, &pieces, &mut disk);
        assert!(!set.is_restoring());
        for piece in &pieces {
            let (kept, taken) = take(set, Mode::Decide, piece, &mut disk);
            set = kept;
            assert_eq!(taken, Err(Refusal::Complete), "a piece of kind {}", piece[0]);
        }
        assert!(content(&set, &disk) == before, "nothing has changed");
        // A set that was created takes none either.
        let (set, taken) = take(filled(order), Mode::Decide, &pieces[1], &mut disk);
        assert!(taken.unwrap_err().to_string().starts_with("BUSYKEY "));
        assert!(!set.is_restoring());
    }
}

#[test]
fn w4_what_a_primary_has_accepted_is_taken() {
    let mut disk = Disk::default();
    let set = cold(&mut disk);
    let (pieces, expected) = (dump(&set, &disk), content(&set, &disk));
    let begin = pieces.iter().rposition(|piece| piece[0] == TABLE).unwrap();
    // A set that came with a snapshot may be one whose later pieces are in the log: the last table comes again.
    let ended: Pieces = pieces[..begin].iter().chain(pieces.last()).cloned().collect();
    let set = restored(Mode::Apply, &ended, &mut disk);
    assert!(!set.is_restoring());
    let late = pieces[begin..].iter().fold(set, |set, piece| {
        let (set, taken) = take(set, Mode::Apply, piece, &mut disk);
        taken.unwrap();
        set
    });
    assert!(!late.is_restoring() && content(&late, &disk) == expected);
}

#[test]
fn w4_a_piece_out_of_order_changes_nothing() {
    let mut disk = Disk::default();
    let set = cold(&mut disk);
    let (pieces, expected) = (dump(&set, &disk), content(&set, &disk));
    let kinds: Vec<u8> = pieces.iter().map(|piece| piece[0]).collect();
    let mut set = restored(Mode::Decide, &pieces[..1], &mut disk);
    for (place, piece) in pieces.iter().enumerate().skip(1) {
        // Records follow the begin of their table, and a table the end of the one before.
        let is_open = matches!(kinds[..place].iter().rfind(|kind| [TABLE, END].contains(kind)), Some(&TABLE));
        let wrong = if is_open { TABLE } else { RECORDS };
        for wrong in [pieces.iter().find(|piece| piece[0] == wrong), pieces.first()] {
            let before = dump(&set, &disk);
            let (kept, taken) = take(set, Mode::Decide, wrong.unwrap(), &mut disk);
            set = kept;
            assert!(matches!(taken, Err(Refusal::Invalid(_))), "at {place}: {taken:?}");
            assert!(dump(&set, &disk) == before);
        }
        let (kept, taken) = take(set, Mode::Decide, piece, &mut disk);
        set = kept;
        taken.unwrap();
    }
    assert!(!set.is_restoring() && content(&set, &disk) == expected);
}

#[test]
fn w4_a_cold_table_does_not_come_after_a_hot_one() {
    let mut disk = Disk::default();
    let (hot, cold) = (dump(&filled(Order::Rising), &disk), dump(&cold(&mut disk), &disk));
    let tables = |pieces: &Pieces| -> Vec<usize> {
        pieces.iter().enumerate().filter(|(_, piece)| piece[0] == TABLE).map(|(place, _)| place).collect()
    };
    let set = restored(Mode::Decide, &hot[..tables(&hot)[1]], &mut disk);
    let piece = &cold[tables(&cold)[1]];
    let (set, taken) = take(set, Mode::Decide, piece, &mut disk);
    assert_eq!(taken.unwrap_err().to_string(), "ERR a cold table of a dump does not follow a hot one");
    assert_eq!(set.totals().hot_tables, 1);
    let (_, taken) = take(set, Mode::Apply, piece, &mut disk);
    taken.unwrap();
}

#[test]
fn w4_a_set_is_copied_between_pieces() {
    let mut disk = Disk::default();
    for order in [Order::Rising, Order::Random] {
        let mut set = filled(order);
        if order == Order::Rising {
            spill(&mut set, &mut disk, 2);
        }
        let (pieces, expected) = (dump(&set, &disk), content(&set, &disk));
        for place in 1..pieces.len() {
            let set = restored(Mode::Decide, &pieces[..place], &mut disk);
            let copy = restored(Mode::Decide, &dump(&set, &disk), &mut disk);
            assert!(set.is_restoring() && copy.is_restoring(), "after {place} of {} pieces", pieces.len());
            let copy = pieces[place..].iter().fold(copy, |copy, piece| {
                let (copy, taken) = take(copy, Mode::Decide, piece, &mut disk);
                assert_eq!(taken, Ok(()), "a copy after {place} pieces");
                copy
            });
            assert!(!copy.is_restoring());
            assert!(content(&copy, &disk) == expected, "a copy after {place} pieces");
        }
    }
}

#[test]
fn w4_a_restore_whose_file_cannot_be_written_never_seems_complete() {
    let mut disk = Disk::default();
    let pieces = dump(&cold(&mut disk), &disk);
    for room in [0, 3, 20] {
        let (mut set, mut failed) = (restored(Mode::Decide, &pieces[..1], &mut disk), 0);
        disk.room = Some(room);
        for piece in &pieces[1..] {
            let (kept, taken) = take(set, Mode::Decide, piece, &mut disk);
            set = kept;
            failed += usize::from(taken.is_err());
            assert_eq!(failed > 0, taken.is_err(), "{taken:?}");
            disk.room = disk.room.filter(|_| failed == 0);
        }
        assert!(failed > 1 && set.is_restoring(), "{failed}");
    }
}

#[test]
fn w4_a_restore_that_failed_has_failed_in_each_copy() {
    let mut disk = Disk::default();
    let pieces = dump(&cold(&mut disk), &disk);
    let refused = "ERR an earlier piece of this dump failed; delete the key and restore all of it";
    for room in [0, 20] {
        let (mut set, mut next) = (restored(Mode::Decide, &pieces[..1], &mut disk), 1);
        disk.room = Some(room);
        loop {
            let (kept, taken) = take(set, Mode::Decide, &pieces[next], &mut disk);
            (set, next) = (kept, next + 1);
            if taken.is_err() {
                break;
            }
        }
        disk.room = None;
        // A snapshot and a copy, then a rewritten log.
        for mode in [Mode::Apply, Mode::Decide] {
            let copy = restored(mode, &dump(&set, &disk), &mut disk);
            assert!(copy.is_restoring());
            pieces[next..].iter().fold(copy, |copy, piece| {
                let (copy, taken) = take(copy, Mode::Decide, piece, &mut disk);
                assert_eq!(taken.map_err(|refusal| refusal.to_string()), Err(refused.to_owned()), "{mode:?}");
                copy
            });
        }
        assert!(set.info().contains(&("restoring", Figure::Number(1))));
    }
    let set = restored(Mode::Decide, &pieces, &mut disk);
    assert!(set.info().contains(&("restoring", Figure::Number(0))));
    // Only a dump that has not ended can fail.
    let failed = [&[9_u8][..], &crc32c::crc32c(&[9]).to_le_bytes()].concat();
    for mode in [Mode::Decide, Mode::Apply] {
        let (set, taken) = take(restored(Mode::Decide, &pieces, &mut disk), mode, &failed, &mut disk);
        assert!(taken.is_err() && !set.is_restoring(), "{mode:?}");
    }
}

#[test]
fn w4_a_table_that_a_command_makes_meanwhile_is_not_covered() {
    let mut disk = Disk::default();
    let pieces = dump(&cold(&mut disk), &disk);
    let end = pieces.iter().position(|piece| piece[0] == END).unwrap();
    let mut set = restored(Mode::Decide, &pieces[..end], &mut disk);
    set.increment(Mode::Decide, 5, &[(0, 3)], &Fetched::none(), &mut Vec::new()).unwrap();
    let (mut set, taken) = take(set, Mode::Decide, &pieces[end], &mut disk);
    assert!(matches!(taken, Err(Refusal::Invalid(_))), "{taken:?}");
    assert_eq!(value(&mut set, 5, &disk), 3);
    assert_eq!(set.check(0, &Fetched::none()).unwrap().1, Vec::<String>::new());
}

#[test]
fn w3_hits_and_misses_of_the_cache_are_counted() {
    let mut disk = Disk::default();
    let mut set = cold(&mut disk);
    let counts = |set: &CounterSet| (set.totals().cache_hits, set.totals().cache_misses);
    assert_eq!(counts(&set), (0, 0));
    assert_eq!(set.read_field(5, 0, &Fetched::none()), Err(Refusal::Cold), "it needs a page: nothing is counted yet");
    assert_eq!((value(&mut set, 5, &disk), counts(&set)), ((1 << 58) + 5, (0, 1)));
    assert_eq!((value(&mut set, 5, &disk), counts(&set)), ((1 << 58) + 5, (1, 1)));
    assert_eq!((value(&mut set, 6, &disk), counts(&set)), ((1 << 58) + 6, (1, 2)), "another record of the page");
    value(&mut set, IDS - 1, &disk);
    assert_eq!(counts(&set), (1, 2), "a hot record");
    set.alter(Change::Option(b"CACHE_BYTES".to_vec(), b"0".to_vec())).unwrap();
    assert_eq!((value(&mut set, 5, &disk), counts(&set)), ((1 << 58) + 5, (1, 3)), "counts outlive a capacity");
    let page = set.check(0, &Fetched::none()).unwrap_err();
    set.check(0, &disk.fetch(vec![page])).unwrap();
    assert_eq!(counts(&set), (1, 3), "a check is not counted");
    let shown: Vec<_> = set.info().into_iter().filter(|(name, _)| name.starts_with("cache_")).collect();
    assert_eq!(shown[..2], [("cache_hits", Figure::Number(1)), ("cache_misses", Figure::Number(3))]);
}

/// A client with the right to `CT.RESTORE` can send any piece with the checksum that fits it.
#[test]
fn w4_a_piece_of_any_content_is_taken_or_refused() {
    let mut disk = Disk::default();
    let mut set = cold(&mut disk);
    // Damage of two pages, with what was written to it.
    let file = set.files()[0].0;
    for page in 0..2 {
        disk.files.get_mut(&file).unwrap()[page][99] ^= 1;
        let page = PageRef { file, page: page as u32 };
        let _ = set.check(0, &disk.fetch(vec![page]));
    }
    (0..50).for_each(|id| {
        set.increment(Mode::Apply, id * 40, &[(0, 1)], &Fetched::none(), &mut Vec::new()).unwrap();
    });
    let cold_pieces = dump(&set, &disk);
    let (mut state, mut taken) = (7_u64, 0);
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for round in 0..1_500 {
        let pieces = &cold_pieces;
        let rare: Vec<usize> =
            (1..pieces.len()).filter(|place| ![RECORDS, SLOTS_KIND].contains(&pieces[*place][0])).collect();
        let place = if round % 3 == 0 { 1 + random(pieces.len() - 1) } else { rare[random(rare.len())] };
        let mode = [Mode::Decide, Mode::Apply][random(2)];
        let mut set = restored(Mode::Decide, &pieces[..place], &mut disk);
        let mut piece = pieces[place].clone();
        let content = piece.len() - 4;
        for _ in 0..1 + random(3) {
            let at = (1 + random(content.max(2) - 1)).min(content - 1);
            piece[at] = [0, 1, 0x7f, 0x80, 0xff, random(256) as u8][random(6)];
        }
        let sum = crc32c::crc32c(&piece[..content]).to_le_bytes();
        piece[content..].copy_from_slice(&sum);
        let mut is_whole = true;
        for piece in [&piece].into_iter().chain(&pieces[place + 1..]) {
            let (kept, answer) = take(set, mode, piece, &mut disk);
            set = kept;
            is_whole &= answer.is_ok();
        }
        taken += u32::from(is_whole);
        // What came of it can be walked over, repaired, written to and dumped.
        let mut cursor = 0;
        for _ in 0..300 {
            match set.scan(cursor, 100, &Fetched::none()) {
                Ok(scan) => cursor = scan.next,
                Err(Ok(page)) => {
                    let _ = set.scan(cursor, 100, &disk.fetch(vec![page])).map(|scan| cursor = scan.next);
                }
                Err(Err(_)) => break,
            }
            if cursor == 0 {
                break;
            }
        }
        set.repair(Mode::Decide, 0, u64::MAX, &[5, 500], &[1, 2, 3, 4]).unwrap();
        for id in [0, 5, 40, 19_999, u64::MAX] {
            let _ = set.increment(Mode::Apply, id, &[(0, 1)], &Fetched::none(), &mut Vec::new());
        }
        while set.step(0) {}
        assert!(set.dump(&mut |page| disk.read(page), &mut |_| {}).is_ok(), "round {round}");
        disk.files.retain(|id, _| *id == file || id.0 < 77 * 4);
    }
    assert!(taken > 20, "{taken} of 1,500 were taken whole");
}
