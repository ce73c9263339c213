//! The content of a record: its key names the region and the counter, its value is JSON.

use serde::{Deserialize, Serialize};
use tallystone_counters::regions::RegionRecord;
use tallystone_counters::{CounterName, NamespaceName, RegionName};

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TopicRecord {
    /// What a region has published of a counter.
    Count { region: RegionName, namespace: NamespaceName, counter: CounterName, record: RegionRecord },
    /// A region publishes, though perhaps no counter changes.
    Heartbeat { region: RegionName, heartbeat: Heartbeat },
}

/// The value of a record whose key is a region alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heartbeat {
    /// When it was sent, by the clock of the region's store, in Unix ms.
    pub(crate) sent_ms: u64,
}

/// The key of a counter: compaction keeps the latest record of each. Only a counter's name may have a slash.
pub(crate) fn key_of(region: &RegionName, namespace: &NamespaceName, counter: &CounterName) -> String {
    format!("{region}/{namespace}/{counter}")
}

/// The value of a counter or a heartbeat.
pub(crate) fn value_of(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

/// Reads a record; `None`: it is none of ours, or a later version has written it.
pub(crate) fn read(key: Option<&[u8]>, value: Option<&[u8]>) -> Option<TopicRecord> {
    let (key, value) = (std::str::from_utf8(key?).ok()?, value?);
    let mut parts = key.splitn(3, '/');
    let region = RegionName::parse(parts.next()?).ok()?;
    let Some(namespace) = parts.next() else {
        return Some(TopicRecord::Heartbeat { region, heartbeat: serde_json::from_slice(value).ok()? });
    };
    let (namespace, counter) = (NamespaceName::parse(namespace).ok()?, CounterName::parse(parts.next()?).ok()?);
    let record: RegionRecord = serde_json::from_slice(value).ok()?;
    // The store has 6 bytes for each.
    let is_stored = |number: u64| number < 1 << 48;
    let RegionRecord { incarnation, cleared_ms, exact_to_ms, last_write_ms, .. } = record;
    let all_stored = [incarnation, cleared_ms, exact_to_ms, last_write_ms].into_iter().all(is_stored);
    all_stored.then_some(TopicRecord::Count { region, namespace, counter, record })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_a_record_reads_back() {
        let region = RegionName::parse("eu").unwrap();
        let (namespace, counter) = (NamespaceName::parse("ads").unwrap(), CounterName::parse("a/b c").unwrap());
        let record = RegionRecord {
            incarnation: 1,
            cleared_ms: 2,
            epoch: 3,
            exact_to_ms: 1_795_176_000_000,
            last_write_ms: 4,
            count: i64::MIN,
        };
        let key = key_of(&region, &namespace, &counter);
        assert_eq!(key, "eu/ads/a/b c");
        let found = read(Some(key.as_bytes()), Some(&value_of(&record)));
        assert_eq!(found, Some(TopicRecord::Count { region: region.clone(), namespace, counter, record }));
        let heartbeat = Heartbeat { sent_ms: 7 };
        let found = read(Some(b"eu"), Some(&value_of(&heartbeat)));
        assert_eq!(found, Some(TopicRecord::Heartbeat { region, heartbeat }));
    }

    #[test]
    fn n12_what_is_no_record_is_not_read() {
        let good = value_of(&RegionRecord::default());
        let late = RegionRecord { exact_to_ms: 1 << 48, ..RegionRecord::default() };
        for (key, value) in [
            (None, Some(&good[..])),
            (Some(&b"eu/ads/c"[..]), None),
            (Some(b"eu/ads"), Some(&good)),
            (Some(b"e u/ads/c"), Some(&good)),
            (Some(b"eu/a d/c"), Some(&good)),
            (Some(b"eu/ads/"), Some(&good)),
            (Some(b"\xff/ads/c"), Some(&good)),
            (Some(b"eu/ads/c"), Some(b"{}")),
            (Some(b"eu/ads/c"), Some(b"1")),
            (Some(b"eu/ads/c"), Some(&value_of(&late))),
            (Some(b"eu"), Some(&good)),
        ] {
            assert_eq!(read(key, value), None, "{key:?}");
        }
        assert!(read(Some(b"eu/ads/c"), Some(&good)).is_some());
    }
}
