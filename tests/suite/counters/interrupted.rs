//! Stores that fail, or wait, at a step of a rollup.

use std::sync::atomic::{AtomicU64, Ordering};
use tallystone_counters::log::{Closed, Pending, Sealed};
use tallystone_counters::{Appended, Checkpoint, Checkpoints, Commit, CounterName, EventLog, NewEvent, Refusal};
use tallystone_model::Applied;
use tokio::sync::Semaphore;

/// Fails from one call on: what was called before has happened, as when the process dies there; and the call that fails
/// has happened, too, or has not.
pub(super) struct Dying<'a, S> {
    store: &'a S,
    calls_left: AtomicU64,
    last_happens: bool,
}

impl<'a, S> Dying<'a, S> {
    pub(super) fn new(store: &'a S, calls: u64, last_happens: bool) -> Self {
        Dying { store, calls_left: AtomicU64::new(calls), last_happens }
    }

    async fn step<T>(&self, call: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
        let dead = Refusal::Unavailable { applied: Applied::Unknown, why: "dead".to_owned() };
        match self.calls_left.load(Ordering::SeqCst) {
            0 => Err(dead),
            1 => {
                self.calls_left.store(0, Ordering::SeqCst);
                if self.last_happens {
                    call.await?;
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

impl<S: EventLog> EventLog for Dying<'_, S> {
    async fn append(&self, events: &[NewEvent]) -> Vec<Result<Appended, Refusal>> {
        self.store.append(events).await
    }

    async fn pending(&self, counter: &CounterName) -> Result<Vec<(u16, Pending)>, Refusal> {
        self.step(self.store.pending(counter)).await
    }

    async fn seal(&self, counter: &CounterName) -> Result<Sealed, Refusal> {
        self.step(self.store.seal(counter)).await
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, granule: u64, after: u64) -> Result<i64, Refusal> {
        self.step(self.store.sum_after(counter, shard, granule, after)).await
    }

    async fn settle(&self, counter: &CounterName, settled_to_ms: u64, closed: Closed) -> Result<(), Refusal> {
        self.step(self.store.settle(counter, settled_to_ms, closed)).await
    }

    async fn close(&self, counter: &CounterName, closed_to_ms: u64, closed: Closed) -> Result<(), Refusal> {
        self.step(self.store.close(counter, closed_to_ms, closed)).await
    }

    async fn due(&self, shard: u16, limit: usize, hold: u64) -> Result<(Vec<CounterName>, Option<u64>), Refusal> {
        self.store.due(shard, limit, hold).await
    }

    fn shards(&self) -> u16 {
        self.store.shards()
    }
}

impl<S: Checkpoints> Checkpoints for Dying<'_, S> {
    async fn read(&self, counter: &CounterName) -> Result<Checkpoint, Refusal> {
        self.step(self.store.read(counter)).await
    }

    async fn commit(&self, counter: &CounterName, before: Checkpoint, after: Checkpoint) -> Result<Commit, Refusal> {
        self.step(self.store.commit(counter, before, after)).await
    }
}

/// Waits before its commit until it is let go: a worker that was stopped there.
pub(super) struct Stopped<'a, S> {
    store: &'a S,
    pub(super) is_there: Semaphore,
    pub(super) go_on: Semaphore,
}

impl<'a, S> Stopped<'a, S> {
    pub(super) fn new(store: &'a S) -> Self {
        Stopped { store, is_there: Semaphore::new(0), go_on: Semaphore::new(0) }
    }
}

impl<S: Checkpoints> Checkpoints for Stopped<'_, S> {
    async fn read(&self, counter: &CounterName) -> Result<Checkpoint, Refusal> {
        self.store.read(counter).await
    }

    async fn commit(&self, counter: &CounterName, before: Checkpoint, after: Checkpoint) -> Result<Commit, Refusal> {
        self.is_there.add_permits(1);
        self.go_on.acquire().await.expect("open").forget();
        self.store.commit(counter, before, after).await
    }
}
