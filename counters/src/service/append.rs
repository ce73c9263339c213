//! Adds and clears: events go to the log, BEST_EFFORT changes to the cache.

use super::CounterService;
use super::open::{OpenNamespace, Stored};
use crate::cache::Cache;
use crate::log::{Appended, Bounds, Change, Events, Labels, NewEvent, Pending, RollupLog};
use crate::names::{CounterName, NamespaceName, Token};
use crate::namespace::{CounterType, FUTURE_LIMIT_MS};
use crate::refusal::Refusal;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::Applied;
use tallystone_serving::RoomPlace;
use tokio::time::{Instant, sleep};

/// How often a call is repeated because the namespace has changed meanwhile.
pub(super) const STALE_TRIES: usize = 5;
/// How long a clear waits for the store's clock at most: an event may be a second ahead of it.
const CLEAR_PATIENCE: Duration = Duration::from_millis(FUTURE_LIMIT_MS + 1_000);
/// The memory of a waiting item without its names: the event, its place in a flush, and its part of a script call.
const ITEM_BYTES: usize = 256;
const DRAWN_TOKEN_BYTES: usize = 16;
const STANDS: &str = "its clock was set back during the clear";

/// A change that a caller requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    /// The counter.
    pub counter: CounterName,
    /// The change.
    pub change: Change,
    /// The caller's token and the event's time (Unix ms); `None`: it happens when it is counted, and is never repeated.
    pub event: Option<(Token, u64)>,
    /// What an add requires of the count (N18).
    pub bounds: Bounds,
    /// What an add says of itself (N20). BEST_EFFORT counters have no events to keep it with.
    pub labels: Labels,
}

impl ChangeRequest {
    /// The memory that it takes while it waits.
    fn bytes(&self) -> usize {
        let token_bytes = self.event.as_ref().map_or(DRAWN_TOKEN_BYTES, |(token, _)| token.as_str().len());
        ITEM_BYTES + self.counter.as_str().len() + token_bytes + self.labels.bytes()
    }
}

impl From<ChangeRequest> for NewEvent {
    fn from(ChangeRequest { counter, change, event, bounds, labels }: ChangeRequest) -> NewEvent {
        let (token, time_ms) = match event {
            Some((token, time_ms)) => (token, Some(time_ms)),
            None => (Token::drawn(), None),
        };
        NewEvent { counter, token, time_ms, change, bounds, labels }
    }
}

impl CounterService {
    /// Whether there may be room for adds or clears that have not been read.
    ///
    /// # Errors
    /// [`Refusal::Overloaded`]: most of what may wait waits already.
    pub fn admits(&self) -> Result<(), Refusal> {
        self.directory.room.admits().map_err(Refusal::from)
    }

    /// Adds and clears in one namespace; a result for each, in their order.
    pub async fn append(
        &self,
        namespace: &NamespaceName,
        requests: Vec<ChangeRequest>,
    ) -> Result<Vec<Result<Appended, Refusal>>, Refusal> {
        let bytes = requests.iter().map(ChangeRequest::bytes).sum();
        let place = Arc::new(self.directory.room.take(requests.len(), bytes)?);
        let mut open = self.directory.get(namespace).await?;
        if requests.iter().any(|request| open.config.check_bounds(&request.bounds).is_err()) {
            // This server may not know the latest revision yet, which may allow them.
            open = match self.directory.reopen(namespace, Some(&open)).await {
                Err(Refusal::Stale) => open,
                reopened => reopened?,
            };
        }
        let results = match open.config.counter_type {
            CounterType::BestEffort => self.append_best_effort(open, requests, &place).await,
            CounterType::Eventual | CounterType::Accurate => self.append_events(open, requests, place).await?,
        };
        crate::metrics::added(&results);
        Ok(results)
    }

    /// Adds and clears of BEST_EFFORT counters. Those that were made in a namespace which was deleted meanwhile are gone with
    /// it, and are made in the one that has its name now; that may be of another type.
    async fn append_best_effort(
        &self,
        mut open: Arc<OpenNamespace>,
        requests: Vec<ChangeRequest>,
        place: &Arc<RoomPlace>,
    ) -> Vec<Result<Appended, Refusal>> {
        let mut results = append_cached(&open, &requests, place).await;
        for _ in 1..STALE_TRIES {
            let is_stale = |index: &usize| results[*index] == Err(Refusal::Stale);
            let stale: Vec<usize> = (0..requests.len()).filter(is_stale).collect();
            if stale.is_empty() {
                break;
            }
            let again: Vec<ChangeRequest> = stale.iter().map(|index| requests[*index].clone()).collect();
            let later = match self.directory.instead_of(&open).await {
                Ok(later) => {
                    open = later;
                    match open.config.counter_type {
                        CounterType::BestEffort => Ok(append_cached(&open, &again, place).await),
                        _ => self.append_events(open.clone(), again, place.clone()).await,
                    }
                }
                Err(refusal) => Err(refusal),
            };
            let later = later.unwrap_or_else(|refusal| vec![Err(refusal); stale.len()]);
            stale.into_iter().zip(later).for_each(|(index, result)| results[index] = result);
        }
        results
    }

    async fn append_events(
        &self,
        mut open: Arc<OpenNamespace>,
        requests: Vec<ChangeRequest>,
        place: Arc<RoomPlace>,
    ) -> Result<Vec<Result<Appended, Refusal>>, Refusal> {
        let mut results = vec![Err(Refusal::Stale); requests.len()];
        let happens_now = |request: &ChangeRequest| request.change == Change::Clear && request.event.is_none();
        let clears = requests.iter().enumerate().filter(|(_, request)| happens_now(request));
        let clears: Vec<(usize, CounterName)> =
            clears.map(|(index, request)| (index, request.counter.clone())).collect();
        let refused = self.wait_for_what_came_before(&mut open, &clears).await?;
        let mut indices: Vec<usize> = (0..requests.len()).filter(|index| !refused.contains_key(index)).collect();
        let is_left = requests.into_iter().enumerate().filter(|(index, _)| !refused.contains_key(index));
        let mut events: Vec<NewEvent> = is_left.map(|(_, request)| NewEvent::from(request)).collect();
        for (index, refusal) in refused {
            results[index] = Err(refusal);
        }
        let mut late = Vec::new();
        for tries_left in (0..STALE_TRIES).rev() {
            if open.config.counter_type == CounterType::BestEffort {
                // The namespace of that name has no log now, so nothing would count its events. The caller's retry adds to its counters.
                break;
            }
            let (mut stale, mut again) = (Vec::new(), Vec::new());
            let (mut late_indices, mut late_events) = (Vec::new(), Vec::new());
            for (index, stored) in indices.into_iter().zip(open.events.call(events, &place).await) {
                match stored {
                    Stored::Done(result) => results[index] = result,
                    Stored::Stale(event) => {
                        stale.push(index);
                        again.push(event);
                    }
                    Stored::Late(event) => {
                        late_indices.push(index);
                        late_events.push(event);
                    }
                }
            }
            if !late_events.is_empty() {
                late.push((open.clone(), late_indices, late_events));
            }
            (indices, events) = (stale, again);
            if indices.is_empty() || tries_left == 0 {
                break;
            }
            open = match self.directory.instead_of(&open).await {
                Ok(open) => open,
                Err(refusal) => {
                    // Of the events that are left only: the others are stored.
                    indices.iter().for_each(|index| results[*index] = Err(refusal.clone()));
                    break;
                }
            };
        }
        self.acknowledge_clears(&mut open, &clears, &mut results).await;
        // The archive may take long. Adds that wait for it take no room from those that wait for the store.
        drop(place);
        for (open, indices, events) in late {
            for (index, result) in indices.into_iter().zip(open.late.answers(events).await) {
                results[index] = result;
            }
        }
        Ok(results)
    }

    /// Waits until the store's clock has reached every event of these counters: a clear that happens then follows all
    /// that was acknowledged before. Returns the clears that would have to wait for too long.
    async fn wait_for_what_came_before(
        &self,
        open: &mut Arc<OpenNamespace>,
        clears: &[(usize, CounterName)],
    ) -> Result<HashMap<usize, Refusal>, Refusal> {
        let names: Vec<CounterName> = clears.iter().map(|(_, counter)| counter.clone()).collect();
        // What is no longer pending is sealed, so it is behind the clock.
        let pending =
            if names.is_empty() { Vec::new() } else { open.store.pending(&names).await.map_err(unchanged)? };
        let latest_ms = |shards: Vec<(u16, Pending)>| shards.iter().map(|(_, pending)| pending.last_write_ms).max();
        let until = names.into_iter().zip(pending.into_iter().map(|shards| latest_ms(shards).unwrap_or_default()));
        let waits_ms = self.wait_until(open, until.collect()).await?;
        let refused = |wait_ms: u64| Refusal::Unavailable {
            applied: Applied::No,
            why: format!("its clock was set back, and a clear without a token would have to wait {wait_ms} ms for it"),
        };
        let waits = clears.iter().zip(waits_ms).filter(|(_, wait_ms)| *wait_ms > 0);
        Ok(waits.map(|((index, _), wait_ms)| (*index, refused(wait_ms))).collect())
    }

    /// A clear is acknowledged when it is certain that an event which happens from now on, in any shard, has a later time.
    async fn acknowledge_clears(
        &self,
        open: &mut Arc<OpenNamespace>,
        clears: &[(usize, CounterName)],
        results: &mut [Result<Appended, Refusal>],
    ) {
        let cleared = |(index, counter): &(usize, CounterName)| {
            let time_ms = results[*index].as_ref().ok()?.time_ms;
            Some((*index, (counter.clone(), time_ms + 1)))
        };
        let (indices, until): (Vec<usize>, Vec<(CounterName, u64)>) = clears.iter().filter_map(cleared).unzip();
        let waits = match self.wait_until(open, until).await {
            Ok(waits_ms) => waits_ms.into_iter().map(|wait_ms| (wait_ms > 0).then(|| STANDS.to_owned())).collect(),
            Err(refusal) => vec![Some(refusal.to_string()); indices.len()],
        };
        for (index, why) in indices.into_iter().zip(waits) {
            if let Some(why) = why {
                results[index] = Err(Refusal::Unavailable { applied: Applied::Unknown, why });
            }
        }
    }

    /// Waits until the clocks of these counters' shards show these times (Unix ms). Returns how long each would still have
    /// to wait; 0: it need not.
    async fn wait_until(
        &self,
        open: &mut Arc<OpenNamespace>,
        until: Vec<(CounterName, u64)>,
    ) -> Result<Vec<u64>, Refusal> {
        if until.is_empty() {
            return Ok(Vec::new());
        }
        let give_up_at = Instant::now() + CLEAR_PATIENCE;
        loop {
            let waits_ms = self.tick(open, &until).await?;
            let left = give_up_at.saturating_duration_since(Instant::now());
            let in_time =
                waits_ms.iter().filter(|wait_ms| **wait_ms > 0).map(|wait_ms| Duration::from_millis(*wait_ms));
            match in_time.filter(|wait| *wait <= left).max() {
                Some(wait) => sleep(wait).await,
                None => return Ok(waits_ms),
            }
        }
    }

    async fn tick(&self, open: &mut Arc<OpenNamespace>, until: &[(CounterName, u64)]) -> Result<Vec<u64>, Refusal> {
        for _ in 0..STALE_TRIES {
            match open.store.tick(until).await {
                Err(Refusal::Stale) => *open = self.directory.instead_of(open).await?,
                ticked => return ticked.map_err(unchanged),
            }
        }
        Err(Refusal::Stale)
    }
}

/// The refusal of a call that changes no counter.
fn unchanged(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Unavailable { why, .. } => Refusal::Unavailable { applied: Applied::No, why },
        other => other,
    }
}

async fn append_cached(
    open: &OpenNamespace,
    requests: &[ChangeRequest],
    place: &Arc<RoomPlace>,
) -> Vec<Result<Appended, Refusal>> {
    // Clears first, then adds: the items of a batch have no order.
    let appended = Appended { time_ms: 0, duplicate: false };
    let mut results = vec![Ok(appended); requests.len()];
    let (mut cleared, mut clears, mut added) = <(Vec<usize>, Vec<CounterName>, Vec<usize>)>::default();
    let mut adds = Vec::with_capacity(requests.len());
    for (number, ChangeRequest { counter, change, bounds, .. }) in requests.iter().enumerate() {
        if let Err(refusal) = open.config.check_bounds(bounds) {
            results[number] = Err(refusal);
            continue;
        }
        match change {
            Change::Clear => {
                cleared.push(number);
                clears.push(counter.clone());
            }
            Change::Add(delta) => {
                added.push(number);
                adds.push((counter.clone(), *delta));
            }
        }
    }
    if !clears.is_empty() {
        for (number, result) in cleared.into_iter().zip(open.store.cache_clear(&clears).await) {
            results[number] = result.map(|()| appended);
        }
    }
    if !adds.is_empty() {
        for (number, result) in added.into_iter().zip(open.cached.call(adds, place).await) {
            results[number] = result.map(|()| appended);
        }
    }
    results
}
