//! How far the index is: the watermarks of the partitions, told to the store.

use crate::kafka::topic::Topic;
use crate::{HistoryError, HistoryStore, Source};
use futures::future::join_all;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;

/// The least time between two times that the store is told of one partition.
const PACE: Duration = Duration::from_secs(1);

/// What the store is to be told.
pub(super) struct Progress<S> {
    store: Arc<S>,
    topic: Arc<Topic>,
    /// Of each partition, up to when all has been recorded and the store has not been told.
    reached: BTreeMap<u32, u64>,
    telling: Option<AbortOnDropHandle<Result<BTreeMap<u32, u64>, HistoryError>>>,
    next_at: Instant,
}

impl<S: HistoryStore> Progress<S> {
    pub(super) fn new(store: Arc<S>, topic: Arc<Topic>) -> Self {
        Progress { store, topic, reached: BTreeMap::new(), telling: None, next_at: Instant::now() }
    }

    /// All before these watermarks has been recorded.
    pub(super) fn reached(&mut self, watermarks: BTreeMap<u32, u64>) {
        for (partition, up_to_ms) in watermarks {
            let newest = self.reached.entry(partition).or_default();
            *newest = up_to_ms.max(*newest);
        }
    }

    /// Tells the store when it is time to. Answers when there was something to do; may be dropped at any time.
    pub(super) async fn advance(&mut self) -> Result<(), HistoryError> {
        if let Some(telling) = self.telling.as_mut() {
            let told = telling.await;
            self.telling = None;
            // What could not be told now is told with the next.
            let untold = told.unwrap_or_else(|_| Ok(BTreeMap::new()))?;
            self.reached(untold);
            return Ok(());
        }
        if self.reached.is_empty() {
            std::future::pending::<()>().await;
        }
        sleep_until(self.next_at).await;
        self.next_at = Instant::now() + PACE;
        let reached = std::mem::take(&mut self.reached);
        let telling = tell(self.store.clone(), self.topic.clone(), reached);
        self.telling = Some(AbortOnDropHandle::new(tokio::spawn(telling)));
        Ok(())
    }
}

/// Tells the store of several partitions at once; what it has not taken.
async fn tell<S: HistoryStore>(
    store: Arc<S>,
    topic: Arc<Topic>,
    reached: BTreeMap<u32, u64>,
) -> Result<BTreeMap<u32, u64>, HistoryError> {
    let Ok(of) = topic.partitions().await else { return Ok(reached) };
    if reached.keys().any(|number| *number >= of) {
        // It has grown since it was asked.
        topic.forget().await;
        return Ok(reached);
    }
    let store = &store;
    let tell = |(number, up_to_ms): (u32, u64)| async move {
        (number, up_to_ms, store.advance(Source { number, of }, up_to_ms).await)
    };
    let mut untold = BTreeMap::new();
    for (number, up_to_ms, told) in join_all(reached.into_iter().map(tell)).await {
        match told {
            Ok(()) => {}
            Err(HistoryError::Unavailable(why)) => {
                tracing::debug!(number, why, "the store was not told how far the index is");
                untold.insert(number, up_to_ms);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(untold)
}
