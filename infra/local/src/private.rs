//! Folders and files that no other user of the machine can read.

use crate::LocalError;
use crate::lock::{make_dir, unusable};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Others may write, but not remove: a folder for everybody, such as /tmp.
const STICKY: u32 = 0o1000;
const PASSWORD_BYTES: usize = 32;

/// Makes the folder if it is not there, and takes every right in it from other users; its full path.
///
/// # Errors
/// [`LocalError::DataDir`] if the folder is one for everybody, or belongs to another user.
pub fn private_dir(dir: &Path) -> Result<PathBuf, LocalError> {
    let path = make_dir(dir)?;
    let unusable = unusable(dir);
    let mode = std::fs::metadata(&path).map_err(&unusable)?.permissions().mode();
    if mode & STICKY != 0 {
        return Err(unusable(io::Error::other("it is for every user of this machine; name a folder in it")));
    }
    if mode & 0o077 != 0 {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).map_err(&unusable)?;
    }
    Ok(path)
}

/// Writes a file that only this user can read. An earlier one is removed first: another user may have it open, or may
/// have put a link there.
pub(crate) fn write_private(path: &Path, text: &str) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// A password that cannot be guessed, of letters and digits.
pub(crate) fn new_password() -> io::Result<String> {
    let mut bytes = [0; PASSWORD_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn s1_other_users_lose_their_rights() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("a/b");
        assert_eq!(mode(&private_dir(&dir).unwrap()), 0o700);
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        assert_eq!(mode(&private_dir(&dir).unwrap()), 0o700);
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o1777)).unwrap();
        assert!(private_dir(&dir).unwrap_err().to_string().contains("name a folder in it"));
        assert_eq!(mode(&dir), 0o1777);
    }

    #[test]
    fn s1_a_private_file_replaces_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("secret"), dir.path().join("other"));
        std::fs::write(&other, "kept").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        write_private(&path, "1").unwrap();
        write_private(&path, "2").unwrap();
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("2", 0o600));
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "kept");
        assert_ne!(new_password().unwrap(), new_password().unwrap());
    }
}
