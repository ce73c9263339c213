//! Filters over metadata (Q8), and the sets of key names by which a queue is indexed.

use crate::limits::METADATA_PAIRS_MAX;
use crate::names::{Metadata, check_pairs, check_text};
use crate::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};

/// A conjunction: every pair is in the message's metadata. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Filter(BTreeMap<String, String>);

impl Filter {
    /// Parses a filter; the refusal names the field `filters`.
    pub fn parse(pairs: BTreeMap<String, String>) -> Result<Self, Refusal> {
        if pairs.is_empty() || pairs.len() > METADATA_PAIRS_MAX {
            let why = format!("has {} pairs; must have 1 to {METADATA_PAIRS_MAX}", pairs.len());
            return Err(Refusal::invalid("filters", why));
        }
        check_pairs("filters", &pairs)?;
        Ok(Filter(pairs))
    }

    /// Whether a message with this metadata passes.
    pub fn matches(&self, metadata: &Metadata) -> bool {
        self.0.iter().all(|(key, value)| metadata.get(key) == Some(value))
    }

    /// The pairs, sorted by key.
    pub fn pairs(&self) -> &BTreeMap<String, String> {
        &self.0
    }

    /// The key names of the index that serves this filter.
    pub fn index_keys(&self) -> IndexKeys {
        IndexKeys(self.0.keys().cloned().collect())
    }
}

/// The metadata key names of a filter index, 1 to 4 of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct IndexKeys(BTreeSet<String>);

impl IndexKeys {
    /// Parses key names; the refusal names the field `indexes`.
    pub fn parse(keys: impl IntoIterator<Item = String>) -> Result<Self, Refusal> {
        let keys: BTreeSet<String> = keys.into_iter().collect();
        if keys.is_empty() || keys.len() > METADATA_PAIRS_MAX {
            let why = format!("has {} key names; must have 1 to {METADATA_PAIRS_MAX}", keys.len());
            return Err(Refusal::invalid("indexes", why));
        }
        for key in &keys {
            check_text("indexes", key, 1, crate::limits::METADATA_KEY_BYTES_MAX)?;
        }
        Ok(IndexKeys(keys))
    }

    /// This name alone, which was checked as a key of metadata.
    pub(crate) fn of(key: &str) -> Self {
        IndexKeys(BTreeSet::from([key.to_owned()]))
    }

    /// The names, sorted.
    pub fn names(&self) -> &BTreeSet<String> {
        &self.0
    }
}

impl std::fmt::Display for IndexKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.iter().map(String::as_str).collect::<Vec<_>>().join(","))
    }
}
