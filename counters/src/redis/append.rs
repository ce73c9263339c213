//! Appends events: one script call for each shard; the caller places each record in its slot (docs/decisions/0020). Late
//! retries are answered by the archive (N15).

use super::RedisNamespace;
use super::calls::{defect, of_archive};
use super::layout::{Layout, field};
use super::record::{self, Item};
use super::token::pack;
use crate::log::{Appended, Change, NewEvent, WINDOW_MS};
use crate::namespace::{FUTURE_LIMIT_MS, Placement, SHARDS};
use crate::refusal::Refusal;
use futures::future::join_all;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use tallystone_archive::{EventKey, Found};
use tallystone_lua::counter::{CounterAnswer, CounterScript};
use tallystone_model::Applied;

/// Time buckets of one script call at most.
const BUCKETS_MAX: usize = 200;
/// Events of one script call at most: each takes Redis some microseconds, and other calls wait meanwhile.
const EVENTS_MAX: usize = 512;
/// Times from here on do not fit a record. The limits of the namespace bound a time further.
const TIME_MS_MAX: u64 = 1 << 47;
/// How often an event is tried. A try fails if it arrives behind both windows that it has fields for, or if its call waits
/// for longer than the clocks may differ.
const TRIES: usize = 10;

/// An event and where its record goes.
struct PlacedEvent<'a> {
    number: usize,
    event: &'a NewEvent,
    placement: Placement,
    slot_hash: u32,
}

/// What the log answers to an event.
type Answered = Result<Appended, Unappended>;
type Outcome = (usize, Answered);

/// Why an event is not appended.
#[derive(Clone)]
enum Unappended {
    Refused(Refusal),
    /// Only the archive knows whether it has counted.
    Archived,
}

impl From<Refusal> for Unappended {
    fn from(refusal: Refusal) -> Unappended {
        Unappended::Refused(refusal)
    }
}

impl RedisNamespace {
    pub(super) async fn append_all(
        &self,
        events: &[NewEvent],
        is_wanted: &(dyn Fn(usize) -> bool + Sync),
    ) -> Vec<Result<Appended, Refusal>> {
        let mut results: Vec<Option<Result<Appended, Refusal>>> = vec![None; events.len()];
        let mut shards: [Vec<PlacedEvent<'_>>; SHARDS as usize] = Default::default();
        for (number, event) in events.iter().enumerate() {
            if let Some(refusal) = self.refused_at_once(event) {
                results[number] = Some(Err(refusal));
                continue;
            }
            let placement = Placement::of(&event.counter);
            let (shard, slot_hash) = placement.of_event(&event.token, &self.config);
            shards[usize::from(shard)].push(PlacedEvent { number, event, placement, slot_hash });
        }
        let calls =
            (0..SHARDS).zip(&shards).flat_map(|(shard, placed)| placed.chunks(EVENTS_MAX).map(move |now| (shard, now)));
        let mut archived = Vec::new();
        for outcomes in join_all(calls.map(|(shard, placed)| self.append_to(shard, placed, is_wanted))).await {
            for (number, answered) in outcomes {
                match answered {
                    Err(Unappended::Archived) => archived.push(number),
                    Err(Unappended::Refused(refusal)) => results[number] = Some(Err(refusal)),
                    Ok(appended) => results[number] = Some(Ok(appended)),
                }
            }
        }
        if !archived.is_empty() {
            let late = archived.iter().map(|number| &events[*number]).collect::<Vec<_>>();
            for (number, result) in archived.iter().zip(self.find_archived(&late).await) {
                results[*number] = Some(result);
            }
        }
        results.into_iter().map(|result| result.unwrap_or_else(|| Err(defect("too little")))).collect()
    }

    /// The answers to late retries. What the archive does not have of its time, it never gets: the event is certainly not counted.
    async fn find_archived(&self, late: &[&NewEvent]) -> Vec<Result<Appended, Refusal>> {
        if !self.config.archived {
            return vec![Err(Refusal::TokenExpired); late.len()];
        }
        let key = |event: &&NewEvent| {
            let placement = Placement::of(&event.counter);
            EventKey {
                shard: placement.of_event(&event.token, &self.config).0,
                counter_id: placement.id(),
                time_ms: event.time_ms.unwrap_or_default(),
                token: event.token.as_str().into(),
            }
        };
        let keys: Vec<EventKey> = late.iter().map(key).collect();
        let (found, from_ms) = match self.find_keys(&keys).await {
            Ok(found) => found,
            Err(refusal) => return vec![Err(refusal); late.len()],
        };
        let duplicate = |event: &NewEvent| Appended { time_ms: event.time_ms.unwrap_or_default(), duplicate: true };
        let answered = |(event, found): (&&NewEvent, Option<Found>)| match (found, event.change) {
            // Retention has deleted it, or it is from before the archive.
            (None, _) if event.time_ms.unwrap_or_default() < from_ms => Err(Refusal::TokenExpired),
            (None, _) => Err(Refusal::TooOld),
            (Some(Found { delta: None }), Change::Clear) => Ok(duplicate(event)),
            (Some(Found { delta: Some(counted) }), Change::Add(delta)) if counted == delta => Ok(duplicate(event)),
            (Some(_), _) => Err(Refusal::TokenConflict),
        };
        late.iter().zip(found).map(answered).collect()
    }

    /// What the archive has of these events, and from when on it has all of them (Unix ms).
    async fn find_keys(&self, keys: &[EventKey]) -> Result<(Vec<Option<Found>>, u64), Refusal> {
        let archive = self.archive()?;
        let found = archive.find(&self.tag, self.slice_ms(), keys).await;
        let Some(found) = self.unless_new(found).await? else {
            return Ok((vec![None; keys.len()], u64::MAX));
        };
        if found.iter().all(Option::is_some) {
            return Ok((found, 0));
        }
        let first_ms = archive.first_slice_ms(&self.tag).await.map_err(of_archive)?;
        Ok((found, first_ms.unwrap_or(u64::MAX)))
    }

    /// Refuses what no state of the store allows, and adds while its disk has no room. A clear makes room.
    fn refused_at_once(&self, event: &NewEvent) -> Option<Refusal> {
        if event.time_ms.is_some_and(|time_ms| time_ms >= TIME_MS_MAX) {
            return Some(Refusal::TooEarly);
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
                    Ok(Some((stamp_ms, answers))) => {
                        // Not the store's time: a fence of this shard may be ahead of it.
                        guess_ms = stamp_ms;
                        for (placed, answer) in these.iter().zip(answers) {
                            match answer {
                                CounterAnswer::Restamp => later.push(*placed),
                                answer => outcomes.push((placed.number, appended(placed.event, stamp_ms, answer))),
                            }
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
            outcomes.extend(ended.into_iter().map(|placed| (placed.number, Err(late().into()))));
            if again.is_empty() {
                break;
            }
            now = again;
        }
        outcomes
    }
}

fn late() -> Refusal {
    Refusal::Unavailable { applied: Applied::No, why: "the store takes too long to reply".to_owned() }
}

fn appended(event: &NewEvent, stamp_ms: u64, answer: CounterAnswer) -> Answered {
    let time_ms = event.time_ms.unwrap_or(stamp_ms);
    let refusal = match answer {
        CounterAnswer::Ok => return Ok(Appended { time_ms, duplicate: false }),
        CounterAnswer::Duplicate => return Ok(Appended { time_ms, duplicate: true }),
        CounterAnswer::Archived => return Err(Unappended::Archived),
        CounterAnswer::Conflict => Refusal::TokenConflict,
        CounterAnswer::TooOld => Refusal::TooOld,
        CounterAnswer::TooEarly => Refusal::TooEarly,
        CounterAnswer::Overflow => Refusal::Overflow,
        CounterAnswer::Expired => Refusal::TokenExpired,
        other => defect(&format!("{other:?} for an event")),
    };
    Err(refusal.into())
}

/// A script call of one shard while it is built.
struct Call<'a> {
    namespace: &'a RedisNamespace,
    shard: u16,
    now_ms: u64,
    counters: HashMap<Placement, u16>,
    names: Vec<&'a str>,
    buckets: Vec<(u64, Bucket)>,
    items: Vec<(Item, ItemSlot)>,
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
        let item = Item { counter, time_ms, stamped, id, token: pack(&event.token), change: event.change };
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

    /// Sends the call, again if the layout of slots has changed; returns the time of the events that
    /// happen now, and a code for each item. `None`: the call came too late, and nothing has changed.
    async fn send(mut self) -> Result<Option<(u64, Vec<CounterAnswer>)>, Refusal> {
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
                        return Ok(Some((stamp_ms, vec![CounterAnswer::Ok; self.items.len()])));
                    }
                    let answer =
                        |code: &u8| CounterAnswer::from_code((*code).into()).ok_or_else(|| defect("an unknown code"));
                    return Ok(Some((stamp_ms, codes.iter().map(answer).collect::<Result<_, _>>()?)));
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
            .log()
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
