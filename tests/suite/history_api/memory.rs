//! A history store in memory: it keeps every event, folds the events for each query, and can be made to fail or wait.

use std::collections::BTreeMap;
use std::sync::Mutex;
use tallystone_indexer::fold::{message, message_key, transition};
use tallystone_indexer::{
    DepthQuery, Grouping, HistoryError, HistoryStore, Queues, Rejected, SearchPosition, SearchQuery, Source,
    StatsQuery, Trace, TraceQuery,
};
use tallystone_model::{Loss, Recorded, State};
use tallystone_proto::history::v1::{Activity, IndexedMessage};

#[derive(Default)]
pub(super) struct MemoryStore {
    events: Mutex<BTreeMap<(String, u32), Recorded>>,
    losses: Mutex<Vec<Loss>>,
    watermark: Mutex<Option<u64>>,
    /// If set, every call except `record` fails with this error.
    pub(super) failure: Mutex<Option<HistoryError>>,
    /// Queries wait while this is held.
    pub(super) gate: tokio::sync::Mutex<()>,
    /// The queries so far, in order.
    pub(super) queries: Mutex<Vec<String>>,
}

impl MemoryStore {
    async fn begin(&self, query: String) -> Result<(), HistoryError> {
        self.queries.lock().expect("unpoisoned").push(query);
        drop(self.gate.lock().await);
        self.failure.lock().expect("unpoisoned").clone().map_or(Ok(()), Err)
    }

    /// Each message after its newest event.
    fn messages(&self) -> Vec<IndexedMessage> {
        let mut newest = BTreeMap::new();
        for ((key, _), recorded) in &*self.events.lock().expect("unpoisoned") {
            newest.insert(key.clone(), message(recorded));
        }
        newest.into_values().collect()
    }
}

/// The order of a search.
fn rank(at: &SearchPosition) -> impl Ord + use<> {
    (u64::MAX - at.enqueued_at_ms, u64::MAX - at.sequence, at.queue.clone(), at.shard)
}

impl HistoryStore for MemoryStore {
    async fn record(&self, events: &[Recorded]) -> Result<Vec<Rejected>, HistoryError> {
        let mut kept = self.events.lock().expect("unpoisoned");
        kept.extend(events.iter().map(|recorded| ((message_key(recorded), recorded.event.version), recorded.clone())));
        Ok(Vec::new())
    }

    async fn advance(&self, _: Source, up_to_ms: u64) -> Result<(), HistoryError> {
        *self.watermark.lock().expect("unpoisoned") = Some(up_to_ms);
        Ok(())
    }

    async fn record_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        self.losses.lock().expect("unpoisoned").extend(losses.iter().cloned());
        Ok(())
    }

    async fn losses(&self, queues: &Queues) -> Result<Vec<Loss>, HistoryError> {
        let losses = self.losses.lock().expect("unpoisoned");
        Ok(losses.iter().filter(|loss| queues.contains(loss.shard.queue.as_str())).cloned().collect())
    }

    async fn settle_losses(&self, losses: &[Loss]) -> Result<(), HistoryError> {
        self.losses.lock().expect("unpoisoned").retain(|loss| !losses.contains(loss));
        Ok(())
    }

    async fn repair(&self, messages: &[IndexedMessage]) -> Result<Vec<bool>, HistoryError> {
        Ok(vec![false; messages.len()])
    }

    async fn watermark(&self) -> Result<Option<u64>, HistoryError> {
        self.begin("watermark".to_owned()).await?;
        Ok(*self.watermark.lock().expect("unpoisoned"))
    }

    async fn trace(&self, query: &TraceQuery) -> Result<Trace, HistoryError> {
        self.begin(format!("{query:?}")).await?;
        let is_wanted = |sequence| query.sequence.is_none_or(|only| only == sequence);
        let events = self.events.lock().expect("unpoisoned");
        let mut transitions: Vec<_> = events
            .values()
            .filter(|recorded| recorded.shard.queue == query.queue && recorded.event.id == query.id)
            .filter(|recorded| is_wanted(recorded.event.sequence))
            .map(|recorded| transition(&recorded.event))
            .filter(|transition| query.after < Some((transition.sequence, transition.version)))
            .collect();
        drop(events);
        transitions.sort_by_key(|transition| (transition.sequence, transition.version));
        let more = transitions.len() > query.limit;
        transitions.truncate(query.limit);
        let messages = self.messages().into_iter();
        let message = messages
            .filter(|message| message.queue == query.queue.as_str() && message.id == query.id.as_str())
            .filter(|message| is_wanted(message.sequence))
            .max_by_key(|message| message.sequence);
        Ok(Trace { transitions, more, message })
    }

    async fn search(&self, query: &SearchQuery) -> Result<Vec<IndexedMessage>, HistoryError> {
        self.begin(format!("{query:?}")).await?;
        let after = query.after.as_ref().map(rank);
        let mut found = self.messages();
        found.retain(|message| query.worker.is_empty() || message.worker == query.worker);
        found.retain(|message| after.as_ref().is_none_or(|after| *after < rank(&SearchPosition::of(message))));
        found.sort_by_key(|message| rank(&SearchPosition::of(message)));
        found.truncate(query.limit);
        Ok(found)
    }

    async fn stats(&self, query: &StatsQuery) -> Result<Vec<Activity>, HistoryError> {
        self.begin(format!("{query:?}")).await?;
        let span =
            |from_ms: u64, to_ms: u64| Activity { from_ms: from_ms as i64, to_ms: to_ms as i64, ..Activity::default() };
        let mut spans = vec![span(query.from_ms, query.to_ms)];
        if let Some(interval_ms) = query.interval_ms {
            let begins = (query.from_ms..query.to_ms).step_by(interval_ms as usize);
            spans.extend(begins.map(|begin| span(begin, query.to_ms.min(begin + interval_ms))));
        }
        Ok(spans)
    }

    async fn depth(&self, query: &DepthQuery) -> Result<[u64; 6], HistoryError> {
        self.begin(format!("{query:?}")).await?;
        let counted = |state: &State| self.messages().iter().filter(|message| message.state == *state as i32).count();
        Ok(std::array::from_fn(|number| counted(&State::ALL[number]) as u64))
    }

    async fn depth_by(&self, query: &DepthQuery, grouping: &Grouping) -> Result<Vec<(String, [u64; 6])>, HistoryError> {
        self.begin(format!("{query:?}")).await?;
        // Ten groups, "0" to "9", of one pending message each.
        let values = (0..10).map(|number| number.to_string());
        let later = values.filter(|value| grouping.after.as_ref().is_none_or(|after| value > after));
        Ok(later.map(|value| (value, [0, 1, 0, 0, 0, 0])).take(grouping.limit).collect())
    }

    async fn prune(&self, _: u64) -> Result<bool, HistoryError> {
        Ok(false)
    }
}
