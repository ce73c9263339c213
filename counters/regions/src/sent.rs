//! What was sent of counters that need attention again and again, because they lack something: the same record need not be sent
//! each time.

use std::collections::HashMap;
use std::time::Duration;
use tallystone_counters::CounterName;
use tallystone_counters::regions::RegionRecord;
use tokio::time::Instant;

/// A record that stands for this long is sent once more: another process whose lease was over may have sent an earlier one
/// behind it, which compaction would keep.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Records that are known at most. Further ones are sent each time.
const KNOWN_MAX: usize = 100_000;

/// The last records of one term.
#[derive(Default)]
pub(crate) struct Sent {
    term: String,
    records: HashMap<(String, CounterName), (RegionRecord, Instant)>,
}

impl Sent {
    /// Forgets what another term has sent, and what is too old.
    pub(crate) fn begin(&mut self, term: &str, now: Instant) {
        if self.term != term {
            (self.term, self.records) = (term.to_owned(), HashMap::new());
        }
        self.records.retain(|_, (_, at)| now.duration_since(*at) < AGAIN_AFTER);
    }

    /// Whether this record of a counter need not be sent. `tag`: of its namespace.
    pub(crate) fn has(&self, tag: &str, counter: &CounterName, record: &RegionRecord) -> bool {
        let sent = self.records.get(&(tag.to_owned(), counter.clone()));
        sent.is_some_and(|(sent, _)| sent == record)
    }

    /// It was sent, and its counter will need attention again.
    pub(crate) fn note(&mut self, tag: &str, counter: &CounterName, record: RegionRecord, now: Instant) {
        if self.records.len() < KNOWN_MAX && !self.has(tag, counter, &record) {
            self.records.insert((tag.to_owned(), counter.clone()), (record, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n12_a_record_that_stands_is_sent_once_a_minute() {
        let (mut sent, begun) = (Sent::default(), Instant::now());
        let counter = CounterName::parse("a").unwrap();
        let record = RegionRecord { count: 5, exact_to_ms: 1_000, ..RegionRecord::default() };
        sent.begin("one", begun);
        assert!(!sent.has("ads", &counter, &record));
        sent.note("ads", &counter, record, begun);
        sent.note("ads", &counter, record, begun + AGAIN_AFTER / 2);
        assert!(sent.has("ads", &counter, &record) && !sent.has("others", &counter, &record));
        assert!(!sent.has("ads", &counter, &RegionRecord { exact_to_ms: 1_500, ..record }), "a rollup has committed");
        sent.begin("one", begun + AGAIN_AFTER - Duration::from_millis(1));
        assert!(sent.has("ads", &counter, &record));
        sent.begin("one", begun + AGAIN_AFTER);
        assert!(!sent.has("ads", &counter, &record), "the minute began when it was sent");
        sent.note("ads", &counter, record, begun);
        sent.begin("two", begun);
        assert!(!sent.has("ads", &counter, &record), "another process may have sent others meanwhile");
    }
}
