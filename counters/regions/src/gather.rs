//! Gathers records of other regions until there are enough to merge them, and notes which regions are silent.

use crate::leader::Led;
use crate::metrics;
use crate::record::{TopicRecord, read};
use rdkafka::Message;
use rdkafka::error::KafkaError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tallystone_counters::redis::{RedisNamespace, TopicPosition};
use tallystone_counters::regions::RegionRecord;
use tallystone_counters::{CounterName, NamespaceName, RegionName};
use tallystone_kafka::TopicFollower;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// Records that are merged together.
const BATCH: usize = 2_000;
/// How long a batch waits for more records.
const GATHER: Duration = Duration::from_millis(50);
/// A reader that gets nothing for this long is replaced, since each region sends heartbeats: librdkafka may have lost the
/// brokers for good (librdkafka #5301). A topic may also have been created, or have more partitions.
const RENEW_AFTER: Duration = Duration::from_secs(20);
/// How far a record may be ahead of this region's clock, in ms. What is further ahead was written under a wrong clock.
const AHEAD_MAX_MS: u64 = 60_000;

/// The namespaces into which records are merged, by name.
pub(crate) type Covered = BTreeMap<NamespaceName, RedisNamespace>;

/// Some records that follow each other in each partition.
pub(crate) struct Batch {
    /// Those that can be merged, by namespace.
    pub(crate) records: BTreeMap<NamespaceName, Vec<(CounterName, RegionName, RegionRecord)>>,
    /// The namespaces of which records were left out, because they are ahead of the clock.
    pub(crate) ahead: BTreeSet<NamespaceName>,
    /// The positions behind all of them.
    pub(crate) positions: Vec<TopicPosition>,
}

/// What it knows of the regions.
#[derive(Default)]
pub(crate) struct Gatherer {
    /// The latest heartbeat of each region, and when it came.
    heard: BTreeMap<RegionName, (u64, Instant)>,
}

impl Gatherer {
    /// Heartbeats of these regions should come from now on.
    pub(crate) fn expect(&mut self, regions: BTreeSet<RegionName>) {
        self.heard.retain(|region, _| {
            let is_expected = regions.contains(region);
            if !is_expected {
                metrics::silent(region, Duration::ZERO);
            }
            is_expected
        });
        for region in regions {
            self.heard.entry(region).or_insert((0, Instant::now()));
        }
    }

    /// The records that come within a moment after the first one. `None`: the reading must begin again.
    pub(crate) async fn gather(
        &mut self,
        follower: &TopicFollower,
        covered: &Covered,
        led: &watch::Receiver<Led>,
    ) -> Result<Option<Batch>, KafkaError> {
        let (mut records, mut ahead) = (BTreeMap::<_, Vec<_>>::new(), BTreeSet::new());
        let mut positions = BTreeMap::new();
        let give_up_at = Instant::now() + RENEW_AFTER;
        let (mut until, mut count) = (None, 0);
        while count < BATCH {
            let now = Instant::now();
            let wait = until.unwrap_or(now + Duration::from_millis(500)).saturating_duration_since(now);
            let Ok(next) = timeout(wait, follower.next()).await else {
                if count > 0 {
                    break;
                }
                self.show_silence();
                if led.has_changed().unwrap_or(true) || Instant::now() >= give_up_at {
                    return Ok(None);
                }
                continue;
            };
            let message = next?;
            until.get_or_insert_with(|| Instant::now() + GATHER);
            count += 1;
            positions.insert((message.topic().to_owned(), message.partition()), message.offset() + 1);
            match read(message.key(), message.payload()) {
                None => metrics::unreadable(),
                Some(TopicRecord::Heartbeat { region, heartbeat }) => self.note_heartbeat(region, heartbeat.sent_ms),
                Some(TopicRecord::Count { region, namespace, counter, record }) => {
                    let is_other = |store: &&RedisNamespace| store.other_regions().any(|other| *other == region);
                    let Some(store) = covered.get(&namespace).filter(is_other) else { continue };
                    if is_ahead(&record, store.now_ms()) {
                        metrics::ahead(&region);
                        ahead.insert(namespace);
                    } else {
                        records.entry(namespace).or_default().push((counter, region, record));
                    }
                }
            }
        }
        self.show_silence();
        let position = |((topic, partition), next_offset)| TopicPosition { topic, partition, next_offset };
        Ok(Some(Batch { records, ahead, positions: positions.into_iter().map(position).collect() }))
    }

    /// One that was sent before the latest one, or is repeated, shows nothing.
    fn note_heartbeat(&mut self, region: RegionName, sent_ms: u64) {
        if let Some(heard) = self.heard.get_mut(&region)
            && sent_ms > heard.0
        {
            *heard = (sent_ms, Instant::now());
        }
    }

    fn show_silence(&self) {
        for (region, (_, at)) in &self.heard {
            metrics::silent(region, at.elapsed());
        }
    }
}

/// Whether a record is of a time that is yet to come. A clear of such a time would remove adds that come after it.
fn is_ahead(record: &RegionRecord, now_ms: u64) -> bool {
    record.cleared_ms.max(record.exact_to_ms).max(record.last_write_ms) > now_ms + AHEAD_MAX_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_a_record_with_any_time_that_is_yet_to_come_is_ahead() {
        let now_ms = 1_795_176_000_000;
        let (right, ahead_ms) = (now_ms + AHEAD_MAX_MS, now_ms + AHEAD_MAX_MS + 1);
        let right =
            RegionRecord { cleared_ms: right, exact_to_ms: right, last_write_ms: right, ..RegionRecord::default() };
        assert!(!is_ahead(&right, now_ms));
        for record in [
            RegionRecord { cleared_ms: ahead_ms, ..right },
            RegionRecord { exact_to_ms: ahead_ms, ..right },
            RegionRecord { last_write_ms: ahead_ms, ..right },
        ] {
            assert!(is_ahead(&record, now_ms), "{record:?}");
        }
    }
}
