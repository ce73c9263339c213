//! Whether files have changed.

use std::path::Path;
use std::time::SystemTime;

/// What shows that one of some files has changed, or has been replaced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<Option<(SystemTime, u64, u64)>>);

impl Stamp {
    /// The files as they are now. A file that cannot be read has a stamp too.
    pub(crate) fn of<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Stamp {
        use std::os::unix::fs::MetadataExt as _;
        let stamp = |path: P| {
            let metadata = std::fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.ino(), metadata.len()))
        };
        Stamp(paths.into_iter().map(stamp).collect())
    }
}
