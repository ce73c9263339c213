//! The lock of a data folder: one folder never has two processes of one kind.

use crate::LocalError;
use nix::fcntl::{Flock, FlockArg};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a process that is still stopping may hold the folder.
const LOCK_WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(10);

/// The error of a folder that cannot be used.
pub(crate) fn unusable(path: &Path) -> impl Fn(io::Error) -> LocalError + '_ {
    |source| LocalError::DataDir { path: path.to_owned(), source }
}

/// Makes the folder if it is not there; its full path.
pub(crate) fn make_dir(dir: &Path) -> Result<PathBuf, LocalError> {
    std::fs::create_dir_all(dir).and_then(|()| dir.canonicalize()).map_err(unusable(dir))
}

/// Locks the folder. Waits a little: the process before may be stopping.
pub(crate) async fn lock(name: &'static str, dir: &Path) -> Result<Flock<File>, LocalError> {
    let unusable = unusable(dir);
    let give_up_at = Instant::now() + LOCK_WAIT;
    let path = dir.join("lock");
    let mut file =
        OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path).map_err(&unusable)?;
    loop {
        file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) if Instant::now() > give_up_at => {
                let mut holder = String::new();
                file.read_to_string(&mut holder).map_err(unusable)?;
                return Err(LocalError::InUse { name, path: dir.to_owned(), holder });
            }
            Err((file, nix::errno::Errno::EWOULDBLOCK)) => file,
            Err((_, errno)) => return Err(unusable(errno.into())),
        };
        tokio::time::sleep(POLL).await;
    }
}
