//! Adds and clears: events go to the log, BEST_EFFORT changes to the cache.

use super::CounterService;
use super::open::{OpenNamespace, Stored};
use crate::cache::Cache;
use crate::log::{Appended, Change, Events, NewEvent};
use crate::names::{CounterName, NamespaceName, Token};
use crate::namespace::CounterType;
use crate::refusal::Refusal;
use std::sync::Arc;
use tallystone_model::Applied;

/// How often a call is repeated because the namespace has changed meanwhile.
const STALE_TRIES: usize = 5;

/// A change that a caller requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    /// The counter.
    pub counter: CounterName,
    /// The change.
    pub change: Change,
    /// The caller's token and the event's time (Unix ms); `None`: it happens when it is counted, and is never repeated.
    pub event: Option<(Token, u64)>,
}

impl From<ChangeRequest> for NewEvent {
    fn from(ChangeRequest { counter, change, event }: ChangeRequest) -> NewEvent {
        let (token, time_ms) = match event {
            Some((token, time_ms)) => (token, Some(time_ms)),
            None => (Token::drawn(), None),
        };
        NewEvent { counter, token, time_ms, change }
    }
}

impl CounterService {
    /// Adds and clears in one namespace; a result for each, in their order.
    pub async fn append(
        &self,
        namespace: &NamespaceName,
        requests: Vec<ChangeRequest>,
    ) -> Result<Vec<Result<Appended, Refusal>>, Refusal> {
        let open = self.directory.get(namespace).await?;
        let results = match open.config.counter_type {
            CounterType::BestEffort => append_cached(&open, requests).await,
            CounterType::Eventual | CounterType::Accurate => self.append_events(open, requests).await?,
        };
        crate::metrics::added(&results);
        Ok(results)
    }

    async fn append_events(
        &self,
        mut open: Arc<OpenNamespace>,
        requests: Vec<ChangeRequest>,
    ) -> Result<Vec<Result<Appended, Refusal>>, Refusal> {
        let clears_now = requests.iter().any(|request| request.change == Change::Clear && request.event.is_none());
        if clears_now {
            // What has happened in any shard so far happened before these clears, whatever the shards' clocks show.
            let latest_ms = self.tick(&mut open, 0).await?;
            self.tick(&mut open, latest_ms).await?;
        }
        let mut results = vec![Err(Refusal::Stale); requests.len()];
        let mut indices: Vec<usize> = (0..requests.len()).collect();
        let mut events: Vec<NewEvent> = requests.into_iter().map(NewEvent::from).collect();
        for tries_left in (0..STALE_TRIES).rev() {
            let (mut stale, mut again) = (Vec::new(), Vec::new());
            for (index, stored) in indices.into_iter().zip(open.events.call(events).await) {
                match stored {
                    Stored::Done(result) => results[index] = result,
                    Stored::Stale(event) => {
                        stale.push(index);
                        again.push(event);
                    }
                }
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
        if clears_now {
            self.acknowledge_clears(&mut open, &mut results).await;
        }
        Ok(results)
    }

    /// A clear is acknowledged when it is certain that an event which happens from now on, in any shard, has a later time.
    async fn acknowledge_clears(&self, open: &mut Arc<OpenNamespace>, results: &mut [Result<Appended, Refusal>]) {
        let Some(latest_ms) = results.iter().flatten().map(|appended| appended.time_ms).max() else { return };
        if let Err(refusal) = self.tick(open, latest_ms + 1).await {
            let why = refusal.to_string();
            let unknown = || Refusal::Unavailable { applied: Applied::Unknown, why: why.clone() };
            results.iter_mut().filter(|result| result.is_ok()).for_each(|result| *result = Err(unknown()));
        }
    }

    async fn tick(&self, open: &mut Arc<OpenNamespace>, at_least_ms: u64) -> Result<u64, Refusal> {
        for _ in 0..STALE_TRIES {
            match open.store.tick(at_least_ms).await {
                Err(Refusal::Stale) => *open = self.directory.instead_of(open).await?,
                // A tick counts nothing.
                Err(Refusal::Unavailable { why, .. }) => {
                    return Err(Refusal::Unavailable { applied: Applied::No, why });
                }
                ticked => return ticked,
            }
        }
        Err(Refusal::Stale)
    }
}

async fn append_cached(open: &OpenNamespace, requests: Vec<ChangeRequest>) -> Vec<Result<Appended, Refusal>> {
    // Clears first, then adds: the items of a batch have no order.
    let appended = Appended { time_ms: 0, duplicate: false };
    let mut results = vec![Ok(appended); requests.len()];
    let (mut cleared, mut clears, mut added) = <(Vec<usize>, Vec<CounterName>, Vec<usize>)>::default();
    let mut adds = Vec::with_capacity(requests.len());
    for (number, ChangeRequest { counter, change, .. }) in requests.into_iter().enumerate() {
        match change {
            Change::Clear => {
                cleared.push(number);
                clears.push(counter);
            }
            Change::Add(delta) => {
                added.push(number);
                adds.push((counter, delta));
            }
        }
    }
    if !clears.is_empty() {
        for (number, result) in cleared.into_iter().zip(open.store.cache_clear(&clears).await) {
            results[number] = result.map(|()| appended);
        }
    }
    if !adds.is_empty() {
        for (number, result) in added.into_iter().zip(open.cached.call(adds).await) {
            results[number] = result.map(|()| appended);
        }
    }
    results
}
