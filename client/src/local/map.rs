//! A file mapped into memory as words of 8 bytes: the only file of this crate with `unsafe`.
#![allow(unsafe_code, reason = "a mapping is a pointer")]

use memmap2::{MmapOptions, MmapRaw};
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = size_of::<AtomicI64>();

/// The first `words` words of a file, shared with the page cache: what is stored here survives the death of the process.
pub(super) struct Map {
    mapping: MmapRaw,
    words: usize,
    /// No other mapping of this process has it, or will have it. Never 0.
    id: u32,
}

/// Some words of a map, which need not exist any more.
#[derive(Clone, Copy)]
struct Words {
    /// 0: none.
    map: u32,
    length: u32,
    first: *const AtomicI64,
}

const NONE: Words = Words { map: 0, length: 0, first: std::ptr::null() };

thread_local! {
    /// The words to which this thread adds.
    static OWN: Cell<Words> = const { Cell::new(NONE) };
}

/// From here on this thread has no own words.
pub(super) fn forget_own() {
    OWN.set(NONE);
}

/// One of the own words of whichever thread uses it, together with what its user needs. It keeps the map mapped. An add reads these 16
/// bytes, the place of the thread's words, and the word: programs with very many counters have more handles than fit into the caches
/// of a core, and each line that an add need not read makes it faster.
pub(super) struct OwnWord<K> {
    kept: Arc<Kept<K>>,
    map: u32,
    index: u32,
}

struct Kept<K> {
    _map: Arc<Map>,
    more: K,
}

impl<K> Clone for OwnWord<K> {
    fn clone(&self) -> OwnWord<K> {
        OwnWord { kept: self.kept.clone(), ..*self }
    }
}

impl<K> OwnWord<K> {
    pub(super) fn new(map: Arc<Map>, index: u32, more: K) -> OwnWord<K> {
        OwnWord { map: map.id, index, kept: Arc::new(Kept { _map: map, more }) }
    }

    pub(super) fn index(&self) -> usize {
        self.index as usize
    }

    pub(super) fn more(&self) -> &K {
        &self.kept.more
    }

    /// The word, if the own words of this thread are in the same map.
    #[inline]
    pub(super) fn get(&self) -> Option<&AtomicI64> {
        let own = OWN.get();
        if own.map != self.map || self.index >= own.length {
            return None;
        }
        // SAFETY: `own_words_are` has checked that these words are in the map with this number. Numbers are never given again,
        // so it is the map that `self.kept` keeps mapped for as long as the reference lives.
        Some(unsafe { &*own.first.add(self.index as usize) })
    }
}

impl Map {
    /// Maps the beginning of a file, for reading and writing.
    ///
    /// # Errors
    /// The file is shorter than that, or cannot be mapped.
    pub(super) fn new(file: &File, words: usize) -> io::Result<Map> {
        let bytes = words * WORD_BYTES;
        // Beyond the end of the file an access would be a SIGBUS.
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than its header says"));
        }
        let mapping = MmapOptions::new().len(bytes).map_raw(file)?;
        // In a child after a fork, an add is a SIGSEGV: two processes that load and store the same cells would lose adds.
        #[cfg(target_os = "linux")]
        mapping.advise(memmap2::Advice::DontFork)?;
        static IDS: AtomicU32 = AtomicU32::new(1);
        let id = IDS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| id.checked_add(1));
        let id = id.map_err(|_| io::Error::other("this process has mapped files too often"))?;
        Ok(Map { mapping, words, id })
    }

    /// From here on these are the own words of this thread.
    pub(super) fn own_words_are(&self, words: Range<usize>) {
        let words = &self.words()[words];
        let length = u32::try_from(words.len()).unwrap_or(u32::MAX);
        OWN.set(Words { map: self.id, length, first: words.as_ptr() });
    }

    /// All words.
    #[inline]
    pub(super) fn words(&self) -> &[AtomicI64] {
        // SAFETY: the mapping has this many words, is aligned to a page, and lives as long as `self`. Any bytes are a valid word.
        // The folder is locked, so no other process of this library writes to it; if another one does, the words are still
        // atomic.
        unsafe { std::slice::from_raw_parts(self.mapping.as_mut_ptr().cast(), self.words) }
    }

    /// Waits until these words are on disk.
    pub(super) fn sync(&self, words: Range<usize>) -> io::Result<()> {
        self.mapping.flush_range(words.start * WORD_BYTES, words.len() * WORD_BYTES)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::fs::{OpenOptions, read_to_string};

    #[test]
    fn l2_a_child_after_a_fork_has_no_cells() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("words");
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).expect("a file");
        file.set_len(4_096).expect("room");
        let _map = Map::new(&file, 512).expect("a mapping");
        let all = read_to_string("/proc/self/smaps").expect("the mappings of this process");
        let mut lines = all.lines().skip_while(|line| !line.ends_with(path.to_str().expect("a plain path")));
        let flags = lines.find(|line| line.starts_with("VmFlags:")).expect("the flags of the mapping");
        assert!(flags.split_whitespace().any(|flag| flag == "dc"), "it is copied when the process forks: {flags}");
    }
}
