//! Hands a batch to the store, and the records that no store can take to the dead-letter topic.

use super::batch::{Batch, DeadLetter};
use super::dead_letters::DeadLetters;
use super::metrics::Metrics;
use super::retry::retry_while;
use crate::{HistoryError, HistoryStore};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tallystone_kafka::{Position, Topic};

/// What holds once all records of a batch are stored or are dead letters.
pub(super) struct SettledBatch {
    /// The positions that may be committed: of each partition, the one after its last record.
    pub(super) positions: BTreeMap<i32, Position>,
    /// See [`Batch::reading`].
    pub(super) reading: u64,
    /// The newest watermark of each partition, Unix ms.
    pub(super) watermarks: BTreeMap<u32, u64>,
}

/// Settles batches: the store, and where to put what it rejects.
pub(super) struct Settler<S> {
    pub(super) store: Arc<S>,
    pub(super) dead_letters: DeadLetters,
    pub(super) metrics: Metrics,
    pub(super) topic: Arc<Topic>,
}

impl<S: HistoryStore> Settler<S> {
    /// Returns once every record is stored or acknowledged as a dead letter. Retries through outages of the store and
    /// of Kafka, however long they last.
    pub(super) async fn settle(self: Arc<Self>, mut batch: Batch) -> Result<SettledBatch, HistoryError> {
        let mut letters = std::mem::take(&mut batch.dead_letters);
        if !batch.losses.is_empty() {
            let record = || self.store.record_losses(&batch.losses);
            retry_while("the history store does not accept losses", record, is_transient).await?;
        }
        if !batch.events.is_empty() {
            let begin = Instant::now();
            let record = || async {
                let recorded = self.store.record(&batch.events).await;
                if recorded.is_err() {
                    self.metrics.store_retries.increment(1);
                }
                recorded
            };
            let rejected = retry_while("the history store does not accept events", record, is_transient).await?;
            self.metrics.indexed(batch.events.len(), rejected.len(), begin.elapsed());
            for rejected in rejected {
                let Some(source) = batch.sources.get(rejected.index) else { continue };
                letters.push(DeadLetter { source, kind: "rejected", why: format!("rejected: {}", rejected.why) });
            }
        }
        let send = || self.dead_letters.send(self.topic.name(), &letters);
        if let Err(error) = retry_while("Kafka does not accept dead letters", send, |_| true).await {
            return Err(HistoryError::Unavailable(error.to_string()));
        }
        for letter in &letters {
            tracing::warn!(
                partition = letter.source.partition,
                offset = letter.source.offset,
                why = letter.why,
                "a record cannot be indexed; it is in the dead-letter topic"
            );
            self.metrics.dead_letter(letter.kind);
        }
        Ok(SettledBatch { positions: batch.positions, reading: batch.reading, watermarks: batch.watermarks })
    }
}

fn is_transient(error: &HistoryError) -> bool {
    matches!(error, HistoryError::Unavailable(_))
}
