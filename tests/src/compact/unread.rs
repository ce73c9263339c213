//! An engine whose disk fails to read cold files, or does not answer, when a test wants it: a small library that the C compiler makes and
//! the process preloads.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const SOURCE: &str = include_str!("unread.c");

/// Compiles a library that a process may load: `NAME.so` in this folder.
pub fn compile(folder: &Path, name: &str, source: &str) {
    let [code, library] = ["c", "so"].map(|extension| folder.join(format!("{name}.{extension}")));
    std::fs::write(&code, source).expect("a file");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"]).arg(library);
    let compiled = compiler.arg(code).arg("-ldl").output().expect("a C compiler, `cc`");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

/// Writes a program into a folder, which starts another one with a compiled library (`NAME.so` in this folder), with the libraries that
/// others make it load, and with these variables.
pub(super) fn preloading(folder: &Path, name: &str, variables: &str, program: &Path) -> PathBuf {
    let [path, library] = ["redis-server", &format!("{name}.so")].map(|name| folder.join(name));
    let (library, program) = (library.display(), program.display());
    let text = format!("#!/bin/sh\nLD_PRELOAD={library}:$LD_PRELOAD {variables} exec {program} \"$@\"\n");
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a file");
    path
}

/// A disk that can fail.
pub struct FailingDisk {
    dir: TempDir,
}

impl FailingDisk {
    /// It does not fail yet.
    #[expect(clippy::new_without_default, reason = "it is a compiled library, not a value")]
    pub fn new() -> FailingDisk {
        let disk = FailingDisk { dir: TempDir::new().expect("a temporary folder") };
        compile(disk.dir.path(), "unread", SOURCE);
        disk
    }

    /// A program that starts this one with such a disk.
    pub fn program(&self, program: &Path) -> PathBuf {
        let [fails, stalls] = ["fails", "stalls"].map(|name| self.path(name).display().to_string());
        let marks = format!("TALLYSTONE_TEST_EIO={fails} TALLYSTONE_TEST_STALL={stalls}");
        preloading(self.dir.path(), "unread", &marks, program)
    }

    /// Whether reads fail from now on.
    pub fn set_fails(&self, fails: bool) {
        self.set("fails", fails);
    }

    /// Whether reads wait from now on until this is taken back.
    pub fn set_stalls(&self, stalls: bool) {
        self.set("stalls", stalls);
    }

    fn set(&self, name: &str, is_set: bool) {
        let mark = self.path(name);
        if is_set {
            std::fs::write(mark, "").expect("a file");
        } else {
            std::fs::remove_file(mark).expect("it was set before");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}
