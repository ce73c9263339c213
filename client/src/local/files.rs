//! Files that are replaced as a whole, and the lock of the folder.

use super::error::{IoContext as _, LocalError};
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// What the name of a file ends in while it is written. No namespace has this character.
pub(super) const UNFINISHED: &str = "~";

/// The lock of a folder, until it is dropped.
pub(super) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // A child of a fork may have the file open until it executes another program, and the lock with it.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Locks the folder for this process.
pub(super) fn lock(folder: &Path) -> Result<Lock, LocalError> {
    let path = folder.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path).when("open", &path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(LocalError::Locked { folder: folder.to_owned() }),
        Err(error) => Err(io::Error::from(error)).when("lock", &path),
    }
}

/// Writes a file under its name with `~`, and waits until it is on disk. [`finish`] gives it its name.
pub(super) fn write_unfinished(folder: &Path, name: &str, content: &[u8]) -> io::Result<File> {
    let mut file = File::create(folder.join(format!("{name}{UNFINISHED}")))?;
    file.write_all(content)?;
    file.sync_data()?;
    Ok(file)
}

/// Replaces the file with this name by the one that was written. It may still be the earlier one after a loss of power,
/// until [`sync_folder`] has returned.
pub(super) fn finish(folder: &Path, name: &str) -> io::Result<()> {
    fs::rename(folder.join(format!("{name}{UNFINISHED}")), folder.join(name))
}

/// Waits until the names of the files are on disk.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// The content of a file; `None` if it is not there.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, LocalError> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).when("read", path),
    }
}
