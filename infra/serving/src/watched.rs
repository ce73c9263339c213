//! A value that is read from files, and read again when they change.

use ::metrics::{counter, describe_counter};
use std::fmt::Display;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

const FAILURES: &str = "tallystone_reload_failures_total";

/// The value of some files.
pub(crate) struct Watched<T> {
    /// Names the value in the log and in metrics.
    what: &'static str,
    files: Vec<PathBuf>,
    current: RwLock<Current<T>>,
}

struct Current<T> {
    stamp: Stamp,
    value: Arc<T>,
    /// That of files with a fault, of which the log has a warning.
    warned: Option<Stamp>,
}

/// What shows that a file has changed, or was replaced: time, inode and length of each; `None`: it cannot be read.
type Stamp = Vec<Option<(SystemTime, u64, u64)>>;

impl<T> Watched<T> {
    /// Reads the value. `what` names it in the log and in metrics.
    pub(crate) fn open<E>(
        what: &'static str,
        files: Vec<PathBuf>,
        read: impl FnOnce() -> Result<T, E>,
    ) -> Result<Watched<T>, E> {
        // The stamp is older than what is read: a change in between is read again.
        let stamp = stamp(&files);
        let current = Current { stamp, value: Arc::new(read()?), warned: None };
        Ok(Watched { what, files, current: RwLock::new(current) })
    }

    /// Begins the metric at 0. The files are open before the process has a recorder.
    pub(crate) fn begin_metrics(&self) {
        begin_reload_metrics(self.what);
    }

    /// The value of this moment.
    pub(crate) fn get(&self) -> Arc<T> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).value.clone()
    }

    /// Reads the value again if a file has changed; `read` gets the last one. Files with a fault change nothing, and are read again the next
    /// time: the fault may be one of that moment. Each such attempt counts. Returns whether there is a new value.
    pub(crate) fn refresh<E: Display>(&self, read: impl FnOnce(&T) -> Result<T, E>) -> bool {
        let stamp = stamp(&self.files);
        if self.current.read().unwrap_or_else(PoisonError::into_inner).stamp == stamp {
            return false;
        }
        let read = read(&self.get());
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let Watched { what, files, .. } = self;
        let error = match read {
            Ok(value) => {
                *current = Current { stamp, value: Arc::new(value), warned: None };
                tracing::info!(?files, "the {what} were read again");
                return true;
            }
            Err(error) => error,
        };
        note_failed_reload(self.what);
        if current.warned.as_ref() != Some(&stamp) {
            current.warned = Some(stamp);
            tracing::warn!(?files, %error, "the {what} stay as they were: the files are faulty");
        }
        false
    }
}

/// Begins the metric of failed reloads at 0.
pub(crate) fn begin_reload_metrics(what: &'static str) {
    describe_counter!(
        FAILURES,
        "attempts to read changed files or keys again that have failed: what was read before stays"
    );
    counter!(FAILURES, "what" => what).increment(0);
}

/// Counts a reload that has failed.
pub(crate) fn note_failed_reload(what: &'static str) {
    counter!(FAILURES, "what" => what).increment(1);
}

fn stamp(files: &[PathBuf]) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let stamp = |path: &PathBuf| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s4_a_fault_of_the_moment_does_not_hide_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        let read = |_: &String| std::fs::read_to_string(&file);
        std::fs::write(&file, "one").unwrap();
        let watched = Watched::open("test", vec![file.clone()], || read(&String::new())).unwrap();
        std::fs::write(&file, "second").unwrap();
        assert!(!watched.refresh(|_| Err("too many open files")));
        assert_eq!(*watched.get(), "one");
        assert!(watched.refresh(read));
        assert_eq!(*watched.get(), "second");
        assert!(!watched.refresh(|_| Err("a file that has not changed is not read")));
        assert_eq!(*watched.get(), "second");
    }
}
