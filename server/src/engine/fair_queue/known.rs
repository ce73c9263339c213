//! The queues that exist, as far as this server knows: a bounded number of names, the latest ones.

use std::collections::HashSet;
use std::sync::Arc;

/// The names of one generation. A name has at most 128 bytes, so both generations take a few MiB at most.
const NAMES_MAX: usize = 8_192;

/// Two generations of names. When the younger one is full, it replaces the older one.
#[derive(Default)]
pub(super) struct KnownQueues {
    young: HashSet<Arc<str>>,
    old: HashSet<Arc<str>>,
}

impl KnownQueues {
    /// Whether the queue is known. What is looked up stays.
    pub(super) fn has(&mut self, queue: &str) -> bool {
        if self.young.contains(queue) {
            return true;
        }
        let found = self.old.take(queue);
        found.map(|queue| self.insert(queue)).is_some()
    }

    pub(super) fn insert(&mut self, queue: Arc<str>) {
        if self.young.len() >= NAMES_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(queue);
    }

    pub(super) fn remove(&mut self, queue: &str) {
        self.young.remove(queue);
        self.old.remove(queue);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s5_what_is_in_use_stays_known_and_the_names_are_bounded() {
        let mut known = KnownQueues::default();
        known.insert(Arc::from("used"));
        known.insert(Arc::from("unused"));
        for n in 0..10 * NAMES_MAX {
            known.insert(Arc::from(format!("new-{n}")));
            assert!(known.has("used"), "after {n}");
            assert!(known.young.len() + known.old.len() <= 2 * NAMES_MAX);
        }
        assert!(!known.has("unused"));
        known.remove("used");
        assert!(!known.has("used"));
    }
}
