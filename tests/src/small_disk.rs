//! A small disk, which tests can fill.

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file system in memory, with what fills it.
pub struct SmallDisk(TempDir);

impl SmallDisk {
    /// Mounts it; that takes the rights of root, as in the container of a CI job.
    ///
    /// # Panics
    /// It cannot be mounted.
    pub fn mount(bytes: u64) -> SmallDisk {
        let dir = TempDir::new().expect("a temporary folder");
        let options = format!("size={bytes},mode=0700");
        mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .expect("a mounted file system: this test needs root, or a user namespace (unshare -rm)");
        SmallDisk(dir)
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    fn free_bytes(&self) -> u64 {
        let disk = nix::sys::statvfs::statvfs(self.path()).expect("a file system");
        disk.blocks_available() * disk.fragment_size()
    }

    /// Fills it until this much is free, while nothing else writes to it.
    ///
    /// # Panics
    /// Less is free already.
    pub fn fill_to(&self, free_bytes: u64) {
        let size = self.free_bytes().checked_sub(free_bytes).expect("more is free");
        std::fs::write(self.ballast(), vec![1; usize::try_from(size).expect("a size")]).expect("room");
    }

    /// Fills it until at most this much is free, while others may write to it.
    pub fn leave(&self, free_bytes: u64) {
        let size = self.free_bytes().saturating_sub(free_bytes);
        match std::fs::write(self.ballast(), vec![1; usize::try_from(size).expect("a size")]) {
            // Others have written meanwhile.
            Err(error) if error.kind() == ErrorKind::StorageFull => {}
            written => written.expect("a file"),
        }
    }

    /// Removes what fills it.
    pub fn make_room(&self) {
        std::fs::remove_file(self.ballast()).expect("a file");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A process that is about to end may still use it: then it goes with that process.
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}
