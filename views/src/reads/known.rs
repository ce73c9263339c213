//! The counts that this process has read.

use super::count::{CounterKey, KnownCount, lock};
use std::collections::HashMap;
use std::sync::Mutex;

/// In two generations: when the younger one is full, the older one is dropped.
pub(super) struct CountCache {
    generations: Mutex<[Generation; 2]>,
    generation_max: usize,
}

type Generation = HashMap<CounterKey, KnownCount>;

impl CountCache {
    /// At most `counts_max` counts are kept, and at least half as many of those that were read last.
    pub(super) fn new(counts_max: usize) -> CountCache {
        CountCache { generations: Mutex::default(), generation_max: counts_max / 2 }
    }

    pub(super) fn get(&self, key: &CounterKey) -> Option<KnownCount> {
        let mut generations = lock(&self.generations);
        if let Some(known) = generations[0].get(key) {
            return Some(*known);
        }
        let known = *generations[1].get(key)?;
        self.insert(&mut generations, key.clone(), known);
        Some(known)
    }

    pub(super) fn set(&self, key: CounterKey, known: KnownCount) {
        self.insert(&mut lock(&self.generations), key, known);
    }

    fn insert(&self, generations: &mut [Generation; 2], key: CounterKey, known: KnownCount) {
        if generations[0].len() >= self.generation_max {
            generations[1] = std::mem::take(&mut generations[0]);
        }
        generations[0].insert(key, known);
    }
}
