//! BEST_EFFORT counters in memory.

use super::OracleNamespace;
use crate::cache::Cache;
use crate::names::CounterName;
use crate::refusal::Refusal;
use std::collections::BTreeMap;

impl Cache for OracleNamespace {
    async fn cache_add(&self, adds: &[(CounterName, i64)]) -> Vec<Result<(), Refusal>> {
        let mut world = self.world();
        let mut by_counter: BTreeMap<&CounterName, Vec<usize>> = BTreeMap::new();
        for (index, (counter, _)) in adds.iter().enumerate() {
            by_counter.entry(counter).or_default().push(index);
        }
        let mut results = vec![Ok(()); adds.len()];
        for (counter, indices) in by_counter {
            let stored = world.cached.entry(counter.clone()).or_default();
            let sum: i128 = indices.iter().map(|index| i128::from(adds[*index].1)).sum();
            let together = i64::try_from(sum).ok().and_then(|sum| stored.checked_add(sum));
            match together {
                Some(count) => *stored = count,
                None => indices.iter().for_each(|index| match stored.checked_add(adds[*index].1) {
                    Some(count) => *stored = count,
                    None => results[*index] = Err(Refusal::Overflow),
                }),
            }
        }
        results
    }

    async fn cache_get(&self, counters: &[CounterName]) -> Result<Vec<i64>, Refusal> {
        let world = self.world();
        Ok(counters.iter().map(|counter| world.cached.get(counter).copied().unwrap_or_default()).collect())
    }

    async fn cache_clear(&self, counters: &[CounterName]) -> Vec<Result<(), Refusal>> {
        let mut world = self.world();
        world.cached.retain(|counter, _| !counters.contains(counter));
        vec![Ok(()); counters.len()]
    }
}
