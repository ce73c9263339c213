//! The action line of one write.

use serde::Serialize;

/// What to do with a document.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::elastic) enum Action<'a> {
    /// Write it unless it exists.
    Create(Target<'a>),
    /// Write it unless a newer version exists.
    Index(Target<'a>),
    /// Remove it unless a newer version exists.
    Delete(Target<'a>),
}

/// Which document.
#[derive(Serialize)]
pub(in crate::elastic) struct Target<'a> {
    #[serde(rename = "_index")]
    pub(in crate::elastic) index: &'a str,
    #[serde(rename = "_id")]
    pub(in crate::elastic) id: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(in crate::elastic) version: Option<ExternalVersion>,
}

/// A version that the writer gives, instead of one that the server counts.
#[derive(Serialize)]
pub(in crate::elastic) struct ExternalVersion {
    version: u64,
    version_type: &'static str,
}

impl ExternalVersion {
    /// The same version may be written again.
    pub(in crate::elastic) fn of(version: u64) -> Option<ExternalVersion> {
        Some(ExternalVersion { version, version_type: "external_gte" })
    }

    /// Only an earlier version may be there.
    pub(in crate::elastic) fn above(version: u64) -> Option<ExternalVersion> {
        Some(ExternalVersion { version, version_type: "external" })
    }
}
