//! When each shard is to be swept next: one order for each partition of the store, because each has a sweeper.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_lua::keys::Keyspace;
use tallystone_model::Shard;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The least time between two sweeps of a shard, unless the first did as much as one sweep may.
const PACE: Duration = Duration::from_millis(100);
/// After a notification that does not say when the shard is due, it is swept within this time.
const TOUCH: Duration = Duration::from_secs(1);

/// When each shard is due. The sweeper shares it with the lanes and the store, which add due times.
pub(crate) struct Schedule {
    partitions: Vec<Partition>,
    /// This server is the leader. Other servers keep no schedule: a new leader begins with a walk.
    is_leader: AtomicBool,
}

/// The shards of one partition.
#[derive(Default)]
struct Partition {
    shards: Mutex<Shards>,
    changed: Notify,
}

impl Default for Schedule {
    fn default() -> Schedule {
        Schedule::of(1)
    }
}

/// When one shard is to be swept.
#[derive(Clone, Copy)]
struct Due {
    /// `None`: nothing falls due there.
    at: Option<Instant>,
    /// No sweep before this, whatever falls due ([`PACE`]).
    not_before: Instant,
}

impl Due {
    fn at(self) -> Option<Instant> {
        self.at.map(|at| at.max(self.not_before))
    }
}

/// All shards, and the order in which they fall due: with many thousands of queues a step must not visit each.
#[derive(Default)]
struct Shards {
    by_shard: HashMap<Shard, Due>,
    in_order: BTreeSet<(Instant, Shard)>,
}

impl Shards {
    fn set(&mut self, shard: &Shard, due: Due) {
        self.remove(shard);
        if let Some(at) = due.at() {
            self.in_order.insert((at, shard.clone()));
        }
        self.by_shard.insert(shard.clone(), due);
    }

    fn remove(&mut self, shard: &Shard) {
        if let Some(at) = self.by_shard.remove(shard).and_then(Due::at) {
            self.in_order.remove(&(at, shard.clone()));
        }
    }
}

impl Partition {
    fn lock(&self) -> MutexGuard<'_, Shards> {
        // No holder of the lock panics with the two collections half changed.
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Schedule {
    /// The schedule of a store with this number of partitions.
    pub(crate) fn of(partitions: u16) -> Schedule {
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        Schedule { partitions, is_leader: AtomicBool::new(false) }
    }

    /// The partition with this shard.
    fn partition(&self, shard: &Shard) -> &Partition {
        let count = u16::try_from(self.partitions.len()).unwrap_or(u16::MAX);
        &self.partitions[usize::from(Keyspace::number_of(shard, count))]
    }

    /// Something in the shard falls due after `from_now`.
    pub(crate) fn due(&self, shard: &Shard, from_now: Duration) {
        if !self.is_leader() {
            return;
        }
        let now = Instant::now();
        let at = now + from_now;
        let partition = self.partition(shard);
        let mut shards = partition.lock();
        let not_before = match shards.by_shard.get(shard) {
            Some(due) if due.at.is_some_and(|known| known <= at) => return,
            Some(due) => due.not_before,
            None => now,
        };
        shards.set(shard, Due { at: Some(at), not_before });
        drop(shards);
        partition.changed.notify_one();
    }

    /// Something in the shard has changed; when it falls due is not known.
    pub(crate) fn touch(&self, shard: &Shard) {
        self.due(shard, TOUCH);
    }

    /// The shard of a partition that is due first, if it is due now; otherwise the time when the first falls due.
    pub(super) fn next(&self, partition: u16, now: Instant) -> Result<Shard, Option<Instant>> {
        let mut shards = self.partitions[usize::from(partition)].lock();
        match shards.in_order.first() {
            Some((at, shard)) if *at <= now => {
                let shard = shard.clone();
                shards.set(&shard, Due { at: None, not_before: now + PACE });
                Ok(shard)
            }
            later => Err(later.map(|(at, _)| *at)),
        }
    }

    /// Lifts the pace for the next sweep of this shard: the last one left work behind.
    pub(super) fn hurry(&self, shard: &Shard) {
        let mut shards = self.partition(shard).lock();
        if let Some(due) = shards.by_shard.get(shard).copied() {
            shards.set(shard, Due { not_before: Instant::now(), ..due });
        }
    }

    pub(super) fn forget(&self, shard: &Shard) {
        self.partition(shard).lock().remove(shard);
    }

    /// Returns when a shard of a partition has fallen due earlier than before.
    pub(super) async fn changed(&self, partition: u16) {
        self.partitions[usize::from(partition)].changed.notified().await;
    }

    /// Whether this server is the leader.
    pub(super) fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    /// A server that is no longer the leader forgets everything.
    pub(super) fn set_leader(&self, is_leader: bool) {
        self.is_leader.store(is_leader, Ordering::Relaxed);
        if !is_leader {
            for partition in &self.partitions {
                *partition.lock() = Shards::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};
    use tallystone_model::QueueName;

    fn shard(number: usize) -> Shard {
        Shard { queue: QueueName::parse("queue", &format!("q{number}")).unwrap(), number: 0 }
    }

    #[tokio::test(start_paused = true)]
    async fn q5_the_shard_that_is_due_first_is_swept_first_and_none_is_forgotten() {
        for seed in 0..20 {
            println!("seed {seed}");
            let mut rng = SmallRng::seed_from_u64(seed);
            let schedule = Schedule::default();
            schedule.set_leader(true);
            let mut expected: HashMap<Shard, Due> = HashMap::new();
            for _ in 0..2_000 {
                let (shard, now) = (shard(rng.random_range(0..50)), Instant::now());
                match rng.random_range(0..10) {
                    0..=4 => {
                        let from_now = Duration::from_millis(rng.random_range(0..1_000));
                        schedule.due(&shard, from_now);
                        let due = expected.entry(shard).or_insert(Due { at: None, not_before: now });
                        due.at = Some(due.at.map_or(now + from_now, |at| at.min(now + from_now)));
                    }
                    5 => {
                        schedule.hurry(&shard);
                        expected.entry(shard).and_modify(|due| due.not_before = now);
                    }
                    6 => {
                        schedule.forget(&shard);
                        expected.remove(&shard);
                    }
                    _ => match schedule.next(0, now) {
                        Ok(shard) => {
                            let due = expected.insert(shard.clone(), Due { at: None, not_before: now + PACE });
                            let due_at = due.and_then(Due::at).unwrap_or_else(|| panic!("{shard:?} is not due"));
                            assert!(
                                due_at <= now
                                    && expected.values().all(|other| other.at().is_none_or(|at| due_at <= at))
                            );
                        }
                        Err(next) => {
                            assert_eq!(next, expected.values().filter_map(|due| due.at()).min());
                            tokio::time::advance(Duration::from_millis(rng.random_range(0..50))).await;
                        }
                    },
                }
            }
        }
    }
}
