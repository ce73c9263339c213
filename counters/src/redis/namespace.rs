//! A namespace as the registry has it.

use super::calls::defect;
use super::record::read;
use crate::names::NamespaceName;
use crate::namespace::NamespaceConfig;
use crate::refusal::Refusal;

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
        let (revision, incarnation, json) = split(raw).ok_or_else(|| defect("an unreadable namespace"))?;
        let config = serde_json::from_slice(json).map_err(|error| Refusal::Internal(format!("'{name}': {error}")))?;
        Ok(Namespace { name, config, revision, incarnation })
    }
}

/// Revision, incarnation, and the configuration as JSON.
fn split(raw: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (revision, rest) = raw.split_at_checked(6)?;
    let (incarnation, json) = match rest.strip_prefix(b"#") {
        Some(rest) => rest.split_at_checked(6)?,
        None => (&[][..], rest),
    };
    Some((read(revision), read(incarnation), json))
}
