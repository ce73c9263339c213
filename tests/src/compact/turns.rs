//! How long an engine serves no other client: the process preloads a small library, which the C compiler makes and which measures each
//! iteration of the event loop.

use super::unread::{compile, preloading};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The longest iteration of an engine's event loop.
pub struct Turns {
    dir: TempDir,
}

impl Turns {
    /// Nothing was measured yet.
    #[expect(clippy::new_without_default, reason = "it is a compiled library, not a value")]
    pub fn new() -> Turns {
        let turns = Turns { dir: TempDir::new().expect("a temporary folder") };
        compile(turns.dir.path(), "turns", include_str!("turns.c"));
        turns.reset();
        turns
    }

    /// A program that starts this one, and measures its iterations.
    pub fn program(&self, program: &Path) -> PathBuf {
        let marks = format!("TALLYSTONE_TEST_TURNS={}", self.dir.path().join("longest").display());
        preloading(self.dir.path(), "turns", &marks, program)
    }

    /// Forgets what was measured.
    pub fn reset(&self) {
        use std::io::Write;
        let path = self.dir.path().join("longest");
        // The process maps the file, so the file is not truncated.
        let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(path);
        file.and_then(|mut file| file.write_all(&[0; 8])).expect("a file");
    }

    /// The longest iteration since the last [`Turns::reset`], in microseconds of the main thread's processor time.
    pub fn longest_us(&self) -> i64 {
        let bytes = std::fs::read(self.dir.path().join("longest")).expect("a file");
        i64::from_le_bytes(*bytes.first_chunk().expect("eight bytes")) / 1_000
    }
}
