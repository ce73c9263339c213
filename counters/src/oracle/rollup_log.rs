//! Sealing, summing and settling in memory.

use super::OracleNamespace;
use super::shard::DirtyMark;
use crate::log::{Change, Closed, Pending, RollupLog, Sealed, Settlement, WINDOW_MS};
use crate::names::CounterName;
use crate::namespace::Placement;
use crate::refusal::Refusal;

impl RollupLog for OracleNamespace {
    async fn pending(&self, counters: &[CounterName]) -> Result<Vec<Vec<(u16, Pending)>>, Refusal> {
        let world = self.world();
        let shown = |counter: &CounterName| {
            let shards = Placement::of(counter).shards(&self.config);
            shards.map(|number| (number, world.shards[usize::from(number)].pending_of(counter))).collect()
        };
        Ok(counters.iter().map(shown).collect())
    }

    async fn seal(&self, counters: &[CounterName]) -> Result<Vec<Sealed>, Refusal> {
        let mut world = self.world();
        // Every shard of the call is sealed before any counter is read.
        let all = counters.iter().flat_map(|counter| Placement::of(counter).shards(&self.config));
        for number in all.collect::<Vec<u16>>() {
            let shard = self.shard(&mut world, number)?;
            let bound_ms = self.now_ms().saturating_sub(self.config.lag_ms()) / WINDOW_MS * WINDOW_MS;
            shard.sealed_to_ms = shard.sealed_to_ms.max(bound_ms);
        }
        let sealed = |counter: &CounterName| {
            let of_shard = |number: u16| (number, &world.shards[usize::from(number)]);
            let shards: Vec<_> = Placement::of(counter).shards(&self.config).map(of_shard).collect();
            Sealed {
                sealed_to_ms: shards.iter().map(|(_, shard)| shard.sealed_to_ms).min().unwrap_or_default(),
                pending: shards.iter().map(|(number, shard)| (*number, shard.pending_of(counter))).collect(),
                expire_after_ms: self.config.expire_after_ms,
                has_regions: !self.config.regions.is_empty(),
            }
        };
        Ok(counters.iter().map(sealed).collect())
    }

    async fn sum_after(&self, counter: &CounterName, shard: u16, window: u64, after_ms: u64) -> Result<i64, Refusal> {
        let world = self.world();
        let events = world.shards[usize::from(shard)].events_of(counter);
        let after = events.filter(|event| event.time_ms / WINDOW_MS == window && event.time_ms > after_ms);
        let delta = |change| match change {
            Change::Add(delta) => i128::from(delta),
            Change::Clear => 0,
        };
        // The bound on sizes keeps every sum within 63 bits.
        Ok(after.map(|event| delta(event.change)).sum::<i128>() as i64)
    }

    async fn settle(&self, settlements: &[Settlement]) -> Result<(), Refusal> {
        let mut world = self.world();
        for settlement @ Settlement { counter, to_ms, closed, is_deleted, .. } in settlements {
            let placement = Placement::of(counter);
            for number in placement.shards(&self.config) {
                if number != placement.home() && settlement.skips(number) {
                    continue;
                }
                let is_deleted_now = world.checkpoints.get(counter).is_none_or(|checkpoint| checkpoint.is_deleted);
                let shard = self.shard(&mut world, number)?;
                let now_ms = self.now_ms();
                let pending = shard.pending.entry(counter.clone()).or_default();
                pending.windows.retain(|number, _| (number + 1) * WINDOW_MS > *to_ms);
                let (first_end_ms, was_closed) = (pending.first_end_ms(), pending.closed);
                // A time that is yet to come was written under a wrong clock.
                let is_last_word = *to_ms >= pending.closed_to_ms || pending.closed_to_ms > now_ms;
                if is_last_word {
                    (pending.closed, pending.closed_to_ms) = (*closed, *to_ms);
                }
                // Only the home shard keeps a counter in circulation: one mark is enough. A later rollup than that of the
                // settlement may have counted an add to the deleted counter.
                let stays = number == placement.home() && !(*is_deleted && is_deleted_now);
                let again_after_ms = if stays { self.config.circulation_ms(settlement.idle_ms()) } else { 0 };
                let due_after_ms = self.config.due_after_ms() as i64;
                let since_ms = match first_end_ms {
                    Some(first_end_ms) => Some(first_end_ms as i64),
                    None if again_after_ms > 0 => Some((now_ms + again_after_ms) as i64 - due_after_ms),
                    // A later rollup may have opened it and left no record; the next one decides.
                    None if *closed != Closed::No && *closed != was_closed => Some(now_ms as i64),
                    None => None,
                };
                match since_ms {
                    Some(since_ms) if is_last_word || first_end_ms.is_some() => {
                        shard.dirty.insert(counter.clone(), DirtyMark::since(since_ms));
                    }
                    None if is_last_word => drop(shard.dirty.remove(counter)),
                    _ => {}
                }
                // A recount since then waits for a later rollup.
                if is_last_word {
                    shard.forget_if_idle(counter);
                }
            }
        }
        Ok(())
    }

    async fn close(&self, closing: &Settlement) -> Result<(), Refusal> {
        let mut world = self.world();
        for number in Placement::of(&closing.counter).shards(&self.config) {
            let shard = self.shard(&mut world, number)?;
            let pending = shard.pending.entry(closing.counter.clone()).or_default();
            if closing.to_ms >= pending.closed_to_ms {
                (pending.closed, pending.closed_to_ms) = (closing.closed, closing.to_ms);
                let now_ms = self.now_ms() as i64;
                shard.dirty.entry(closing.counter.clone()).or_insert(DirtyMark::since(now_ms));
                shard.forget_if_idle(&closing.counter);
            }
        }
        Ok(())
    }
}
