//! Stores that fail, or wait, at a step of a rollup.

use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_counters::{
    Checkpoint, CheckpointUpdate, Checkpoints, Commit, CounterName, Pending, Refusal, RollupLog, Sealed, Settlement,
};
use tallystone_model::Applied;
use tokio::sync::Semaphore;

/// What happens to the call during which the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// It never reaches the store.
    Lost,
    /// It reaches some shards of a counter, or some counters, only.
    InPart,
    /// It happens, and its reply is lost.
    Unheard,
}

/// Fails from one call on: what was called before has happened, as when the process dies there.
pub(super) struct Dying<'a, S> {
    store: &'a S,
    /// Reaches fewer shards.
    narrow: &'a S,
    calls_left: AtomicU64,
    last: Last,
}

impl<'a, S> Dying<'a, S> {
    pub(super) fn new(store: &'a S, narrow: &'a S, calls: u64, last: Last) -> Self {
        Dying { store, narrow, calls_left: AtomicU64::new(calls), last }
    }

    async fn step<T>(
        &self,
        call: impl Future<Output = Result<T, Refusal>>,
        in_part: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let dead = Refusal::Unavailable { applied: Applied::Unknown, why: "dead".to_owned() };
        match self.calls_left.load(Ordering::SeqCst) {
            0 => Err(dead),
            1 => {
                self.calls_left.store(0, Ordering::SeqCst);
                match self.last {
                    Last::Lost => {}
                    Last::InPart => drop(in_part.await?),
                    Last::Unheard => drop(call.await?),
                }
                Err(dead)
            }
            left => {
                self.calls_left.store(left - 1, Ordering::SeqCst);
                call.await
            }
        }
    }
}

impl<S: RollupLog + Checkpoints> RollupLog for Dying<'_, S> {
    async fn pending(&self, counters: &[CounterName]) -> Result<Vec<Vec<(u16, Pending)>>, Refusal> {
        self.step(self.store.pending(counters), self.narrow.pending(counters)).await
    }

    async fn seal(&self, counters: &[CounterName]) -> Result<Vec<Sealed>, Refusal> {
        self.step(self.store.seal(counters), self.narrow.seal(counters)).await
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, window: u64, after: u64) -> Result<i64, Refusal> {
        let call = || self.store.sum_after(counter, shard, window, after);
        self.step(call(), call()).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<(), Refusal> {
        self.step(self.store.settle(settlements), self.narrow.settle(settlements)).await
    }

    async fn close(&self, closing: &Settlement) -> Result<(), Refusal> {
        self.step(self.store.close(closing), self.narrow.close(closing)).await
    }
}

impl<S: RollupLog + Checkpoints> Checkpoints for Dying<'_, S> {
    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Checkpoint>, Refusal> {
        self.step(self.store.read(counters), self.narrow.read(counters)).await
    }

    async fn commit(&self, updates: &[CheckpointUpdate]) -> Result<Vec<Commit>, Refusal> {
        let (some, _) = updates.split_at(updates.len() / 2);
        self.step(self.store.commit(updates), self.store.commit(some)).await
    }
}

/// Waits before one of its calls until it is let go: a worker that was stopped there.
pub(super) struct Stopped<'a, S> {
    store: &'a S,
    calls: AtomicU64,
    is_there: Semaphore,
    go_on: Semaphore,
}

impl<'a, S> Stopped<'a, S> {
    /// It makes this number of calls before it waits.
    pub(super) fn after(calls: u64, store: &'a S) -> Self {
        Stopped { store, calls: AtomicU64::new(calls), is_there: Semaphore::new(0), go_on: Semaphore::new(0) }
    }

    /// The one until it waits, if it comes to it; then the other; then what is left of the one.
    pub(super) async fn meanwhile<A, B>(&self, one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
        let one = async {
            let answer = one.await;
            self.is_there.add_permits(1);
            answer
        };
        let other = async {
            let _ = self.is_there.acquire().await.expect("open");
            let answer = other.await;
            self.go_on.add_permits(1);
            answer
        };
        tokio::join!(one, other)
    }

    async fn step<T>(&self, call: impl Future<Output = T>) -> T {
        // Below zero it goes round, and far away.
        if self.calls.fetch_sub(1, Ordering::SeqCst) == 0 {
            self.is_there.add_permits(1);
            self.go_on.acquire().await.expect("open").forget();
        }
        call.await
    }
}

impl<S: RollupLog + Checkpoints> RollupLog for Stopped<'_, S> {
    async fn pending(&self, counters: &[CounterName]) -> Result<Vec<Vec<(u16, Pending)>>, Refusal> {
        self.step(self.store.pending(counters)).await
    }

    async fn seal(&self, counters: &[CounterName]) -> Result<Vec<Sealed>, Refusal> {
        self.step(self.store.seal(counters)).await
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, window: u64, after: u64) -> Result<i64, Refusal> {
        self.step(self.store.sum_after(counter, shard, window, after)).await
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<(), Refusal> {
        self.step(self.store.settle(settlements)).await
    }

    async fn close(&self, closing: &Settlement) -> Result<(), Refusal> {
        self.step(self.store.close(closing)).await
    }
}

impl<S: RollupLog + Checkpoints> Checkpoints for Stopped<'_, S> {
    async fn read(&self, counters: &[CounterName]) -> Result<Vec<Checkpoint>, Refusal> {
        self.step(self.store.read(counters)).await
    }

    async fn commit(&self, updates: &[CheckpointUpdate]) -> Result<Vec<Commit>, Refusal> {
        self.step(self.store.commit(updates)).await
    }
}
