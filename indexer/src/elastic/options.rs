//! The address of Elasticsearch, and how its indices are created.

use super::access::ElasticAccess;
use std::fmt;
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;
/// Indices of one kind that the retention spans; one more is being written.
const INDICES: u64 = 7;

/// When history continues in a new index: at the start of an hour, once the index is too old or too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rollover {
    /// The most days in one index.
    pub days: u16,
    /// The most documents of each primary shard. An index may exceed it by those of an hour.
    pub documents_max: u64,
    /// The most bytes of each primary shard. An index may exceed it by those of an hour.
    pub bytes_max: u64,
}

impl Default for Rollover {
    fn default() -> Self {
        Rollover { days: 1, documents_max: 200_000_000, bytes_max: 50 * 1024 * 1024 * 1024 }
    }
}

/// The days of an index where none are configured: each query searches every index that the retention leaves, so these are
/// about eight of a kind, however long the retention is. At most 31.
pub(crate) fn index_days(retention_ms: u64) -> u16 {
    let days = retention_ms.div_ceil(INDICES * DAY_MS).clamp(1, 31);
    u16::try_from(days).unwrap_or(1)
}

/// Queues whose history has separate indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElasticGroup {
    /// The queues whose names begin so, unless a longer prefix of another group fits.
    pub queue_prefix: String,
    /// The prefix of their index and template names.
    pub prefix: String,
    /// How long transitions, and messages that are gone, are kept.
    pub retention_ms: u64,
    /// The most days in one of their indices.
    pub index_days: u16,
    /// Whether their events come by a separate topic, which has its own watermarks.
    pub has_topic: bool,
}

/// The options of an [`Elastic`](super::Elastic).
#[derive(Clone, PartialEq, Eq)]
pub struct ElasticOptions {
    /// `http://` or `https://`, without user and password.
    pub url: String,
    /// User, API key and CAs.
    pub access: ElasticAccess,
    /// The prefix of all index and template names: a-z 0-9 - _.
    pub prefix: String,
    /// Primary shards of a new index of messages or transitions.
    pub shards: u16,
    /// Replicas of each primary shard.
    pub replicas: u16,
    /// How long transitions, and messages that are gone, are kept.
    pub retention_ms: u64,
    /// When an index is followed by a new one.
    pub rollover: Rollover,
    /// Queues with separate indices.
    pub groups: Vec<ElasticGroup>,
    /// The longest wait for the response to one request.
    pub request_timeout: Duration,
}

impl ElasticOptions {
    /// The defaults, with this address.
    pub fn new(url: impl Into<String>) -> Self {
        ElasticOptions {
            url: url.into(),
            access: ElasticAccess::default(),
            prefix: "tallystone".to_owned(),
            shards: 1,
            replicas: 1,
            retention_ms: 30 * DAY_MS,
            rollover: Rollover::default(),
            groups: Vec::new(),
            request_timeout: Duration::from_secs(30),
        }
    }
}

impl fmt::Debug for ElasticOptions {
    /// Without the address, which may have a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ElasticOptions")
            .field("prefix", &self.prefix)
            .field("shards", &self.shards)
            .field("replicas", &self.replicas)
            .field("retention_ms", &self.retention_ms)
            .field("rollover", &self.rollover)
            .field("groups", &self.groups)
            .field("request_timeout", &self.request_timeout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_retention_has_longer_indices_rather_than_more() {
        let days = [0, 1, 7, 8, 14, 30, 90, 365, 3_650].map(|days| index_days(days * DAY_MS));
        assert_eq!(days, [1, 1, 1, 2, 2, 5, 13, 31, 31]);
    }

    #[test]
    fn a_password_is_not_printed() {
        let shown = format!("{:?}", ElasticOptions::new("http://user:secret@search:9200"));
        assert!(!shown.contains("secret") && shown.contains("tallystone"), "{shown}");
    }
}
