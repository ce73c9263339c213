//! Events in memory.

use super::OracleNamespace;
use super::shard::{DirtyMark, PendingCounter, Shard};
use crate::checkpoints::Checkpoint;
use crate::log::{Appended, Change, Closed, Event, EventScan, Events, NewEvent, Unlogged, WINDOW_MS, untimed};
use crate::names::CounterName;
use crate::namespace::{FUTURE_LIMIT_MS, NamespaceConfig, Placement, SHARDS};
use crate::refusal::Refusal;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tallystone_lua::counter::FIRST_AGE_MS_MAX;

/// Slices that one call drops at most.
const SLICES_MAX: u64 = 100;
/// Times from here on do not fit a record.
const TIME_MS_MAX: u64 = 1 << 47;

impl Events for OracleNamespace {
    async fn append_while(
        &self,
        events: &[NewEvent],
        _is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Vec<Result<Appended, Unlogged>> {
        let mut world = self.world();
        let checkpoints = world.checkpoints.clone();
        let mut results: Vec<Result<Appended, Refusal>> = vec![Err(Refusal::Stale); events.len()];
        for number in 0..SHARDS {
            let mut of_shard: Vec<usize> = Vec::new();
            for (index, event) in events.iter().enumerate() {
                match refused_without_a_shard(event, &self.config) {
                    Some(refusal) => results[index] = Err(refusal),
                    None if shard_of(event, &self.config) == number => of_shard.push(index),
                    None => {}
                }
            }
            if of_shard.is_empty() {
                continue;
            }
            let Ok(shard) = self.shard(&mut world, number) else { continue };
            // The caller places an event without a time in the window that it takes for the current one, and in the next
            // one. Where the shard is in another window, the caller sends such events again in another call.
            let now_ms = self.now_ms();
            let is_wrong = shard.stamp_ms(now_ms) / WINDOW_MS - now_ms / WINDOW_MS > 1;
            let (mut again, mut call): (Vec<usize>, Vec<usize>) =
                of_shard.into_iter().partition(|index| is_wrong && events[*index].time_ms.is_none());
            // It also sends again what got no time. That helps no more once no other event was appended meanwhile.
            for call_number in 0.. {
                let of_call: Vec<&NewEvent> = call.iter().map(|index| &events[*index]).collect();
                let answers = append_call(shard, &checkpoints, &self.config, now_ms, &of_call);
                let is_new = answers.iter().any(Result::is_ok);
                for (index, answer) in call.into_iter().zip(answers) {
                    if matches!(answer, Err(Unappended::Untimed)) {
                        again.push(index);
                    }
                    results[index] = answer.map_err(Refusal::from);
                }
                again.sort_unstable();
                call = std::mem::take(&mut again);
                if call.is_empty() || call_number > 0 && !is_new {
                    break;
                }
            }
        }
        results.into_iter().map(|result| result.map_err(Unlogged::from)).collect()
    }

    /// Nothing leaves its log.
    async fn find_archived(&self, late: &[NewEvent]) -> Vec<Result<Appended, Refusal>> {
        vec![Err(Refusal::Internal("the oracle has no archive".to_owned())); late.len()]
    }

    async fn scan(&self, counter: &CounterName, windows: Range<u64>, _enough: usize) -> Result<EventScan, Refusal> {
        let world = self.world();
        let all = world.shards.iter().flat_map(|shard| shard.events_of(counter));
        let mut events: Vec<Event> = all.filter(|event| windows.contains(&(event.time_ms / WINDOW_MS))).collect();
        events.sort_by(|one, other| (one.time_ms, &one.token).cmp(&(other.time_ms, &other.token)));
        Ok(EventScan { events, next_window: windows.end })
    }

    async fn tick(&self, until: &[(CounterName, u64)]) -> Result<Vec<u64>, Refusal> {
        let mut world = self.world();
        let now_ms = self.now_ms();
        let mut waits_ms = Vec::with_capacity(until.len());
        for (counter, until_ms) in until {
            let mut shown_ms = *until_ms;
            for number in Placement::of(counter).shards(&self.config) {
                let shard = self.shard(&mut world, number)?;
                shard.shown_ms = shard.shown_ms.max(now_ms);
                shown_ms = shown_ms.max(shard.stamp_ms(now_ms));
            }
            waits_ms.push(shown_ms.saturating_sub(now_ms));
        }
        Ok(waits_ms)
    }

    async fn exact_to(&self, counter: &CounterName) -> Result<u64, Refusal> {
        let mut world = self.world();
        let mut exact_to_ms = u64::MAX;
        for number in Placement::of(counter).shards(&self.config) {
            let shard = self.shard(&mut world, number)?;
            let fence_ms = shard.sealed_to_ms.max(shard.refused_to_ms).max(shard.pruned_to_ms);
            exact_to_ms = exact_to_ms.min(fence_ms);
        }
        Ok(exact_to_ms)
    }

    async fn prune(&self, shard: u16) -> Result<u64, Refusal> {
        let mut world = self.world();
        let pruned_to_ms = match self.config.archived {
            false => self.shard(&mut world, shard)?.pruned_to_ms,
            // Of the archive.
            true => {
                let kept_ms = self.config.delete_after_ms + self.config.seconds_per_slice * 1_000;
                self.now_ms().saturating_sub(kept_ms)
            }
        };
        let may_change = self.shard(&mut world, shard).map(drop);
        world.forget_deleted(shard, pruned_to_ms.saturating_sub(FIRST_AGE_MS_MAX), may_change)?;
        if self.config.archived {
            return Ok(0);
        }
        let shard = self.shard(&mut world, shard)?;
        let slice_ms = self.config.seconds_per_slice * 1_000;
        let keep_from_ms = self.now_ms().saturating_sub(self.config.delete_after_ms);
        let bucket_ms = self.config.seconds_per_bucket * 1_000;
        // The time buckets in which an event waits for its rollup stay.
        let begins = shard.pending.values().flat_map(|pending| pending.windows.keys().map(|number| number * WINDOW_MS));
        let waiting: BTreeSet<u64> = begins.map(|begin_ms| begin_ms / bucket_ms).collect();
        let mut dropped = 0;
        while dropped < SLICES_MAX && (shard.pruned_to_ms / slice_ms + 1) * slice_ms <= keep_from_ms {
            shard.pruned_to_ms = (shard.pruned_to_ms / slice_ms + 1) * slice_ms;
            dropped += 1;
        }
        let pruned_to_ms = shard.pruned_to_ms;
        shard.events.retain(|(_, time_ms, _), _| *time_ms >= pruned_to_ms || waiting.contains(&(time_ms / bucket_ms)));
        Ok(dropped)
    }
}

/// Why an event is not appended.
enum Unappended {
    Refused(Refusal),
    /// It happens when it is counted, and cannot happen now.
    Untimed,
}

impl From<Refusal> for Unappended {
    fn from(refusal: Refusal) -> Unappended {
        Unappended::Refused(refusal)
    }
}

impl From<Unappended> for Refusal {
    fn from(unappended: Unappended) -> Refusal {
        match unappended {
            Unappended::Refused(refusal) => refusal,
            Unappended::Untimed => untimed(),
        }
    }
}

fn refused_without_a_shard(event: &NewEvent, config: &NamespaceConfig) -> Option<Refusal> {
    if event.time_ms.is_some_and(|time_ms| time_ms >= TIME_MS_MAX) {
        return Some(Refusal::TooEarly);
    }
    if let Err(refusal) = config.check_bounds(&event.bounds) {
        return Some(refusal);
    }
    match event.change {
        Change::Add(delta) if delta.unsigned_abs() > config.pending_max().unsigned_abs() => Some(Refusal::Overflow),
        _ => None,
    }
}

fn shard_of(event: &NewEvent, config: &NamespaceConfig) -> u16 {
    Placement::of(&event.counter).of_event(&event.token, config).0
}

/// One atomic step of a shard.
fn append_call(
    shard: &mut Shard,
    checkpoints: &BTreeMap<CounterName, Checkpoint>,
    config: &NamespaceConfig,
    now_ms: u64,
    events: &[&NewEvent],
) -> Vec<Result<Appended, Unappended>> {
    let accepted_from_ms = now_ms.saturating_sub(config.accept_limit_ms);
    let open_from_ms = accepted_from_ms.max(shard.sealed_to_ms).max(shard.refused_to_ms);
    let was_pending =
        |event: &&&NewEvent| shard.pending.get(&event.counter).is_some_and(|pending| !pending.windows.is_empty());
    let clean: Vec<&NewEvent> = events.iter().filter(|event| !was_pending(event)).copied().collect();
    let append = |event: &&NewEvent| {
        let checkpoint = checkpoints.get(&event.counter).copied().unwrap_or_default();
        append_one(shard, &checkpoint, config, now_ms, open_from_ms, event)
    };
    let results = events.iter().map(append).collect();
    // A counter that the call has made pending is dirty since the end of its earliest window.
    for event in clean {
        let pending = shard.pending.get(&event.counter);
        if let Some(first_end_ms) = pending.and_then(PendingCounter::first_end_ms) {
            shard.dirty.insert(event.counter.clone(), DirtyMark::since(first_end_ms as i64));
        }
    }
    results
}

fn append_one(
    shard: &mut Shard,
    checkpoint: &Checkpoint,
    config: &NamespaceConfig,
    now_ms: u64,
    open_from_ms: u64,
    event: &NewEvent,
) -> Result<Appended, Unappended> {
    let time_ms = event.time_ms.unwrap_or(shard.stamp_ms(now_ms));
    let id = (event.counter.clone(), time_ms, event.token.clone());
    if time_ms < now_ms.saturating_sub(config.close_after_ms).max(shard.pruned_to_ms) {
        return Err(Refusal::TokenExpired.into());
    }
    match shard.events.get(&id) {
        Some((change, labels)) if (*change, labels) == (event.change, &event.kept_labels()) => {
            return Ok(Appended { time_ms, duplicate: true });
        }
        Some(_) => return Err(Refusal::TokenConflict.into()),
        None => {}
    }
    if time_ms < open_from_ms {
        // Whatever the accept limit and the clock become, the refusal stays true.
        shard.refused_to_ms = shard.refused_to_ms.max(time_ms + 1);
        return Err(Refusal::TooOld.into());
    }
    if event.time_ms.is_some_and(|time_ms| time_ms > now_ms + FUTURE_LIMIT_MS) {
        return Err(Refusal::TooEarly.into());
    }
    if let Change::Add(delta) = event.change
        && !event.bounds.are_none()
    {
        check_bounds(shard, checkpoint, event, delta, time_ms)?;
    }
    let (size, closed_here) = match event.change {
        Change::Clear => (0, None),
        Change::Add(delta) if delta > 0 => (delta.unsigned_abs(), Some(Closed::Up)),
        Change::Add(delta) => (delta.unsigned_abs(), Some(Closed::Down).filter(|_| delta < 0)),
    };
    let pending = shard.pending.entry(event.counter.clone()).or_default();
    let is_full = size > 0 && pending.size() + u128::from(size) > config.pending_max() as u128;
    if closed_here == Some(pending.closed) || is_full {
        shard.forget_if_idle(&event.counter);
        return Err(Refusal::Overflow.into());
    }
    pending.count(time_ms, event.change);
    shard.events.insert(id, (event.change, event.kept_labels()));
    Ok(Appended { time_ms, duplicate: false })
}

/// Holds a conditional add against the count of everything that was appended before.
fn check_bounds(
    shard: &Shard,
    checkpoint: &Checkpoint,
    event: &NewEvent,
    delta: i64,
    time_ms: u64,
) -> Result<(), Unappended> {
    // The checkpoint has counted the earlier ones.
    let later = || shard.events_of(&event.counter).filter(|event| event.time_ms >= checkpoint.exact_to_ms);
    let cleared_ms = later().filter(|event| event.change == Change::Clear).map(|event| event.time_ms).max();
    if cleared_ms.is_some_and(|cleared_ms| time_ms <= cleared_ms) {
        return Err(if event.time_ms.is_some() { Unappended::Refused(Refusal::TooOld) } else { Unappended::Untimed });
    }
    let added = later().filter(|event| cleared_ms.is_none_or(|cleared_ms| event.time_ms > cleared_ms));
    let added = added.map(|event| if let Change::Add(delta) = event.change { i128::from(delta) } else { 0 });
    let before = if cleared_ms.is_some() { 0 } else { i128::from(checkpoint.count) };
    let count = before + added.sum::<i128>();
    // An absent bound is that of 64 bits. The bounds on pending sizes keep every count within them.
    let after = (count + i128::from(delta)).clamp(i64::MIN.into(), i64::MAX.into());
    let falls = delta < 0 && event.bounds.min.is_some_and(|min| after < i128::from(min));
    let rises = delta > 0 && event.bounds.max.is_some_and(|max| after > i128::from(max));
    if falls || rises { Err(Refusal::BoundReached { count: count as i64 }.into()) } else { Ok(()) }
}
