//! What was read, to where it belongs: the store, or the dead letters.

use super::batch::{Batch, DeadLetter};
use super::dead::DeadLetters;
use super::metrics::Metrics;
use crate::kafka::topic::Topic;
use crate::{HistoryError, HistoryStore};
use backon::{ExponentialBuilder, Retryable};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two tries, at first and at most.
const RETRY_MIN: Duration = Duration::from_millis(100);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What is true once a batch is where it belongs.
pub(super) struct Settled {
    /// What may be committed.
    pub(super) next_offsets: BTreeMap<i32, i64>,
    /// How far each partition is.
    pub(super) watermarks: BTreeMap<u32, u64>,
}

/// Who brings it there.
pub(super) struct Settler<S> {
    pub(super) store: Arc<S>,
    pub(super) dead: DeadLetters,
    pub(super) metrics: Metrics,
    pub(super) topic: Arc<Topic>,
}

impl<S: HistoryStore> Settler<S> {
    /// Answers when it is done, however long the store or Kafka is away.
    pub(super) async fn settle(self: Arc<Self>, mut batch: Batch) -> Result<Settled, HistoryError> {
        let mut letters = std::mem::take(&mut batch.dead);
        if !batch.events.is_empty() {
            let begin = Instant::now();
            let record = || async {
                let answer = self.store.record(&batch.events).await;
                if answer.is_err() {
                    self.metrics.store_retries.increment(1);
                }
                answer
            };
            let can_wait = |error: &HistoryError| matches!(error, HistoryError::Unavailable(_));
            let rejected = patiently("the history store takes nothing", record, can_wait).await?;
            self.metrics.indexed(batch.events.len(), rejected.len(), begin.elapsed());
            for rejected in rejected {
                let Some(original) = batch.originals.get(rejected.index) else { continue };
                letters.push(DeadLetter { original, kind: "rejected", why: format!("rejected: {}", rejected.why) });
            }
        }
        let send = || self.dead.send(self.topic.name(), &letters);
        if let Err(error) = patiently("Kafka takes no dead letters", send, |_| true).await {
            return Err(HistoryError::Unavailable(error.to_string()));
        }
        for letter in &letters {
            tracing::warn!(
                partition = letter.original.partition,
                offset = letter.original.offset,
                why = letter.why,
                "a record that can never be indexed"
            );
            self.metrics.dead_letter(letter.kind);
        }
        Ok(Settled { next_offsets: batch.next_offsets, watermarks: batch.watermarks })
    }
}

/// Tries until it succeeds, or fails with what waiting does not mend.
pub(super) async fn patiently<T, E: std::fmt::Display, F: Future<Output = Result<T, E>>>(
    what: &str,
    attempt: impl FnMut() -> F,
    can_wait: impl FnMut(&E) -> bool,
) -> Result<T, E> {
    let pace = ExponentialBuilder::default()
        .with_min_delay(RETRY_MIN)
        .with_max_delay(RETRY_MAX)
        .without_max_times()
        .with_jitter();
    let mut tries = 0_u32;
    attempt
        .retry(pace)
        .when(can_wait)
        .notify(|error, wait| {
            tries += 1;
            // The first may be nothing.
            if tries == 2 {
                tracing::warn!(%error, "{what}; trying until it does");
            } else {
                tracing::debug!(%error, ?wait, "{what}");
            }
        })
        .await
}
