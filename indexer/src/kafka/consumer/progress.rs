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

/// The time for which a report must fail to cause a warning: answers about history stay behind meanwhile.
const WARN_AFTER: Duration = Duration::from_secs(10);

/// Watermarks by partition, Unix ms.
type Watermarks = BTreeMap<u32, u64>;

/// The watermarks that are reached and not reported yet.
pub(super) struct Progress<S> {
    store: Arc<S>,
    topic: Arc<Topic>,
    reached: Watermarks,
    /// The report in flight.
    report: Option<AbortOnDropHandle<Result<Reported, HistoryError>>>,
    next_at: Instant,
    /// Since when reports fail, and whether that was logged.
    failing: Option<(Instant, bool)>,
}

/// What came of a report.
#[derive(Default)]
struct Reported {
    /// The watermarks that the store did not take.
    unreported: Watermarks,
    /// Why not.
    why: Option<String>,
}

impl<S: HistoryStore> Progress<S> {
    pub(super) fn new(store: Arc<S>, topic: Arc<Topic>) -> Self {
        Progress { store, topic, reached: Watermarks::new(), report: None, next_at: Instant::now(), failing: None }
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
        // What it could not report would come back.
        self.report = None;
    }

    /// Notes how a report ended; warns once per outage.
    fn note(&mut self, why: Option<String>) {
        let Some(why) = why else {
            self.failing = None;
            return;
        };
        let (since, was_logged) = self.failing.get_or_insert_with(|| (Instant::now(), false));
        if !*was_logged && since.elapsed() >= WARN_AFTER {
            *was_logged = true;
            tracing::warn!(why, "the watermark of history does not advance; trying again");
        }
    }

    /// Waits for the next step, a report's begin or end, and takes it. Cancel-safe.
    pub(super) async fn advance(&mut self) -> Result<(), HistoryError> {
        if let Some(report) = self.report.as_mut() {
            let reported = report.await;
            self.report = None;
            // The next report repeats what the store did not take.
            let reported = reported.unwrap_or_else(|_| Ok(Reported::default()))?;
            self.note(reported.why);
            self.reached(reported.unreported);
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

/// Reports all watermarks at once.
async fn report<S: HistoryStore>(
    store: Arc<S>,
    topic: Arc<Topic>,
    reached: Watermarks,
) -> Result<Reported, HistoryError> {
    let of = match topic.partitions().await {
        Ok(of) => of,
        Err(error) => return Ok(Reported { unreported: reached, why: Some(error.to_string()) }),
    };
    if reached.keys().any(|number| *number >= of) {
        // The topic has more partitions than the cached number says.
        topic.forget_partitions().await;
        return Ok(Reported { unreported: reached, why: Some(format!("Kafka names {of} partitions")) });
    }
    let store = &store;
    let advance = |(number, up_to_ms): (u32, u64)| async move {
        (number, up_to_ms, store.advance(Source { number, of }, up_to_ms).await)
    };
    let mut reported = Reported::default();
    for (number, up_to_ms, advanced) in join_all(reached.into_iter().map(advance)).await {
        match advanced {
            Ok(()) => {}
            Err(HistoryError::Unavailable(why)) => {
                reported.unreported.insert(number, up_to_ms);
                reported.why = Some(why);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(reported)
}
