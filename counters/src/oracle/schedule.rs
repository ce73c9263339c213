//! The dirty counters in memory.

use super::OracleNamespace;
use crate::log::{Due, RollupSchedule, WINDOW_MS};
use crate::names::CounterName;
use crate::namespace::Placement;
use crate::refusal::Refusal;

impl RollupSchedule for OracleNamespace {
    async fn due(&self, shard: u16, limit: usize, hold_ms: u64) -> Result<Due, Refusal> {
        let mut world = self.world();
        let shard = self.shard(&mut world, shard)?;
        let (now_ms, due_after_ms) = (self.now_ms(), self.config.due_after_ms() as i64);
        let mut waiting: Vec<(i64, CounterName)> =
            shard.dirty_since_ms.iter().map(|(counter, since_ms)| (*since_ms, counter.clone())).collect();
        waiting.sort();
        let is_due = |(since_ms, _): &(i64, CounterName)| since_ms + due_after_ms <= now_ms as i64;
        let due: Vec<(i64, CounterName)> = waiting.into_iter().filter(is_due).take(limit).collect();
        for (_, counter) in &due {
            shard.dirty_since_ms.insert(counter.clone(), (now_ms + hold_ms) as i64 - due_after_ms);
        }
        let next_ms = shard.dirty_since_ms.values().min().map(|since_ms| (since_ms + due_after_ms) as u64);
        let counters = due.into_iter().map(|(since_ms, counter)| (counter, (since_ms + due_after_ms) as u64));
        Ok(Due { counters: counters.collect(), next_ms, now_ms, dirty: shard.dirty_since_ms.len() as u64 })
    }

    async fn touch(&self, touched: &[(CounterName, bool)]) -> Result<bool, Refusal> {
        let (mut world, mut is_sooner) = (self.world(), false);
        let (lag_ms, due_after_ms) = (self.config.lag_ms() as i64, self.config.due_after_ms() as i64);
        for (counter, though_idle) in touched {
            let placement = Placement::of(counter);
            for number in placement.shards(&self.config) {
                let shard = &mut world.shards[usize::from(number)];
                shard.check_revision(self.revision)?;
                let now_ms = self.now_ms();
                let sooner_ms = match shard.dirty_since_ms.get(counter).copied() {
                    Some(since_ms) => {
                        // A counter waits for more to come if its mark is still the end of one of its windows. Any other
                        // mark means that it is held for a rollup or in circulation.
                        let pending = shard.pending.get(counter);
                        let ends = |number: &u64| ((number + 1) * WINDOW_MS) as i64;
                        pending
                            .filter(|pending| pending.windows.keys().any(|number| ends(number) == since_ms))
                            .and_then(|pending| {
                                let first_end_ms = pending.first_end_ms()? as i64;
                                Some(first_end_ms + lag_ms - due_after_ms).filter(|sooner_ms| *sooner_ms < since_ms)
                            })
                    }
                    None => (*though_idle && number == placement.home()).then(|| now_ms as i64 - due_after_ms),
                };
                if let Some(sooner_ms) = sooner_ms {
                    shard.dirty_since_ms.insert(counter.clone(), sooner_ms);
                    is_sooner = true;
                }
            }
        }
        Ok(is_sooner)
    }
}
