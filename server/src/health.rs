//! Whether the store answers, judged by the calls of this server; shown by the gRPC health service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tallystone_lua::keys::Keyspace;
use tallystone_model::{Refusal, Shard};
use tokio::sync::watch;

/// Whether the last call of a partition reached it, of at least one. A server that cannot reach one of several partitions serves the others,
/// and its callers would not reach that one through another server either.
#[derive(Clone, Debug)]
pub(crate) struct StoreHealth {
    partitions: Arc<[AtomicBool]>,
    is_available: watch::Sender<bool>,
}

impl StoreHealth {
    /// That of a store with so many partitions: available, until a call fails.
    pub(crate) fn of(partitions: u16) -> Self {
        let partitions = (0..partitions).map(|_| AtomicBool::new(true)).collect();
        StoreHealth { partitions, is_available: watch::Sender::new(true) }
    }

    /// Records how a call for a shard ended.
    pub(crate) fn saw<T>(&self, shard: &Shard, answer: &Result<T, Refusal>) {
        let count = u16::try_from(self.partitions.len()).unwrap_or(u16::MAX);
        self.saw_partition(Keyspace::number_of(shard, count), answer);
    }

    /// Records how a call of a partition ended.
    pub(crate) fn saw_partition<T>(&self, partition: u16, answer: &Result<T, Refusal>) {
        let answers =
            !matches!(answer, Err(refusal) if refusal.is_unavailable() || matches!(refusal, Refusal::DataLoss { .. }));
        if self.partitions[usize::from(partition)].swap(answers, Ordering::Relaxed) == answers {
            return;
        }
        // Read under the lock of the sender: of two changes at once, the later one sees both.
        self.is_available.send_if_modified(|before| {
            let is_available = self.partitions.iter().any(|answers| answers.load(Ordering::Relaxed));
            std::mem::replace(before, is_available) != is_available
        });
    }

    /// The current state, and every change of it.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.is_available.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::Applied;

    #[test]
    fn x3_a_store_is_available_while_a_partition_answers() {
        let health = StoreHealth::of(3);
        let state = health.watch();
        let is_available_after = |partition, is_reached: bool| {
            let away = Refusal::Unavailable { applied: Applied::No, why: String::new() };
            health.saw_partition(partition, &if is_reached { Ok(()) } else { Err(away) });
            *state.borrow()
        };
        assert!(is_available_after(1, false) && is_available_after(0, false));
        assert!(!is_available_after(2, false) && !is_available_after(2, false));
        assert!(is_available_after(1, true) && is_available_after(2, true) && is_available_after(1, false));
    }
}
