//! Memberships one after the other, until they are stopped.

use super::member::Member;
use super::work::{ViewMembershipError, Work};
use crate::metrics;
use crate::owner::Sink;
use std::convert::Infallible;
use std::sync::Arc;
use std::thread::available_parallelism;
use tallystone_kafka::repeat_membership;
use tokio_util::sync::CancellationToken;

/// How many members a process has: a thread each. More than partitions or cores would be idle.
pub(crate) fn membership_count(partitions: u16) -> usize {
    available_parallelism().map_or(1, usize::from).min(partitions.into())
}

/// The members of a process.
#[derive(Clone)]
pub(crate) struct Members {
    pub(crate) work: Arc<Work>,
    pub(crate) sink: Arc<Sink>,
    /// The namespaces of the counters.
    pub(crate) counters: Arc<[String]>,
}

impl Members {
    /// Waits until the namespaces of the counters exist: a delta without its namespace would not count.
    pub(crate) async fn prepared(&self) {
        self.sink.prepared(&self.counters).await;
    }

    /// Is one member until the token is cancelled. Waits through outages. Blocks its thread, so it needs a dedicated one.
    pub(crate) async fn run_one(self, stopping: CancellationToken) {
        if stopping.run_until_cancelled(self.prepared()).await.is_none() {
            return;
        }
        let failed = |failure: ViewMembershipError| {
            metrics::joined_again();
            tracing::warn!(why = %failure, "joining the consumer group of views again");
            Ok(())
        };
        let Ok::<(), Infallible>(()) = repeat_membership(&stopping, || Member::join(&self.work), failed).await;
    }
}
