//! Reports the watermarks of the partitions to the store: everything before them is recorded.

use crate::{HistoryError, HistoryStore, Source};
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_kafka::Topic;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// The least time between two reports.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Watermarks by partition, Unix ms.
type Watermarks = BTreeMap<u32, u64>;

/// The watermarks that are reached and not reported yet.
pub(super) struct Progress<S> {
    store: Arc<S>,
    topic: Arc<Topic>,
    reached: Watermarks,
    /// The report in flight. It returns the watermarks that the store did not take.
    report: Option<AbortOnDropHandle<Result<Watermarks, HistoryError>>>,
    next_at: Instant,
}

impl<S: HistoryStore> Progress<S> {
    pub(super) fn new(store: Arc<S>, topic: Arc<Topic>) -> Self {
        Progress { store, topic, reached: Watermarks::new(), report: None, next_at: Instant::now() }
    }

    /// Everything before these watermarks is recorded.
    pub(super) fn reached(&mut self, watermarks: Watermarks) {
        for (partition, up_to_ms) in watermarks {
            let newest = self.reached.entry(partition).or_default();
            *newest = up_to_ms.max(*newest);
        }
    }

    /// Drops the watermarks that are not reported yet: they no longer hold.
    pub(super) fn forget(&mut self) {
        self.reached.clear();
    }

    /// Waits for the next step, a report's begin or end, and takes it. Cancel-safe.
    pub(super) async fn advance(&mut self) -> Result<(), HistoryError> {
        if let Some(report) = self.report.as_mut() {
            let reported = report.await;
            self.report = None;
            // The next report repeats what the store did not take.
            let unreported = reported.unwrap_or_else(|_| Ok(Watermarks::new()))?;
            self.reached(unreported);
            return Ok(());
        }
        if self.reached.is_empty() {
            std::future::pending::<()>().await;
        }
        sleep_until(self.next_at).await;
        self.next_at = Instant::now() + REPORT_EVERY;
        let report = report(self.store.clone(), self.topic.clone(), std::mem::take(&mut self.reached));
        self.report = Some(AbortOnDropHandle::new(tokio::spawn(report)));
        Ok(())
    }
}

/// Reports all watermarks at once. Returns those that the store did not take.
async fn report<S: HistoryStore>(
    store: Arc<S>,
    topic: Arc<Topic>,
    reached: Watermarks,
) -> Result<Watermarks, HistoryError> {
    let Ok(of) = topic.partitions().await else { return Ok(reached) };
    if reached.keys().any(|number| *number >= of) {
        // The topic has more partitions than the cached number says.
        topic.forget_partitions().await;
        return Ok(reached);
    }
    let store = &store;
    let advance = |(number, up_to_ms): (u32, u64)| async move {
        (number, up_to_ms, store.advance(Source { number, of }, up_to_ms).await)
    };
    let mut unreported = Watermarks::new();
    for (number, up_to_ms, advanced) in join_all(reached.into_iter().map(advance)).await {
        match advanced {
            Ok(()) => {}
            Err(HistoryError::Unavailable(why)) => {
                tracing::debug!(number, why, "the store did not take a watermark");
                unreported.insert(number, up_to_ms);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(unreported)
}
