//! The entries of the indexes that filters have created, as a server last read them, and whether a shard may have more (S1).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tallystone_model::{QueueName, Shard};

/// The entries of all shards that have some, as this server last read them.
#[derive(Default)]
pub(super) struct Seen(Mutex<Entries>);

#[derive(Default)]
pub(super) struct Entries {
    pub(super) read_at: Option<Instant>,
    pub(super) by_tag: HashMap<String, u64>,
}

impl Seen {
    pub(super) fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Whether a shard may have so many. Those of one queue alone have the queue's own bound.
    pub(super) fn admit(&self, shard: &Shard, entries: u64, max: u64) -> bool {
        let (own, mut all, mut of_others) = (shard.tag(), entries, 0_u64);
        for (tag, entries) in self.by_tag.iter().filter(|(tag, _)| **tag != own) {
            all = all.saturating_add(*entries);
            if !is_of(tag, &shard.queue) {
                of_others = of_others.saturating_add(*entries);
            }
        }
        of_others == 0 || all <= max
    }
}

fn is_of(tag: &str, queue: &QueueName) -> bool {
    tag.rsplit_once('/').is_some_and(|(name, _)| name == queue.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_the_indexes_of_all_queues_together_are_bounded_and_those_of_one_alone_are_not() {
        let shard = |name: &str, number| Shard { queue: QueueName::parse("queue", name).unwrap(), number };
        let mut seen = Entries::default();
        assert!(seen.admit(&shard("a", 0), 1_000, 100), "the first queue has its own bound");
        seen.by_tag.insert(shard("a", 0).tag(), 60);
        assert!(seen.admit(&shard("a", 0), 1_000, 100) && seen.admit(&shard("a", 1), 1_000, 100));
        assert!(seen.admit(&shard("b", 0), 40, 100) && !seen.admit(&shard("b", 0), 41, 100));
        seen.by_tag.insert(shard("b", 0).tag(), 40);
        assert!(seen.admit(&shard("b", 0), 40, 100), "what it has counts once");
        assert!(!seen.admit(&shard("a", 0), 61, 100) && !seen.admit(&shard("a", 1), 1, 100));
    }
}
