//! Appends events: one script call for each shard; the caller places each record in its slot (docs/decisions/0020).

use super::RedisNamespace;
use super::calls::defect;
use super::layout::{Layout, field};
use super::record::{self, Item};
use super::token::pack;
use crate::log::{Appended, Change, NewEvent, Unlogged, WINDOW_MS, untimed};
use crate::namespace::{FUTURE_LIMIT_MS, Placement, SHARDS};
use crate::refusal::Refusal;
use futures::future::join_all;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;
use tallystone_lua::counter::{CounterAnswer, CounterScript};
use tokio::time::sleep;

/// Time buckets of one script call at most.
const BUCKETS_MAX: usize = 200;
/// Events of one script call at most: each takes Redis some microseconds, and other calls wait meanwhile.
const EVENTS_MAX: usize = 512;
/// Times from here on do not fit a record. The limits of the namespace bound a time further.
const TIME_MS_MAX: u64 = 1 << 47;
/// How often an event is tried. A try fails if it arrives behind both windows that it has fields for, or if its call waits
/// for longer than the clocks may differ.
const TRIES: usize = 10;
/// The time between two tries: an add with bounds cannot happen at the time of a clear, but one millisecond later.
const TRY_AFTER: Duration = Duration::from_millis(1);

/// An event and where its record goes.
struct PlacedEvent<'a> {
    number: usize,
    event: &'a NewEvent,
    placement: Placement,
    slot_hash: u32,
}

/// What the log answers to an event.
type Answered = Result<Appended, Unlogged>;
type Outcome = (usize, Answered);

impl RedisNamespace {
    pub(super) async fn append_all(
        &self,
        events: &[NewEvent],
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Vec<Answered> {
        let mut results: Vec<Option<Answered>> = vec![None; events.len()];
        let mut shards: [Vec<PlacedEvent<'_>>; SHARDS as usize] = Default::default();
        for (number, event) in events.iter().enumerate() {
            if let Some(refusal) = self.refused_at_once(event) {
                results[number] = Some(Err(refusal.into()));
                continue;
            }
            let placement = Placement::of(&event.counter);
            let (shard, slot_hash) = placement.of_event(&event.token, &self.config);
            shards[usize::from(shard)].push(PlacedEvent { number, event, placement, slot_hash });
        }
        let calls =
            (0..SHARDS).zip(&shards).flat_map(|(shard, placed)| placed.chunks(EVENTS_MAX).map(move |now| (shard, now)));
        for outcomes in join_all(calls.map(|(shard, placed)| self.append_to(shard, placed, is_wanted))).await {
            for (number, answered) in outcomes {
                results[number] = Some(answered);
            }
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(defect("too little").into()))).collect()
    }

    /// Refuses what no state of the store allows, and adds while its disk has no room. A clear makes room.
    fn refused_at_once(&self, event: &NewEvent) -> Option<Refusal> {
        if event.time_ms.is_some_and(|time_ms| time_ms >= TIME_MS_MAX) {
            return Some(Refusal::TooEarly);
        }
        if let Err(refusal) = self.config.check_bounds(&event.bounds) {
            return Some(refusal);
        }
        match event.change {
            Change::Add(delta) if delta.unsigned_abs() > self.config.pending_max().unsigned_abs() => {
                Some(Refusal::Overflow)
            }
            Change::Add(_) => self.room.check().err().map(Refusal::from),
            _ => None,
        }
    }

    /// Makes one script call, or several if the events are in very many time buckets, or if a call arrives so late that it
    /// must be built again. Events whose callers have gone are not sent again.
    async fn append_to(
        &self,
        shard: u16,
        placed: &[PlacedEvent<'_>],
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(placed.len());
        let mut now: Vec<&PlacedEvent<'_>> = placed.iter().collect();
        let mut guess_ms = self.partition(shard).now.now_ms();
        for tries_left in (0..TRIES).rev() {
            let mut later = Vec::new();
            let mut rest = now.as_slice();
            while !rest.is_empty() {
                let mut call = Call::new(self, shard, guess_ms);
                let taken = rest.iter().take_while(|placed| call.take(placed)).count();
                let (these, others) = rest.split_at(taken);
                rest = others;
                match call.send().await {
                    Ok(None) => {
                        guess_ms = self.partition(shard).now.now_ms();
                        later.extend_from_slice(these);
                    }
                    Ok(Some(Answers { stamp_ms, codes, counts })) => {
                        // Not the store's time: a fence of this shard may be ahead of it.
                        guess_ms = stamp_ms;
                        let mut counts = counts.into_iter();
                        for (placed, code) in these.iter().zip(codes) {
                            let answered = match code {
                                CounterAnswer::Restamp => {
                                    later.push(*placed);
                                    continue;
                                }
                                CounterAnswer::BoundReached => Err(bound_reached(counts.next()).into()),
                                code => appended(placed.event, stamp_ms, code),
                            };
                            outcomes.push((placed.number, answered));
                        }
                    }
                    // Results of earlier calls stay as they are.
                    Err(refusal) => {
                        outcomes.extend(these.iter().map(|placed| (placed.number, Err(refusal.clone().into()))));
                    }
                }
            }
            let goes_on = |placed: &&PlacedEvent<'_>| tries_left > 0 && is_wanted(placed.number);
            let (again, ended): (Vec<_>, Vec<_>) = later.into_iter().partition(goes_on);
            outcomes.extend(ended.into_iter().map(|placed| (placed.number, Err(untimed().into()))));
            if again.is_empty() {
                break;
            }
            now = again;
            sleep(TRY_AFTER).await;
        }
        outcomes
    }
}

fn appended(event: &NewEvent, stamp_ms: u64, answer: CounterAnswer) -> Answered {
    let time_ms = event.time_ms.unwrap_or(stamp_ms);
    let refusal = match answer {
        CounterAnswer::Ok => return Ok(Appended { time_ms, duplicate: false }),
        CounterAnswer::Duplicate => return Ok(Appended { time_ms, duplicate: true }),
        CounterAnswer::Archived => return Err(Unlogged::Archived),
        CounterAnswer::Conflict => Refusal::TokenConflict,
        CounterAnswer::TooOld => Refusal::TooOld,
        CounterAnswer::TooEarly => Refusal::TooEarly,
        CounterAnswer::Overflow => Refusal::Overflow,
        CounterAnswer::Expired => Refusal::TokenExpired,
        other => defect(&format!("{other:?} for an event")),
    };
    Err(refusal.into())
}

fn bound_reached(count: Option<i64>) -> Refusal {
    count.map_or_else(|| defect("no count"), |count| Refusal::BoundReached { count })
}

/// The answers to the items of a script call.
struct Answers {
    /// The time of the events that happen now.
    stamp_ms: u64,
    codes: Vec<CounterAnswer>,
    /// For each item whose bound is reached, in their order.
    counts: Vec<i64>,
}

/// A script call of one shard while it is built.
struct Call<'a> {
    namespace: &'a RedisNamespace,
    shard: u16,
    now_ms: u64,
    counters: HashMap<Placement, u16>,
    names: Vec<&'a str>,
    buckets: Vec<(u64, Bucket)>,
    items: Vec<(Item<'a>, ItemSlot)>,
}

/// The fields of one time bucket.
#[derive(Default)]
struct Bucket {
    numbers: HashMap<(u64, u32), usize>,
    fields: Vec<(u64, u32)>,
}

impl Bucket {
    /// The number of a field, from 1 on.
    fn number(&mut self, slot: (u64, u32)) -> usize {
        let Bucket { numbers, fields } = self;
        *numbers.entry(slot).or_insert_with(|| {
            fields.push(slot);
            fields.len()
        })
    }
}

/// Where an item goes: its window, and the hash that selects its slot there. `next_bucket`: it goes into the next window
/// instead if it is counted then. Buckets are indices in the call.
struct ItemSlot {
    bucket: usize,
    next_bucket: Option<usize>,
    window: u64,
    slot_hash: u32,
}

impl<'a> Call<'a> {
    fn new(namespace: &'a RedisNamespace, shard: u16, now_ms: u64) -> Call<'a> {
        let (counters, names, buckets, items) = Default::default();
        Call { namespace, shard, now_ms, counters, names, buckets, items }
    }

    /// Adds an event, and returns whether there was room for it.
    fn take(&mut self, placed: &PlacedEvent<'a>) -> bool {
        let event = placed.event;
        let time_ms = event.time_ms.unwrap_or(self.now_ms);
        let window = time_ms / WINDOW_MS;
        // Every item may need two.
        if self.buckets.len() + 2 > BUCKETS_MAX {
            return false;
        }
        let bucket = self.bucket(window);
        let next_bucket = event.time_ms.is_none().then(|| self.bucket(window + 1));
        let counter = match self.counters.entry(placed.placement) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.names.push(event.counter.as_str());
                *new.insert(self.names.len() as u16)
            }
        };
        let (id, stamped) = (placed.placement.id(), event.time_ms.is_none());
        let (token, change, bounds) = (pack(&event.token), event.change, event.bounds);
        let item = Item { counter, time_ms, stamped, id, token, change, bounds, labels: &event.labels };
        self.items.push((item, ItemSlot { bucket, next_bucket, window, slot_hash: placed.slot_hash }));
        true
    }

    /// The index of the time bucket of a window.
    fn bucket(&mut self, window: u64) -> usize {
        let number = window * WINDOW_MS / (self.namespace.config.seconds_per_bucket * 1_000);
        // Nearly always that of the event before.
        self.buckets.iter().rposition(|(known, _)| *known == number).unwrap_or_else(|| {
            self.buckets.push((number, Bucket::default()));
            self.buckets.len() - 1
        })
    }

    /// Sends the call, again if the layout of slots has changed. `None`: the call came too late, and nothing has changed.
    async fn send(mut self) -> Result<Option<Answers>, Refusal> {
        let cache = &self.namespace.layouts[usize::from(self.shard)];
        loop {
            let layout = cache.get();
            let command = self.command(&layout);
            let Some(mut reply) = self.namespace.run_once(self.shard, &command).await? else { return Ok(None) };
            match reply.answer {
                CounterAnswer::Ok => {
                    self.namespace.partition(self.shard).now.observe(reply.number()?);
                    let stamp_ms = reply.number()?;
                    let codes = reply.bytes()?;
                    if codes.is_empty() {
                        let codes = vec![CounterAnswer::Ok; self.items.len()];
                        return Ok(Some(Answers { stamp_ms, codes, counts: Vec::new() }));
                    }
                    let answer =
                        |code: &u8| CounterAnswer::from_code((*code).into()).ok_or_else(|| defect("an unknown code"));
                    let codes = codes.iter().map(answer).collect::<Result<_, _>>()?;
                    let counts = reply.bytes()?.chunks_exact(8).map(|count| record::read(count) as i64).collect();
                    return Ok(Some(Answers { stamp_ms, codes, counts }));
                }
                CounterAnswer::LayoutChanged => {
                    let version = reply.number()?;
                    let raw = reply.bytes()?;
                    cache.replace(&layout, Layout::decode(version, &raw));
                }
                CounterAnswer::Stale | CounterAnswer::NoShard => return Err(Refusal::Stale),
                other => return Err(defect(&format!("{other:?} to an append"))),
            }
        }
    }

    fn command(&mut self, layout: &Layout) -> redis::Cmd {
        let namespace = self.namespace;
        for (_, bucket) in &mut self.buckets {
            *bucket = Bucket::default();
        }
        let (mut window, mut slots, mut next_slots) = (u64::MAX, 1, 1);
        let mut numbers = Vec::with_capacity(self.items.len());
        for (_, spot) in &self.items {
            if spot.window != window {
                window = spot.window;
                (slots, next_slots) = (layout.slots(window), layout.slots(window + 1));
            }
            let number = self.buckets[spot.bucket].1.number((window, spot.slot_hash % slots));
            let next = spot
                .next_bucket
                .map(|bucket| (bucket, self.buckets[bucket].1.number((window + 1, spot.slot_hash % next_slots))));
            numbers.push((number, next));
        }
        let keys = namespace.keys(self.shard);
        let bucket_s = namespace.config.seconds_per_bucket;
        let all_keys: Vec<String> = keys
            .append()
            .into_iter()
            .chain(self.buckets.iter().map(|(number, _)| keys.events(bucket_s, *number)))
            .collect();
        let config = &namespace.config;
        let mut parameters = Vec::with_capacity(64);
        for ms in [config.accept_limit_ms, FUTURE_LIMIT_MS, config.close_after_ms] {
            parameters.extend_from_slice(&ms.to_be_bytes()[2..]);
        }
        parameters.extend_from_slice(&config.pending_max().to_be_bytes());
        parameters.extend_from_slice(&(self.names.len() as u16).to_be_bytes());
        // Fields are numbered across all buckets.
        let mut firsts = Vec::with_capacity(self.buckets.len());
        let mut first = 0;
        for (_, bucket) in &self.buckets {
            firsts.push(first);
            first += bucket.fields.len();
            parameters.extend_from_slice(&(bucket.fields.len() as u16).to_be_bytes());
        }
        let mut command = namespace.log_call(CounterScript::Append, self.shard, &all_keys);
        let mut items = Vec::with_capacity(32 * self.items.len());
        for ((item, spot), (number, next)) in self.items.iter().zip(numbers) {
            let next_field = next.map_or(0, |(bucket, number)| firsts[bucket] + number);
            record::item(&mut items, item, (firsts[spot.bucket] + number) as u16, next_field as u16);
        }
        command.arg(layout.version).arg(parameters).arg(items).arg(&self.names);
        for (window, slot) in self.buckets.iter().flat_map(|(_, bucket)| &bucket.fields) {
            command.arg(&field(*window, *slot)[..]);
        }
        let mut id = Vec::with_capacity(128);
        for (item, _) in &self.items {
            id.clear();
            record::id(&mut id, item);
            command.arg(id.as_slice());
        }
        command
    }
}
