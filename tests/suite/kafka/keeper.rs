//! A history store that only keeps what it is given, and can be made to refuse it.

use super::DEADLINE;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tallystone_indexer::*;
use tallystone_model::Recorded;
use tallystone_proto::history::v1::{Activity, IndexedMessage};
use tokio::sync::watch;

/// What it was given.
#[derive(Default)]
pub(super) struct Kept {
    /// By message and version, and how often.
    pub(super) events: BTreeMap<(String, u32), (Recorded, usize)>,
    /// Of each source, how far it is.
    pub(super) reached: BTreeMap<u32, u64>,
    /// How many sources there are, as it was told.
    pub(super) of: BTreeSet<u32>,
    /// Calls that it refused.
    pub(super) refused: usize,
    refuses: Option<HistoryError>,
    /// From the first call on.
    refuses_for: Option<(Duration, Option<Instant>)>,
    rejects: BTreeSet<String>,
}

impl Kept {
    /// Every version of every message is there from 1 on without a gap; how many messages.
    pub(super) fn whole_messages(&self) -> usize {
        let mut versions: BTreeMap<&str, u32> = BTreeMap::new();
        for (id, version) in self.events.keys() {
            let last = versions.entry(id).or_default();
            assert_eq!(*version, *last + 1, "a gap in {id}");
            *last = *version;
        }
        versions.len()
    }

    /// Events that it was given more than once.
    pub(super) fn repeated(&self) -> usize {
        self.events.values().filter(|(_, times)| *times > 1).count()
    }
}

/// The store.
pub(super) struct Keeper {
    kept: Mutex<Kept>,
    changed: watch::Sender<()>,
}

impl Keeper {
    pub(super) fn new() -> Arc<Keeper> {
        Arc::new(Keeper { kept: Mutex::default(), changed: watch::Sender::new(()) })
    }

    pub(super) fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it refuses all with this error, or nothing.
    pub(super) fn refuse(&self, error: Option<HistoryError>) {
        self.kept().refuses = error;
    }

    /// It is unavailable for so long after the next call.
    pub(super) fn refuse_for(&self, time: Duration) {
        self.kept().refuses_for = Some((time, None));
    }

    /// It rejects the events of this message.
    pub(super) fn reject(&self, id: &str) {
        self.kept().rejects.insert(id.to_owned());
    }

    /// Waits until what it has been given is so.
    pub(super) async fn until(&self, what: &str, is_so: impl Fn(&Kept) -> bool) {
        let mut changed = self.changed.subscribe();
        let waited = tokio::time::timeout(DEADLINE, async {
            while !is_so(&self.kept()) {
                changed.changed().await.expect("the keeper is there");
            }
        });
        if waited.await.is_err() {
            let kept = self.kept();
            panic!("not in {DEADLINE:?}: {what}; {} events, reached {:?}", kept.events.len(), kept.reached);
        }
    }

    /// Waits until it has so many different events.
    pub(super) async fn until_events(&self, count: usize) {
        self.until(&format!("{count} events"), |kept| kept.events.len() >= count).await;
        assert_eq!(self.kept().events.len(), count);
    }
}

impl Kept {
    fn refusal(&mut self) -> Option<HistoryError> {
        if let Some((time, since)) = &mut self.refuses_for {
            if since.get_or_insert_with(Instant::now).elapsed() < *time {
                return Some(HistoryError::Unavailable("not for a while".to_owned()));
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

/// What nobody asks it.
fn no_answer<T>() -> Result<T, HistoryError> {
    Err(HistoryError::Failed("it only keeps".to_owned()))
}

impl HistoryStore for Keeper {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        let answer = self.kept().take(events);
        self.changed.send_replace(());
        answer
    }

    async fn advance(&self, source: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        {
            let mut kept = self.kept();
            kept.of.insert(source.of);
            let reached = kept.reached.entry(source.number).or_default();
            *reached = up_to_ms.max(*reached);
        }
        self.changed.send_replace(());
        Ok(())
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        no_answer()
    }

    async fn trace(&self, _: &TraceQuery) -> Result<Trace, HistoryError> {
        no_answer()
    }

    async fn search(&self, _: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        no_answer()
    }

    async fn stats(&self, _: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        no_answer()
    }

    async fn depth(&self, _: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        no_answer()
    }

    async fn prune(&self, _: u64) -> Result<bool, HistoryError> {
        no_answer()
    }
}
