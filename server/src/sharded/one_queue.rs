//! One queue with several shards, as one call sees it.

use super::all_known::AllEstimates;
use super::found::{Lost, late, not_sent};
use super::known::{ShardEstimates, lock};
use super::silence::Silent;
use crate::health::StoreHealth;
use crate::schedule::Schedule;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tallystone_model::store::Outlook;
use tallystone_model::{Layout, Refusal, Shard, Store};
use tokio::time::timeout;

/// What learns how the calls on each shard end.
#[derive(Clone, Default)]
pub(super) struct Observers {
    pub(super) schedule: Option<Arc<Schedule>>,
    pub(super) health: Option<StoreHealth>,
}

/// One queue, its store, and what is known of its shards.
pub(super) struct OneQueue<'a, S> {
    pub(super) store: &'a Arc<S>,
    pub(super) first: &'a Shard,
    pub(super) layout: Layout,
    pub(super) known: Arc<Mutex<ShardEstimates>>,
    pub(super) all_estimates: &'a Arc<AllEstimates>,
    pub(super) observers: &'a Observers,
}

impl<S: Store> OneQueue<'_, S> {
    pub(super) fn known(&self) -> MutexGuard<'_, ShardEstimates> {
        lock(&self.known)
    }

    /// The numbers of its shards, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u16> + use<S> {
        self.layout.numbers()
    }

    /// The next call knows the layout that this shard has in mind.
    pub(super) async fn learn_from(&self, number: u16) {
        drop(timeout(self.store.patience(), self.store.mend(&self.first.sibling(number))).await);
    }

    /// Whether the queue has another layout than that of this call, as far as its store knows.
    pub(super) async fn has_other_layout(&self) -> bool {
        self.store.layout(self.first).await.is_ok_and(|layout| layout != self.layout)
    }

    /// A call on one shard. A shard that is missing is created, if the queue should have it, and called again.
    ///
    /// # Errors
    /// That of the call. The queue may have another layout now; the store knows it then.
    pub(super) async fn on<T, F: Future<Output = Result<T, Refusal>> + Send>(
        &self,
        number: u16,
        act: impl Fn(Shard) -> F + Send + Sync,
    ) -> Result<T, Refusal> {
        let shard = self.first.sibling(number);
        let answer = self.observed(&shard, act(shard.clone()).await);
        match answer {
            Err(Refusal::QueueNotFound { .. }) if number > 0 => {
                self.forgets(self.store.mend(&shard).await)?;
                if self.store.layout(self.first).await? != self.layout {
                    return Err(Refusal::earlier_layout());
                }
                let again = self.observed(&shard, act(shard.clone()).await);
                // The Dequeue of its flush may have found the shard first.
                if again.as_ref().map_or_else(Refusal::may_have_acted, |_| true) {
                    self.all_estimates.wakes(&shard);
                }
                again
            }
            answer => self.forgets(answer),
        }
    }

    /// The same, but a shard that does not answer in time is not waited for. While it does not answer, it is not called.
    pub(super) async fn on_time<T, F: Future<Output = Result<T, Refusal>> + Send>(
        &self,
        number: u16,
        act: impl Fn(Shard) -> F + Send + Sync,
    ) -> Result<T, Refusal> {
        if self.known().why_silent(number).is_some() {
            // Whatever a Dequeue may have got there, this call has done nothing.
            return Err(not_sent(false));
        }
        self.within_patience(number, || None, act).await
    }

    /// The same for a Dequeue. `lost`: the call that may have got leases there, if the answer is that it may have acted.
    pub(super) async fn on_time_or_lost<T, F: Future<Output = Result<T, Refusal>> + Send>(
        &self,
        number: u16,
        lost: impl FnOnce() -> Option<Lost>,
        act: impl Fn(Shard) -> F + Send + Sync,
    ) -> Result<T, Refusal> {
        let silent = self.known().why_silent(number);
        match silent {
            Some(refusal) => Err(refusal),
            None => self.within_patience(number, lost, act).await,
        }
    }

    async fn within_patience<T, F: Future<Output = Result<T, Refusal>> + Send>(
        &self,
        number: u16,
        lost: impl FnOnce() -> Option<Lost>,
        act: impl Fn(Shard) -> F + Send + Sync,
    ) -> Result<T, Refusal> {
        match timeout(self.store.patience(), self.on(number, act)).await {
            Ok(Err(refusal)) if refusal.may_have_acted() => {
                if let Some(lost) = lost() {
                    self.falls_silent(number, Some(lost));
                }
                Err(refusal)
            }
            Ok(answer) => answer,
            Err(_) => {
                self.falls_silent(number, lost());
                self.observed(&self.first.sibling(number), Err(late()))
            }
        }
    }

    fn falls_silent(&self, number: u16, lost: Option<Lost>) {
        if self.known().falls_silent(number, lost) {
            let silent = Silent {
                store: Arc::downgrade(self.store),
                shard: self.first.sibling(number),
                known: self.known.clone(),
                health: self.observers.health.clone(),
                all_estimates: self.all_estimates.clone(),
            };
            tokio::spawn(silent.until_it_answers());
        }
    }

    /// Forgets the shards if this answer of the first one says that the queue is gone: perhaps another server has deleted it.
    fn forgets<T>(&self, answer: Result<T, Refusal>) -> Result<T, Refusal> {
        if matches!(answer, Err(Refusal::QueueNotFound { .. })) {
            self.all_estimates.forget(&self.first.queue);
        }
        answer
    }

    fn observed<T>(&self, shard: &Shard, answer: Result<T, Refusal>) -> Result<T, Refusal> {
        // That one says that the shard is not the message's.
        let is_answer = |refusal: &Refusal| *refusal == Refusal::earlier_layout();
        if let Some(health) = self.observers.health.as_ref().filter(|_| !answer.as_ref().is_err_and(is_answer)) {
            health.saw(shard, &answer);
        }
        answer
    }

    /// A message of the shard may become runnable, or something may fall due there: a call that causes that is being sent.
    pub(super) fn changes(&self, number: u16) {
        self.known().changes(number);
        self.touch(number);
    }

    /// Something may fall due in the shard.
    pub(super) fn touch(&self, number: u16) {
        if let Some(schedule) = &self.observers.schedule {
            schedule.touch(&self.first.sibling(number));
        }
    }

    /// A shard has said when something falls due there.
    pub(super) fn note_due(&self, number: u16, outlook: &Outlook) {
        if let (Some(schedule), Some(due_ms)) = (&self.observers.schedule, outlook.next_due_ms) {
            let until_due = Duration::from_millis(due_ms.saturating_sub(outlook.now_ms));
            schedule.due(&self.first.sibling(number), until_due);
        }
    }
}
