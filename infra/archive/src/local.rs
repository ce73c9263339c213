//! Writes files that survive a loss of power: a file has its name only when its bytes are on the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Writes a file in a folder in `root`, and makes it durable with the folders in which it is. A file of this name is replaced as a
/// whole. A process that dies may leave `FILE#NUMBER`, which is no object.
pub(crate) fn write(root: &Path, file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = file.parent().unwrap_or(root);
    fs::create_dir_all(folder)?;
    let (mut staged, path) = stage(file)?;
    let on_disk = staged.write_all(bytes).and_then(|()| staged.sync_all());
    drop(staged);
    let written = on_disk.and_then(|()| fs::rename(&path, file));
    if written.is_err() {
        let _ = fs::remove_file(&path);
    }
    written?;
    let within = folder.ancestors().take_while(|path| path.starts_with(root));
    within.map(File::open).try_for_each(|opened| opened?.sync_all())
}

/// Where the store has the object of this path, or a folder of objects.
pub(crate) fn file_of(root: &Path, path: &object_store::path::Path) -> PathBuf {
    path.parts().fold(root.to_path_buf(), |file, part| file.join(part.as_ref()))
}

/// A new file that no reader takes for an object.
fn stage(file: &Path) -> io::Result<(File, PathBuf)> {
    let mut number = 1_u32;
    loop {
        let mut name = file.as_os_str().to_owned();
        name.push(format!("#{number}"));
        let path = PathBuf::from(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            opened => return Ok((opened?, path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name never leads to a file that is not on the disk yet: it appears last.
    #[test]
    fn n15_a_file_gets_its_name_when_it_is_whole() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("ads/slice/object");
        write(root.path(), &file, b"one").unwrap();
        // What one leaves that died, and a later content.
        fs::write(root.path().join("ads/slice/object#1"), b"o").unwrap();
        write(root.path(), &file, b"another").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"another");
        let names = fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["object", "object#1"]);
        // A name that cannot be taken leaves nothing.
        fs::create_dir_all(root.path().join("ads/folder/in it")).unwrap();
        assert!(write(root.path(), &root.path().join("ads/folder"), b"x").is_err());
        assert!(!root.path().join("ads/folder#1").exists());
    }
}
