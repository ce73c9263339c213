//! The file `cells`: a header, the base of each slot, the time of its last push, and the stripes of cells.
//!
//! The total of a slot is the sum of its cells; it is never set back. Its base is the total up to which everything was pushed. What is
//! not pushed is the difference, so a push ends by setting the base to a number that its file has, and that may be repeated.

use super::cell;
use super::error::{IoContext as _, LocalError};
use super::files;
use super::map::{Map, WORD_BYTES};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

const NAME: &str = "cells";
/// "TSCELLS2" as this machine writes numbers: on a machine that writes them differently the file is refused.
const MAGIC: i64 = i64::from_ne_bytes(*b"TSCELLS2");
const ONE: i64 = 1;

/// The words of the header.
const AT_MAGIC: usize = 0;
const AT_FOLDER_ID: usize = 1;
const AT_SLOTS: usize = 2;
const AT_STRIPES: usize = 3;
const AT_ONE: usize = 4;
/// CRC-32C of the words before it.
const AT_CHECKSUM: usize = 5;
const AT_STRIPES_USED: usize = 6;
const AT_NAMES_MARK: usize = 7;
/// Words of the header, and what regions are a multiple of: a page, so that the cells of two threads are far from each other.
const PAGE_WORDS: usize = 512;
/// Regions before the stripes: the bases, and the times of the last pushes.
const REGIONS: usize = 2;

/// The stripe to which any thread may add.
pub(super) const SHARED_STRIPE: usize = 0;

/// The mapped file.
pub(super) struct Cells {
    map: Map,
    file: File,
    slots: usize,
    stripes: usize,
    /// How many stripes have room on disk and may have cells other than 0.
    stripes_used: AtomicUsize,
    /// One `msync` at a time, so that a failed one is known to the next.
    syncing: Mutex<()>,
    has_failed: AtomicBool,
}

/// Words of a region that has one word for each slot.
fn region(slots: usize) -> usize {
    slots.next_multiple_of(PAGE_WORDS)
}

/// Words of the whole file.
fn words(slots: usize, stripes: usize) -> usize {
    PAGE_WORDS + region(slots) * (REGIONS + stripes)
}

fn checksum(header: [i64; AT_CHECKSUM]) -> i64 {
    let bytes: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
    crc32c::crc32c(&bytes).into()
}

/// Reserves room on disk. Without it, an add to a full disk would be a SIGBUS.
fn reserve(file: &File, words: std::ops::Range<usize>) -> io::Result<()> {
    let (begin, length) = (words.start * WORD_BYTES, words.len() * WORD_BYTES);
    Ok(fallocate(file, FallocateFlags::empty(), begin as u64, length as u64)?)
}

impl Cells {
    /// Whether the folder has the file.
    pub(super) fn exist_in(folder: &Path) -> bool {
        folder.join(NAME).exists()
    }

    /// Makes the file with all cells 0.
    pub(super) fn create(folder: &Path, folder_id: u64, slots: u32, stripes: u32, mark: u64) -> Result<(), LocalError> {
        let path = folder.join(format!("{NAME}{}", files::UNFINISHED));
        let open = || OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path);
        let file = open().when("create", &path)?;
        let (slots, stripes) = (slots as usize, stripes as usize);
        file.set_len((words(slots, stripes) * WORD_BYTES) as u64).when("extend", &path)?;
        let first = words(slots, 1);
        reserve(&file, 0..first).when("reserve room for", &path)?;
        let map = Map::new(&file, first).when("map", &path)?;
        let header = [MAGIC, folder_id.cast_signed(), slots as i64, stripes as i64, ONE];
        let rest = [checksum(header), 1, mark.cast_signed()];
        for (word, value) in map.words().iter().zip(header.into_iter().chain(rest)) {
            word.store(value, Ordering::Relaxed);
        }
        map.sync(0..first).when("write", &path)?;
        file.sync_all().when("write", &path)?;
        files::finish(folder, NAME).when("rename", &path)?;
        files::sync_folder(folder).when("write", folder)
    }

    /// Opens the file.
    ///
    /// # Errors
    /// The file is damaged, or was made with other bounds.
    pub(super) fn open(folder: &Path, slots: u32, stripes: u32) -> Result<Cells, LocalError> {
        let path = folder.join(NAME);
        let file = OpenOptions::new().read(true).write(true).open(&path).when("open", &path)?;
        let damaged = |what: &str| LocalError::damaged(&path, what);
        let header = Map::new(&file, PAGE_WORDS).map_err(|error| damaged(&error.to_string()))?;
        let word = |at: usize| header.words()[at].load(Ordering::Relaxed);
        if word(AT_MAGIC) != MAGIC {
            return Err(damaged("it does not begin as this library begins it on this machine"));
        }
        if word(AT_CHECKSUM) != checksum(std::array::from_fn(word)) || word(AT_ONE) != ONE {
            return Err(damaged("its header has a wrong checksum"));
        }
        let made = (word(AT_SLOTS), word(AT_STRIPES));
        if made != (slots.into(), stripes.into()) {
            return Err(LocalError::invalid(format!(
                "{} was made with slots_max {} and stripes_max {}; to change them, close it, then remove the folder",
                folder.display(),
                made.0,
                made.1
            )));
        }
        let (slots, stripes) = (slots as usize, stripes as usize);
        let used = usize::try_from(word(AT_STRIPES_USED)).unwrap_or(0);
        if !(1..=stripes).contains(&used) {
            return Err(damaged("the number of its stripes is out of range"));
        }
        let map = Map::new(&file, words(slots, stripes)).map_err(|error| damaged(&error.to_string()))?;
        let (stripes_used, syncing, has_failed) = (AtomicUsize::new(used), Mutex::default(), AtomicBool::new(false));
        Ok(Cells { map, file, slots, stripes, stripes_used, syncing, has_failed })
    }

    /// A number that all files of the folder share.
    pub(super) fn folder_id(&self) -> u64 {
        self.map.words()[AT_FOLDER_ID].load(Ordering::Relaxed).cast_unsigned()
    }

    /// Up to where the list of names is complete ([`Names::mark`](super::names::Names::mark)).
    pub(super) fn names_mark(&self) -> u64 {
        self.map.words()[AT_NAMES_MARK].load(Ordering::Relaxed).cast_unsigned()
    }

    pub(super) fn set_names_mark(&self, mark: u64) {
        self.map.words()[AT_NAMES_MARK].store(mark.cast_signed(), Ordering::Relaxed);
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn stripes_used(&self) -> usize {
        self.stripes_used.load(Ordering::Acquire)
    }

    /// The word at which a stripe begins.
    pub(super) fn first_of(&self, stripe: usize) -> usize {
        words(self.slots, stripe)
    }

    /// The cell of a slot in the stripe that begins at this word.
    #[inline]
    pub(super) fn cell(&self, first: usize, slot: usize) -> &AtomicI64 {
        &self.map.words()[first + slot]
    }

    /// The total of a slot.
    pub(super) fn total(&self, slot: usize) -> i64 {
        cell::total((0..self.stripes_used()).map(|stripe| self.cell(self.first_of(stripe), slot)))
    }

    /// The total up to which everything was pushed.
    pub(super) fn base(&self, slot: usize) -> i64 {
        self.map.words()[PAGE_WORDS + slot].load(Ordering::Relaxed)
    }

    pub(super) fn set_base(&self, slot: usize, total: i64) {
        self.map.words()[PAGE_WORDS + slot].store(total, Ordering::Relaxed);
    }

    /// The latest time of a push of the slot that was counted, Unix ms; 0: none.
    pub(super) fn pushed_ms(&self, slot: usize) -> u64 {
        self.map.words()[PAGE_WORDS + region(self.slots) + slot].load(Ordering::Relaxed).cast_unsigned()
    }

    /// Set before the base of the push: a process that dies between the two sends the push again, and sets both.
    pub(super) fn set_pushed_ms(&self, slot: usize, time_ms: u64) {
        self.map.words()[PAGE_WORDS + region(self.slots) + slot].store(time_ms.cast_signed(), Ordering::Relaxed);
    }

    /// What is not pushed yet.
    pub(super) fn unpushed(&self, slot: usize) -> i64 {
        self.total(slot).wrapping_sub(self.base(slot))
    }

    /// One more stripe; `None` if there are enough, or the disk has no room for it.
    pub(super) fn add_stripe(&self) -> Option<usize> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(|broken| broken.into_inner());
        let stripe = self.stripes_used();
        if stripe == self.stripes {
            return None;
        }
        let first = self.first_of(stripe);
        reserve(&self.file, first..first + region(self.slots)).ok()?;
        // Before the first add to it: after a kill the next process sums all stripes that have adds.
        self.map.words()[AT_STRIPES_USED].store(stripe as i64 + 1, Ordering::Relaxed);
        self.stripes_used.store(stripe + 1, Ordering::Release);
        Some(stripe)
    }

    /// Waits until the file is on disk: every store that happened before the call.
    pub(super) fn sync(&self) -> io::Result<()> {
        let _one_at_a_time = self.syncing.lock().unwrap_or_else(|broken| broken.into_inner());
        let used = 0..self.first_of(self.stripes_used());
        // After a failed write the kernel regards the pages as written. Only changed pages are written again.
        if self.has_failed.load(Ordering::Relaxed) {
            for word in self.map.words()[used.clone()].iter().step_by(PAGE_WORDS) {
                word.fetch_add(0, Ordering::Relaxed);
            }
        }
        let result = self.map.sync(used);
        self.has_failed.store(result.is_err(), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;

    #[test]
    fn l2_totals_and_bases_outlive_the_mapping() {
        let folder = tempfile::tempdir().expect("a folder");
        Cells::create(folder.path(), 7, 1_000, 3, 42).expect("a file");
        let cells = Cells::open(folder.path(), 1_000, 3).expect("the file");
        assert_eq!((cells.folder_id(), cells.names_mark(), cells.stripes_used()), (7, 42, 1));
        assert_eq!((cells.add_stripe(), cells.add_stripe(), cells.add_stripe()), (Some(1), Some(2), None));
        for stripe in 0..3 {
            cell::add_as_owner(cells.cell(cells.first_of(stripe), 999), i64::MAX);
        }
        cells.set_base(999, i64::MAX);
        cells.set_pushed_ms(999, 5_000);
        cells.sync().expect("a sync");
        drop(cells);
        let cells = Cells::open(folder.path(), 1_000, 3).expect("the file");
        assert_eq!(cells.unpushed(999), i64::MAX.wrapping_add(i64::MAX));
        assert_eq!((cells.unpushed(998), cells.pushed_ms(998), cells.pushed_ms(999)), (0, 0, 5_000));
    }

    #[test]
    fn l2_a_damaged_file_of_cells_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        Cells::create(folder.path(), 7, 100, 2, 42).expect("a file");
        let path = folder.path().join(NAME);
        let refused = || matches!(Cells::open(folder.path(), 100, 2), Err(LocalError::Damaged { .. }));
        assert!(!refused());
        assert!(matches!(Cells::open(folder.path(), 200, 2), Err(LocalError::Invalid { .. })));
        let file = OpenOptions::new().read(true).write(true).open(&path).expect("the file");
        for word in [AT_MAGIC, AT_FOLDER_ID, AT_SLOTS, AT_STRIPES, AT_ONE, AT_CHECKSUM, AT_STRIPES_USED] {
            let mut bytes = [0; WORD_BYTES];
            let at = (word * WORD_BYTES) as u64;
            file.read_exact_at(&mut bytes, at).expect("a word");
            file.write_all_at(&i64::from_ne_bytes(bytes).wrapping_add(5).to_ne_bytes(), at).expect("a damage");
            assert!(refused(), "word {word}");
            file.write_all_at(&bytes, at).expect("a repair");
        }
        assert!(!refused());
        let length = file.metadata().expect("a file").len();
        for length in [0, 100, 4_096, length - 1] {
            file.set_len(length).expect("a cut");
            assert!(refused(), "{length} bytes");
        }
    }
}
