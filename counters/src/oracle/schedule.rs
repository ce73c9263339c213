//! The dirty counters in memory.

use super::OracleNamespace;
use super::shard::DirtyMark;
use crate::log::{Due, RollupSchedule, WINDOW_MS};
use crate::names::CounterName;
use crate::namespace::Placement;
use crate::refusal::Refusal;

impl RollupSchedule for OracleNamespace {
    async fn due(&self, shard: u16, limit: usize, hold_ms: u64) -> Result<Due, Refusal> {
        let mut world = self.world();
        let shard = self.shard(&mut world, shard)?;
        let (now_ms, due_after_ms) = (self.now_ms(), self.config.due_after_ms() as i64);
        let mut waiting: Vec<(DirtyMark, CounterName)> =
            shard.dirty.iter().map(|(counter, mark)| (*mark, counter.clone())).collect();
        waiting.sort();
        let due_ms = |mark: DirtyMark| (mark.since_ms + due_after_ms) as u64;
        let is_due = |(mark, _): &(DirtyMark, CounterName)| due_ms(*mark) <= now_ms;
        let due: Vec<(DirtyMark, CounterName)> = waiting.into_iter().filter(is_due).take(limit).collect();
        for (mark, counter) in &due {
            shard.dirty.insert(counter.clone(), mark.held(now_ms, hold_ms, due_after_ms));
        }
        let next_ms = shard.dirty.values().min().map(|mark| due_ms(*mark));
        let counters = due.into_iter().map(|(mark, counter)| (counter, due_ms(mark)));
        Ok(Due { counters: counters.collect(), next_ms, now_ms, dirty: shard.dirty.len() as u64 })
    }

    async fn defer(&self, shard: u16, counters: &[CounterName], delay_ms: u64) -> Result<(), Refusal> {
        if counters.is_empty() {
            return Ok(());
        }
        let mut world = self.world();
        let shard = self.shard(&mut world, shard)?;
        let mark = DirtyMark::since((self.now_ms() + delay_ms) as i64 - self.config.due_after_ms() as i64);
        for counter in counters {
            shard.dirty.entry(counter.clone()).and_modify(|known| *known = mark);
        }
        Ok(())
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
                let sooner_ms = match shard.dirty.get(counter).copied() {
                    Some(DirtyMark { returned: 1.., .. }) => None,
                    Some(DirtyMark { since_ms, .. }) => {
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
                    shard.dirty.insert(counter.clone(), DirtyMark::since(sooner_ms));
                    is_sooner = true;
                }
            }
        }
        Ok(is_sooner)
    }
}
