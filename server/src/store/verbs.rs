//! The verbs of the [`Store`], each in the partition of its shard, by file: `queues`, `changes`, `selection`, `reads`, `dequeue`; the
//! sweep is here.

use super::dequeue::Dequeue;
use super::partitions;
use super::redis_store::RedisStore;
use super::shared::Caller;
use super::wake;
use std::time::Duration;
use tallystone_lua::Script;
use tallystone_lua::keys::WAKE_CHANNEL;
use tallystone_model::config::{QueueConfig, QueuePatch};
use tallystone_model::explain::Facts;
use tallystone_model::invariants::Violation;
use tallystone_model::message::{Enqueued, Message, NewMessage};
use tallystone_model::store::*;
use tallystone_model::{
    ChangeRequest, ChangedPage, Filter, Layout, MessageId, QueueName, Refusal, Shard, State, Store,
};

impl Store for RedisStore {
    async fn create_queue(&self, name: &QueueName, config: QueueConfig) -> Result<Queue, Refusal> {
        self.whole().create(name, config).await
    }

    async fn update_queue(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue, Refusal> {
        self.whole().update(name, patch).await
    }

    async fn get_queue(&self, name: &QueueName) -> Result<Queue, Refusal> {
        self.of(&Shard::first(name)).get_queue(name).await
    }

    async fn list_queues(&self, prefix: &str, cursor: &str, limit: usize) -> Result<Page<Queue>, Refusal> {
        partitions::list_queues(self.partitions(), prefix, cursor, limit).await
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<(), Refusal> {
        self.whole().delete(name).await
    }

    async fn was_exclusive(&self, name: &QueueName) -> Result<bool, Refusal> {
        self.whole().was_exclusive(name).await
    }

    async fn layout(&self, first: &Shard) -> Result<Layout, Refusal> {
        self.whole().layout(first).await
    }

    async fn mend(&self, shard: &Shard) -> Result<(), Refusal> {
        self.whole().mend(shard).await
    }

    async fn holds(&self, shard: &Shard, ids: &[MessageId]) -> Result<Vec<bool>, Refusal> {
        self.of(shard).holds(shard, ids).await
    }

    async fn purge(&self, shard: &Shard, include_running: bool, cursor: &str) -> Result<Purged, Refusal> {
        self.of(shard).purge_step(shard, u8::from(include_running), None, cursor).await
    }

    async fn enqueue(&self, shard: &Shard, messages: Vec<NewMessage>) -> Items<Enqueued> {
        self.of(shard).enqueue(shard, messages).await
    }

    async fn dequeue(
        &self,
        shard: &Shard,
        requests: &[DequeueRequest],
        wait: bool,
        ticket: Option<Ticket>,
    ) -> Result<Dequeued, Refusal> {
        Dequeue::new(self.of(shard), shard, requests, wait, ticket).run().await
    }

    async fn complete(&self, shard: &Shard, completions: Vec<Completion>) -> Items<Transition> {
        self.of(shard).complete(shard, completions).await
    }

    async fn extend_lease(&self, shard: &Shard, extensions: Vec<Extension>) -> Items<Extended> {
        self.of(shard).extend_lease(shard, extensions).await
    }

    async fn release(&self, shard: &Shard, releases: Vec<Release>) -> Items<Transition> {
        self.of(shard).release(shard, releases).await
    }

    async fn cancel(&self, shard: &Shard, cancellations: Vec<Cancellation>) -> Items<Transition> {
        self.of(shard).cancel(shard, cancellations).await
    }

    async fn redrive(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Transition> {
        self.of(shard).redrive(shard, ids).await
    }

    async fn update_message(&self, shard: &Shard, id: &MessageId, patch: MessagePatch) -> Result<Transition, Refusal> {
        self.of(shard).update_message(shard, id, patch).await
    }

    async fn change_messages(
        &self,
        shard: &Shard,
        request: &ChangeRequest,
        cursor: &str,
        limit: usize,
    ) -> Result<ChangedPage, Refusal> {
        self.of(shard).change_messages(shard, request, cursor, limit).await
    }

    async fn get_messages(&self, shard: &Shard, ids: Vec<MessageId>) -> Items<Message> {
        self.of(shard).get_messages(shard, ids).await
    }

    async fn list_messages(
        &self,
        shard: &Shard,
        state: State,
        cursor: &str,
        limit: usize,
    ) -> Result<Page<Message>, Refusal> {
        self.of(shard).list_messages(shard, state, cursor, limit).await
    }

    async fn explain(&self, shard: &Shard, id: &MessageId) -> Result<Facts, Refusal> {
        self.of(shard).explain(shard, id).await
    }

    async fn depth(&self, shard: &Shard, filter: Option<&Filter>) -> Result<Depth, Refusal> {
        self.of(shard).depth(shard, filter).await
    }

    async fn ages(&self, shard: &Shard) -> Result<Ages, Refusal> {
        self.of(shard).ages(shard).await
    }

    async fn sweep(&self, shard: &Shard) -> Result<Swept, Refusal> {
        let partition = self.of(shard);
        let (_, mut reply) = partition.run(shard, Script::Sweep, Caller::Other, |_, _| Ok(())).await?;
        let (promoted, expired, errored) = (reply.number()?, reply.number()?, reply.number()?);
        let (collected, dropped) = (reply.number()?, reply.number()?);
        let next_ms = Some(reply.number()?).filter(|at_ms| *at_ms > 0);
        let now_ms = reply.number()?;
        partition.drop_unused(shard).await?;
        Ok(Swept { promoted, expired, errored, collected, dropped, next_ms, now_ms })
    }

    async fn check(&self, shard: &Shard, cursor: &str) -> Result<(u64, Page<Violation>), Refusal> {
        self.of(shard).check(shard, cursor).await
    }

    fn on_ready(&self, notify: Box<dyn Fn(&Shard) + Send + Sync>) {
        self.wakes().set(notify);
    }

    /// A write waits for its replicas, too.
    fn patience(&self) -> Duration {
        const ANSWER: Duration = Duration::from_secs(3);
        ANSWER + self.replica_wait()
    }

    fn on_revoked(&self, notify: NotifyRevoked) {
        self.wakes().set_revoked(notify);
    }

    async fn notify_light_flow(&self, shard: &Shard, flow: &str) -> Result<(), Refusal> {
        let mut command = redis::cmd("PUBLISH");
        command.arg(WAKE_CHANNEL).arg(wake::light_flow(flow));
        self.of(shard).link.call(&command).await?;
        Ok(())
    }

    fn on_light_flow(&self, notify: NotifyLightFlow) {
        self.wakes().set_light_flow(notify);
    }
}
