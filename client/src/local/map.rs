//! A file mapped into memory as words of 8 bytes: the only file of this crate with `unsafe`.
#![allow(unsafe_code, reason = "a mapping is a pointer")]

use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::AtomicI64;

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = size_of::<AtomicI64>();

/// The first `words` words of a file, shared with the page cache: what is stored here survives the death of the process.
pub(super) struct Map {
    mapping: MmapRaw,
    words: usize,
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
        Ok(Map { mapping, words })
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
