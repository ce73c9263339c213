//! What background jobs need of a store: they see its shards, whatever queues these are of.

use super::store::Sharded;
use crate::queue_metrics::{QueueState, QueueStates};
use crate::store::{Kept, LeaseAnswers};
use crate::sweeper::{LeaderLease, SweepTime, SweepTimes};
use crate::tenants::KeptMessages;
use tallystone_model::store::{Depth, Page};
use tallystone_model::{QueueName, Refusal};

impl<S: SweepTimes> SweepTimes for Sharded<S> {
    fn partition_count(&self) -> u16 {
        self.inner.partition_count()
    }

    async fn sweep_times(&self, partition: u16, cursor: &str) -> Result<Page<SweepTime>, Refusal> {
        self.inner.sweep_times(partition, cursor).await
    }
}

impl<S: LeaderLease + Send + Sync> LeaderLease for Sharded<S> {
    async fn acquire_leader_lease(&self, owner: &str, lease_ms: u64) -> LeaseAnswers {
        self.inner.acquire_leader_lease(owner, lease_ms).await
    }
}

impl<S: QueueStates> QueueStates for Sharded<S> {
    async fn queue_depths(&self, partition: u16, cursor: &str) -> Result<Page<(QueueName, Depth)>, Refusal> {
        self.inner.queue_depths(partition, cursor).await
    }

    async fn queue_states(&self, queues: &[QueueName]) -> Result<Vec<Option<QueueState>>, Refusal> {
        self.inner.queue_states(queues).await
    }
}

impl<S: KeptMessages> KeptMessages for Sharded<S> {
    async fn kept(&self, prefix: &str, with_bytes: bool) -> Vec<Result<Kept, Refusal>> {
        self.inner.kept(prefix, with_bytes).await
    }
}
