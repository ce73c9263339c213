//! A history store that only records its calls, and can be made to refuse them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tallystone_indexer::*;
use tallystone_model::{Loss, Recorded};
use tallystone_proto::history::v1::{Activity, IndexedMessage};
use tokio::sync::watch;

/// How long a test waits for what must happen; generous, because the machine may be busy.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// The calls so far.
#[derive(Default)]
pub(super) struct Recording {
    /// The events by message and version, and how often each was written.
    pub(super) events: BTreeMap<(String, u32), (Recorded, usize)>,
    /// The losses, as often as they were written.
    pub(super) losses: Vec<Loss>,
    /// The watermark of each source.
    pub(super) watermarks: BTreeMap<u32, u64>,
    /// The numbers of sources that callers gave.
    pub(super) source_counts: BTreeSet<u32>,
    /// The number of refused calls.
    pub(super) refused: usize,
    refuses: Option<HistoryError>,
    /// Refuses calls for this time after the first one.
    refuses_for: Option<(Duration, Option<Instant>)>,
    rejects: BTreeSet<String>,
}

impl Recording {
    /// Checks that the versions of every message begin with 1 and have no gap. Returns the number of messages.
    pub(super) fn whole_messages(&self) -> usize {
        let mut versions: BTreeMap<&str, u32> = BTreeMap::new();
        for (id, version) in self.events.keys() {
            let last = versions.entry(id).or_default();
            assert_eq!(*version, *last + 1, "a gap in {id}");
            *last = *version;
        }
        versions.len()
    }

    /// The number of events that were written more than once.
    pub(super) fn repeated(&self) -> usize {
        self.events.values().filter(|(_, times)| *times > 1).count()
    }
}

/// The store.
pub(super) struct RecordingStore {
    recording: Mutex<Recording>,
    changed: watch::Sender<()>,
}

impl RecordingStore {
    pub(super) fn new() -> Arc<RecordingStore> {
        Arc::new(RecordingStore { recording: Mutex::default(), changed: watch::Sender::new(()) })
    }

    pub(super) fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses every call with this error from now on; `None`: accepts calls again.
    pub(super) fn refuse(&self, error: Option<HistoryError>) {
        self.recording().refuses = error;
    }

    /// Is unavailable for this time, which begins with the next call.
    pub(super) fn refuse_for(&self, time: Duration) {
        self.recording().refuses_for = Some((time, None));
    }

    /// Rejects the events of this message.
    pub(super) fn reject(&self, id: &str) {
        self.recording().rejects.insert(id.to_owned());
    }

    /// Waits until the condition is true.
    pub(super) async fn until(&self, what: &str, is_true: impl Fn(&Recording) -> bool) {
        let mut changed = self.changed.subscribe();
        let waited = tokio::time::timeout(DEADLINE, async {
            while !is_true(&self.recording()) {
                changed.changed().await.expect("the sender lives as long as the store");
            }
        });
        if waited.await.is_err() {
            let recording = self.recording();
            panic!(
                "not in {DEADLINE:?}: {what}; {} events, watermarks {:?}",
                recording.events.len(),
                recording.watermarks
            );
        }
    }

    /// Waits until it has exactly this many different events.
    pub(super) async fn until_events(&self, count: usize) {
        self.until(&format!("{count} events"), |recording| recording.events.len() >= count).await;
        assert_eq!(self.recording().events.len(), count);
    }
}

impl Recording {
    fn refusal(&mut self) -> Option<HistoryError> {
        if let Some((time, since)) = &mut self.refuses_for {
            if since.get_or_insert_with(Instant::now).elapsed() < *time {
                return Some(HistoryError::Unavailable("unavailable for a while".to_owned()));
            }
            self.refuses_for = None;
        }
        self.refuses.clone()
    }

    fn take(&mut self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        if let Some(error) = self.refusal() {
            self.refused += 1;
            return Err(error);
        }
        let mut rejected = Vec::new();
        for (index, recorded) in events.iter().enumerate() {
            let id = recorded.event.id.to_string();
            if self.rejects.contains(&id) {
                rejected.push(Rejected { index, why: format!("{id} is not wanted") });
                continue;
            }
            let key = (id, recorded.event.version);
            self.events.entry(key).or_insert_with(|| (recorded.clone(), 0)).1 += 1;
        }
        Ok(rejected)
    }
}

/// The indexer makes no queries.
fn unsupported<T>() -> Result<T, HistoryError> {
    Err(HistoryError::Failed("this store only records".to_owned()))
}

impl HistoryStore for RecordingStore {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        let result = self.recording().take(events);
        self.changed.send_replace(());
        result
    }

    async fn advance(&self, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        {
            let mut recording = self.recording();
            recording.source_counts.insert(source.of);
            let watermark = recording.watermarks.entry(source.number).or_default();
            *watermark = up_to_ms.max(*watermark);
        }
        self.changed.send_replace(());
        Ok(())
    }

    async fn record_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        self.recording().losses.extend(losses.iter().cloned());
        self.changed.send_replace(());
        Ok(())
    }

    async fn losses(&self, _: &Queues) -> Result<Vec<Loss>, HistoryError> {
        unsupported()
    }

    async fn settle_losses(&self, _: &[Loss]) -> Result<(), HistoryError> {
        unsupported()
    }

    async fn repair(&self, _: &[IndexedMessage]) -> Result<Vec<bool>, HistoryError> {
        unsupported()
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        unsupported()
    }

    async fn trace(&self, _: &TraceQuery) -> Result<Trace, HistoryError> {
        unsupported()
    }

    async fn search(&self, _: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        unsupported()
    }

    async fn stats(&self, _: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        unsupported()
    }

    async fn depth(&self, _: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        unsupported()
    }

    async fn depth_by(&self, _: &DepthQuery, _: &Grouping) -> Result<Vec<(String, [u64; 6])>, HistoryError> {
        unsupported()
    }

    async fn prune(&self, _: u64) -> Result<bool, HistoryError> {
        unsupported()
    }
}
