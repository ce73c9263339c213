//! A Redis whose wall clock a test can set: a small library that the C compiler makes and the process preloads.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const SOURCE: &str = include_str!("shift.c");

/// By how much a process's clock is wrong.
pub struct ClockShift {
    offset: File,
    dir: TempDir,
}

impl ClockShift {
    /// By nothing yet.
    #[expect(clippy::new_without_default, reason = "it is a compiled library, not a value")]
    pub fn new() -> ClockShift {
        let dir = TempDir::new().expect("a temporary folder");
        std::fs::write(dir.path().join("shift.c"), SOURCE).expect("a file");
        let offset = OpenOptions::new().create(true).truncate(true).write(true).open(dir.path().join("offset"));
        let shift = ClockShift { offset: offset.expect("a file"), dir };
        shift.set_ms(0);
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]);
        let compiled = compiler.arg(shift.path("shift.so")).arg(shift.path("shift.c")).output();
        let compiled = compiled.expect("a C compiler, `cc`");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        shift
    }

    /// The environment of the process whose clock it is.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        vec![("LD_PRELOAD", self.path("shift.so")), ("TALLYSTONE_TEST_CLOCK", self.path("offset"))]
    }

    /// The clock is ahead of this machine's by this much from now on (negative: behind); 0: it is right.
    pub fn set_ms(&self, ahead_ms: i64) {
        self.offset.write_all_at(&ahead_ms.to_ne_bytes(), 0).expect("a file");
    }

    fn path(&self, name: &str) -> OsString {
        Path::join(self.dir.path(), name).into_os_string()
    }
}
