//! The names of objects. A name says which times an object has and when it was written, so that a list of names shows which
//! objects a call must open; and it has the checksums of the footer and of the whole object.
//!
//! `NAMESPACE/SLICE/FROM-TO-WRITTEN-CRC-SHA256.parquet`; numbers have 14 digits, so names sort by time.

use crate::error::ArchiveError;
use object_store::path::{Path, PathPart};
use std::ops::Range;

/// Digits of a time: enough until the year 5138.
const DIGITS: usize = 14;
const SUFFIX: &str = ".parquet";

/// What an object's name says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectName {
    /// When it was written, in Unix ms. First: the later object is the greater one.
    pub(crate) written_ms: u64,
    /// The earliest begin and the latest end of its spans, in Unix ms.
    pub(crate) from_ms: u64,
    pub(crate) to_ms: u64,
    /// CRC-32C of its footer.
    pub(crate) footer_crc: u32,
    /// SHA-256 of the object, in hex.
    pub(crate) sha256: String,
}

impl ObjectName {
    pub(crate) fn parse(file: &str) -> Option<ObjectName> {
        let mut parts = file.strip_suffix(SUFFIX)?.split('-');
        let mut time = || parts.next().filter(|digits| digits.len() == DIGITS)?.parse::<u64>().ok();
        let (from_ms, to_ms, written_ms) = (time()?, time()?, time()?);
        let footer_crc = u32::from_str_radix(parts.next().filter(|digits| digits.len() == 8)?, 16).ok()?;
        let sha256 = parts.next().filter(|digits| digits.len() == 64)?.to_owned();
        let name = ObjectName { written_ms, from_ms, to_ms, footer_crc, sha256 };
        (parts.next().is_none() && name.file() == file).then_some(name)
    }

    pub(crate) fn file(&self) -> String {
        let ObjectName { written_ms, from_ms, to_ms, footer_crc, sha256 } = self;
        format!("{from_ms:014}-{to_ms:014}-{written_ms:014}-{footer_crc:08x}-{sha256}{SUFFIX}")
    }

    /// The times of which it may have something, in Unix ms.
    pub(crate) fn times_ms(&self) -> Range<u64> {
        self.from_ms..self.to_ms
    }

    /// Whether it may have something of these times.
    pub(crate) fn overlaps(&self, times_ms: &Range<u64>) -> bool {
        self.from_ms < times_ms.end && times_ms.start < self.to_ms
    }
}

/// The folder of a namespace.
pub(crate) fn folder(namespace: &str) -> Result<Path, ArchiveError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:".contains(c);
    if namespace.is_empty() || !namespace.chars().all(is_plain) {
        return Err(ArchiveError::invalid(format!("{namespace:?} cannot be the name of a folder")));
    }
    // Encodes what a path cannot have, also `.` and `..`.
    Ok(Path::from_iter([PathPart::from(namespace)]))
}

/// The folder of a slice.
pub(crate) fn slice(namespace: &str, slice_ms: u64) -> Result<Path, ArchiveError> {
    Ok(folder(namespace)?.join(format!("{slice_ms:014}")))
}

/// When the slice with this folder begins, in Unix ms.
pub(crate) fn slice_of(folder: &Path) -> Option<u64> {
    folder.filename().filter(|name| name.len() == DIGITS)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n15_a_name_reads_back_and_no_other_text_does() {
        let name = ObjectName {
            written_ms: 3,
            from_ms: 1_795_176_000_000,
            to_ms: 1_795_176_060_000,
            footer_crc: 0xabc,
            sha256: "0a".repeat(32),
        };
        let file = name.file();
        assert_eq!(ObjectName::parse(&file), Some(name));
        for bad in ["", "x.parquet", &file[1..], &file.replace("abc", "ABC"), &format!("{file}#1")] {
            assert_eq!(ObjectName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn n15_no_namespace_is_in_the_folder_of_another() {
        let folders = ["a", "a:1", "a.b", "..", ".", "A", "a-1"].map(|name| folder(name).unwrap());
        for (number, one) in folders.iter().enumerate() {
            assert_eq!(one.parts().count(), 1, "{one}");
            assert!(folders.iter().skip(number + 1).all(|other| other != one), "{one}");
        }
        for bad in ["", "a/b", "../a", "é", "a b"] {
            assert!(folder(bad).is_err(), "{bad}");
        }
        assert_eq!(slice_of(&slice("a", 86_400_000).unwrap()), Some(86_400_000));
    }
}
