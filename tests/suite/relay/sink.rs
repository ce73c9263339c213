//! A sink in memory that checks what it receives, and fails or hangs on request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_model::{Event, Loss, Recorded, Shard, Sink, SinkError};
use tokio::sync::watch;

/// The sink.
#[derive(Default)]
pub(super) struct TestSink {
    received: Mutex<Received>,
    hangs: watch::Sender<bool>,
}

#[derive(Default)]
struct Received {
    events: Vec<Recorded>,
    /// Each loss, with the number of events before it.
    losses: Vec<(usize, Loss)>,
    watermark: u64,
    late: usize,
    refused: usize,
    fails: bool,
    longest_lag_ms: u64,
}

impl TestSink {
    fn lock(&self) -> MutexGuard<'_, Received> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While this is set, deliveries do not return.
    pub(super) fn hang(&self, hangs: bool) {
        self.hangs.send_replace(hangs);
    }

    /// While this is set, deliveries fail after half of their events.
    pub(super) fn fail(&self, fails: bool) {
        self.lock().fails = fails;
    }

    /// The events of one shard in order, each once.
    pub(super) fn of(&self, shard: &Shard) -> Vec<Event> {
        self.by_offset(shard).into_values().collect()
    }

    fn by_offset(&self, shard: &Shard) -> BTreeMap<u64, Event> {
        let received = self.lock();
        let of_shard = received.events.iter().filter(|recorded| recorded.shard == *shard);
        of_shard.map(|recorded| (recorded.offset, recorded.event.clone())).collect()
    }

    pub(super) fn offsets(&self, shard: &Shard) -> Vec<u64> {
        self.by_offset(shard).into_keys().collect()
    }

    /// Messages whose versions have gaps.
    pub(super) fn lost_versions(&self, shard: &Shard) -> Vec<String> {
        let mut versions: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for event in self.of(shard) {
            versions.entry(event.sequence).or_default().insert(event.version);
        }
        let whole = |seen: &BTreeSet<u32>| seen.iter().copied().eq(1..=seen.len() as u32);
        versions.into_iter().filter(|(_, seen)| !whole(seen)).map(|(at, seen)| format!("{at}: {seen:?}")).collect()
    }

    pub(super) fn watermark(&self) -> u64 {
        self.lock().watermark
    }

    /// The number of events that first arrived after a watermark which covers them.
    pub(super) fn late(&self) -> usize {
        self.lock().late
    }

    /// The losses, each with the number of events that were delivered before it.
    pub(super) fn losses(&self) -> Vec<(usize, Loss)> {
        self.lock().losses.clone()
    }

    pub(super) fn refused(&self) -> usize {
        self.lock().refused
    }

    /// The longest time from a transition to its delivery.
    pub(super) fn longest_lag_ms(&self) -> u64 {
        self.lock().longest_lag_ms
    }
}

impl Sink for TestSink {
    async fn deliver(&self, events: Arc<Vec<Recorded>>) -> Result<(), SinkError> {
        let _ = self.hangs.subscribe().wait_for(|hangs| !hangs).await;
        let mut received = self.lock();
        if received.fails {
            received.refused += 1;
            let half = events.len() / 2;
            received.events.extend(events.iter().take(half).cloned());
            return Err(SinkError("fails on request".to_owned()));
        }
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970").as_millis() as u64;
        for recorded in events.iter() {
            let seen =
                received.events.iter().any(|other| other.shard == recorded.shard && other.offset == recorded.offset);
            if recorded.event.at_ms <= received.watermark && !seen {
                received.late += 1;
            }
            received.longest_lag_ms = received.longest_lag_ms.max(now_ms.saturating_sub(recorded.event.at_ms));
        }
        received.events.extend(events.iter().cloned());
        Ok(())
    }

    async fn lost(&self, losses: Arc<Vec<Loss>>) -> Result<(), SinkError> {
        let mut received = self.lock();
        if received.fails {
            received.refused += 1;
            return Err(SinkError("fails on request".to_owned()));
        }
        let before = received.events.len();
        received.losses.extend(losses.iter().map(|loss| (before, loss.clone())));
        Ok(())
    }

    async fn delivered_to(&self, up_to_ms: u64) -> Result<(), SinkError> {
        let mut received = self.lock();
        if received.fails {
            return Err(SinkError("fails on request".to_owned()));
        }
        received.watermark = received.watermark.max(up_to_ms);
        Ok(())
    }
}
