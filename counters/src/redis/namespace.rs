//! A namespace as the registry has it.

use super::calls::defect;
use super::record::read;
use crate::names::NamespaceName;
use crate::namespace::NamespaceConfig;
use crate::refusal::Refusal;
use tallystone_lua::counter::FIRST_AGE_MS_MAX;

/// A namespace in one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name.
    pub name: NamespaceName,
    /// Its configuration.
    pub config: NamespaceConfig,
    /// 1 when it is created; every change raises it by one.
    pub revision: u64,
    /// Distinguishes namespaces of the same name: one that is created after another was deleted has a higher one (N14).
    pub incarnation: u64,
    /// Events before this time may have been dropped while the namespace kept them for less long than now, in Unix ms; 0: none.
    pub kept_from_ms: u64,
}

impl Namespace {
    /// What its keys and its rollup queues are named after. No other incarnation has the same.
    pub fn tag(&self) -> String {
        match self.incarnation {
            0 => self.name.to_string(),
            incarnation => format!("{}:{incarnation}", self.name),
        }
    }

    /// Reads an entry of the registry (`counter/lib/registry.lua`).
    pub(super) fn decode(name: NamespaceName, raw: &[u8]) -> Result<Namespace, Refusal> {
        let (revision, rest) = raw.split_at_checked(6).ok_or_else(|| defect("an unreadable namespace"))?;
        let (incarnation, rest) = marked(b"#", rest).ok_or_else(|| defect("an unreadable incarnation"))?;
        let (kept_from_ms, json) = marked(b"<", rest).ok_or_else(|| defect("an unreadable time of a retention"))?;
        let config = serde_json::from_slice(json).map_err(|error| Refusal::Internal(format!("'{name}': {error}")))?;
        Ok(Namespace { name, config, revision: read(revision), incarnation, kept_from_ms })
    }
}

/// Where a namespace comes from (`counter/lib/registry.lua`). The default: an earlier version has created it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Origin {
    /// The incarnation of its records in other regions (N12); 0: that of the namespace.
    record_incarnation: u64,
    /// Since when it exists, in Unix ms; 0: this is not known.
    since_ms: u64,
}

impl Origin {
    /// Reads the field of the registry for a namespace of this incarnation.
    pub(super) fn decode(raw: &[u8], incarnation: u64) -> Origin {
        // An earlier version may have deleted a namespace, and left the field.
        match raw.len() == 18 && read(&raw[..6]) == incarnation {
            true => Origin { record_incarnation: read(&raw[6..12]), since_ms: read(&raw[12..]) },
            false => Origin::default(),
        }
    }

    /// The incarnation of the namespace's records in other regions.
    pub(super) fn record_incarnation(&self, incarnation: u64) -> u64 {
        if self.record_incarnation > 0 { self.record_incarnation } else { incarnation }
    }

    /// No event of the namespace is before this time, in Unix ms; 0: this is not known.
    pub(super) fn first_ms(&self) -> u64 {
        // The longest accept limit, and a minute for clocks that differ.
        self.since_ms.saturating_sub(FIRST_AGE_MS_MAX)
    }
}

/// A number of 6 bytes behind a mark, and what follows it; 0 without the mark.
fn marked<'a>(mark: &[u8], raw: &'a [u8]) -> Option<(u64, &'a [u8])> {
    match raw.strip_prefix(mark) {
        Some(rest) => rest.split_at_checked(6).map(|(number, rest)| (read(number), rest)),
        None => Some((0, raw)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n1_an_entry_reads_back_with_and_without_its_marks() {
        let read = |head: &[u8]| {
            let name = NamespaceName::parse("ads").unwrap();
            Namespace::decode(name, &[head, b"{}"].concat()).map(|found| {
                assert_eq!(found.config, NamespaceConfig::default());
                (found.revision, found.incarnation, found.kept_from_ms)
            })
        };
        assert_eq!(read(b"\0\0\0\0\0\x07"), Ok((7, 0, 0)));
        assert_eq!(read(b"\0\0\0\0\0\x07#\0\0\0\0\0\x02"), Ok((7, 2, 0)));
        assert_eq!(read(b"\0\0\0\0\0\x07<\0\0\0\0\x01\0"), Ok((7, 0, 256)));
        assert_eq!(read(b"\0\0\0\0\0\x07#\0\0\0\0\0\x02<\0\0\0\0\x01\0"), Ok((7, 2, 256)));
        assert!(read(b"\0\0\0\0\0\x07<\0").is_err());
        assert!(read(b"\0\0").is_err());
    }

    #[test]
    fn n12_an_origin_is_of_one_incarnation_and_may_be_missing() {
        let raw = b"\0\0\0\0\0\x03\0\0\0\0\x01\0\0\0\0\x70\0\0";
        let found = Origin::decode(raw, 3);
        assert_eq!((found.record_incarnation(3), found.first_ms()), (256, 0x0070_0000 - FIRST_AGE_MS_MAX));
        for found in [Origin::decode(raw, 4), Origin::decode(&raw[1..], 3), Origin::default()] {
            assert_eq!((found.record_incarnation(4), found.first_ms()), (4, 0));
        }
    }
}
