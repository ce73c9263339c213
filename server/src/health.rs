//! Whether the store answers, judged by the calls of this server and by the probes of the store; shown by the gRPC health service. A
//! call waits for a Redis that hangs longer than a probe does.

use crate::metrics;
use ::metrics::Gauge;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tallystone_link::StoreStatus;
use tallystone_lua::keys::Keyspace;
use tallystone_model::{Applied, Refusal, Shard};
use tokio::sync::watch;
use tokio::time::Instant;

/// The least time between two lines of the log that say that the same partition is unavailable.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Whether the last call of a partition and its last probe reached it, of at least one. A server that cannot reach one of several partitions serves the others,
/// and its callers would not reach that one through another server either.
#[derive(Clone)]
pub(crate) struct StoreHealth {
    partitions: Arc<[Partition]>,
    is_available: watch::Sender<bool>,
}

struct Partition {
    /// Its last call.
    answers: AtomicBool,
    /// Its last probe.
    is_serving: AtomicBool,
    unavailable: Gauge,
    logged: Mutex<Logged>,
}

/// What the log last said of a partition.
#[derive(Default)]
struct Logged {
    /// That it is unavailable.
    is_unavailable: bool,
    /// When it last said so.
    at: Option<Instant>,
}

impl StoreHealth {
    /// That of a store with this number of partitions: available, until a call fails. It registers its metrics now.
    pub(crate) fn of(partitions: u16) -> Self {
        let partition = |unavailable: Gauge| {
            unavailable.set(0.0);
            let yes = || AtomicBool::new(true);
            Partition { answers: yes(), is_serving: yes(), unavailable, logged: Mutex::default() }
        };
        let partitions = metrics::partitions_unavailable(partitions).into_iter().map(partition).collect();
        StoreHealth { partitions, is_available: watch::Sender::new(true) }
    }

    /// Records how a call for a shard ended.
    pub(crate) fn saw<T>(&self, shard: &Shard, answer: &Result<T, Refusal>) {
        let count = u16::try_from(self.partitions.len()).unwrap_or(u16::MAX);
        self.saw_partition(Keyspace::number_of(shard, count), answer);
    }

    /// Records how a call of a partition ended.
    pub(crate) fn saw_partition<T>(&self, number: u16, answer: &Result<T, Refusal>) {
        let unavailable = answer
            .as_ref()
            .err()
            .filter(|refusal| refusal.is_unavailable() || matches!(refusal, Refusal::DataLoss { .. }));
        let partition = &self.partitions[usize::from(number)];
        let answers = unavailable.is_none();
        if partition.answers.swap(answers, Ordering::Relaxed) == answers {
            return;
        }
        self.changed(number, unavailable);
    }

    /// Records how the probes of a partition end.
    pub(crate) async fn follow(self, number: u16, mut status: watch::Receiver<StoreStatus>) {
        loop {
            let unavailable = match &*status.borrow_and_update() {
                StoreStatus::Serving => None,
                StoreStatus::Unavailable => {
                    let why = "the probe of this partition gets no answer".to_owned();
                    Some(Refusal::Unavailable { applied: Applied::No, why })
                }
                StoreStatus::Lost(loss) => Some(Refusal::DataLoss { why: loss.to_string() }),
            };
            let is_serving = unavailable.is_none();
            if self.partitions[usize::from(number)].is_serving.swap(is_serving, Ordering::Relaxed) != is_serving {
                self.changed(number, unavailable.as_ref());
            }
            if status.changed().await.is_err() {
                return;
            }
        }
    }

    fn changed(&self, number: u16, unavailable: Option<&Refusal>) {
        self.partitions[usize::from(number)].note(number, unavailable);
        // Read under the lock of the sender: of two changes at once, the later one sees both.
        self.is_available.send_if_modified(|before| {
            let is_available = self.partitions.iter().any(Partition::is_available);
            std::mem::replace(before, is_available) != is_available
        });
    }

    /// The current state, and every change of it.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.is_available.subscribe()
    }
}

impl Partition {
    fn is_available(&self) -> bool {
        self.answers.load(Ordering::Relaxed) && self.is_serving.load(Ordering::Relaxed)
    }

    /// Shows in the gauge whether it answers now. Logs that it is unavailable, and why; or that it answers again.
    fn note(&self, number: u16, unavailable: Option<&Refusal>) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        // Of two changes at once, the later one of these sees both.
        let is_available = self.is_available();
        self.unavailable.set(if is_available { 0.0 } else { 1.0 });
        match unavailable {
            // Where some calls fail and others do not, the log would be full of it.
            Some(_) if logged.at.is_some_and(|at| at.elapsed() < LOG_EVERY) => {}
            Some(refusal) => {
                *logged = Logged { is_unavailable: true, at: Some(Instant::now()) };
                tracing::warn!(partition = number, %refusal, "a partition of the store is unavailable");
            }
            None if logged.is_unavailable && is_available => {
                logged.is_unavailable = false;
                tracing::info!(partition = number, "a partition of the store answers again");
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[tokio::test]
    async fn n14_a_store_is_unavailable_while_its_probe_or_its_calls_find_it_so() {
        let health = StoreHealth::of(1);
        let (probe, status) = watch::channel(StoreStatus::Serving);
        let following = tokio::spawn(health.clone().follow(0, status));
        let mut state = health.watch();
        let away = || Err::<(), _>(Refusal::Unavailable { applied: Applied::No, why: String::new() });
        probe.send(StoreStatus::Unavailable).expect("a follower");
        assert!(state.wait_for(|is_available| !is_available).await.is_ok(), "before a call has failed");
        health.saw_partition(0, &away());
        probe.send(StoreStatus::Serving).expect("a follower");
        drop(probe);
        following.await.expect("no panic");
        assert!(!*state.borrow(), "the last call has failed");
        health.saw_partition(0, &Ok(()));
        assert!(*state.borrow());
    }
}
