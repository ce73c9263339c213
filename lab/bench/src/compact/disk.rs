//! What the disk gives: random reads of 4 KiB from the files of cold tables, past the page cache; and a thread that keeps the files out
//! of that cache, so that the module's reads go to the disk too.

use super::objects::Draw;
use anyhow::{Context, Result, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc::O_DIRECT;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const PAGE: usize = 4_096;
/// Between two evictions.
const EVERY: Duration = Duration::from_millis(20);

/// The files of cold tables in a folder.
pub(super) fn cold_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cold") {
            files.push(path);
        }
    }
    ensure!(!files.is_empty(), "there are no cold tables");
    Ok(files)
}

/// Random reads a second by this number of threads, and whether they bypassed the page cache.
pub(super) fn reads_per_s(files: &[PathBuf], threads: u64, time: Duration) -> Result<(f64, bool)> {
    let direct = |path: &PathBuf| OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path);
    let (open, is_direct) = match files.iter().map(direct).collect::<Result<Vec<File>, _>>() {
        Ok(open) => (open, true),
        // A file system without it: the caller keeps the files out of the page cache anyway.
        Err(_) => (files.iter().map(File::open).collect::<Result<_, _>>()?, false),
    };
    let pages = open.iter().map(|file| Ok(file.metadata()?.len() / PAGE as u64)).collect::<Result<Vec<u64>>>()?;
    let (open, pages) = (Arc::new(open), Arc::new(pages));
    let began = Instant::now();
    let readers: Vec<JoinHandle<Result<u64>>> = (0..threads)
        .map(|thread| {
            let (open, pages) = (open.clone(), pages.clone());
            thread::spawn(move || {
                let (mut draw, mut reads) = (Draw::new(thread), 0);
                let mut memory = vec![0; 2 * PAGE];
                // Such reads want their memory on the border of a page.
                let begin = memory.as_ptr().align_offset(PAGE);
                while began.elapsed() < time {
                    let file = draw.below(open.len() as u64) as usize;
                    let offset = draw.below(pages[file]) * PAGE as u64;
                    open[file].read_exact_at(&mut memory[begin..begin + PAGE], offset)?;
                    reads += 1;
                }
                Ok(reads)
            })
        })
        .collect();
    let mut reads = 0;
    for reader in readers {
        reads += reader.join().ok().context("a reader panicked")??;
    }
    Ok((reads as f64 / began.elapsed().as_secs_f64(), is_direct))
}

/// Keeps files out of the page cache until it is dropped.
pub(super) struct Evictor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Evictor {
    pub(super) fn start(files: &[PathBuf]) -> Result<Evictor> {
        let files = files.iter().map(File::open).collect::<Result<Vec<_>, _>>()?;
        let evict = move || {
            // A kernel that keeps a page does no harm: the rate of the reads shows it.
            for file in &files {
                let _ = posix_fadvise(file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED);
            }
        };
        evict();
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = stop.clone();
        let thread = thread::spawn(move || {
            while !is_over.load(Relaxed) {
                evict();
                thread::sleep(EVERY);
            }
        });
        Ok(Evictor { stop, thread: Some(thread) })
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
