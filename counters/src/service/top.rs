//! The highest counts of a namespace (N16). A walk over its counters finds them, in small steps, and is shared by all callers.
//!
//! A list that every commit keeps up to date would cost each rollup, and memory for each counter. A walk costs only who
//! calls, and its load has a bound: one step at a time, with a rest after it, and a result that is used for a time.

use crate::namespace::CounterType;
use crate::redis::{ListedCounter, RedisNamespace};
use crate::refusal::Refusal;
use crate::top::Highest;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

/// The most counters of a list.
pub const TOP_MAX: usize = 1_000;
/// Counters of a step of a walk: Redis takes about a millisecond for it.
const STEP_COUNTERS: usize = 500;
/// A result is used for so many times as long as its walk took, within these bounds. So a namespace that is never left alone costs
/// walks for a tenth of the time.
const USED_TIMES: u32 = 9;
const USED_MIN: Duration = Duration::from_secs(1);
const USED_MAX: Duration = Duration::from_secs(300);
/// Walks and results in a server.
const WALKS_MAX: usize = 64;
/// When a caller may come again whose walk has not ended, or has no place.
const RETRY_AFTER_MS: u64 = 1_000;

/// The highest counts that a walk has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopCounters {
    /// The highest first, at most [`TOP_MAX`].
    pub counters: Vec<ListedCounter>,
    /// When the walk began, in Unix ms by the store's clock: each count is that of a time from here on ...
    pub read_from_ms: u64,
    /// ... to here.
    pub read_to_ms: u64,
    used_until: Instant,
}

type Found = watch::Receiver<Option<Result<Arc<TopCounters>, Refusal>>>;

/// The walks of a server, and what they have found.
pub(super) struct TopWalks {
    /// By the namespace's tag and the prefix.
    found: Mutex<HashMap<(String, String), Found>>,
    /// To take a step.
    turn: Arc<Semaphore>,
}

impl TopWalks {
    pub(super) fn new() -> TopWalks {
        TopWalks { found: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
    }

    /// What the last walk has found, once it has ended; this time is the last to wait until.
    pub(super) async fn found(
        &self,
        store: &RedisNamespace,
        prefix: &str,
        until: Instant,
        stopping: &CancellationToken,
    ) -> Result<Arc<TopCounters>, Refusal> {
        let mut found = self.walk(store, prefix, stopping)?;
        let not_yet = Refusal::Overloaded { retry_after_ms: RETRY_AFTER_MS };
        match timeout_at(until, found.wait_for(Option::is_some)).await {
            Ok(Ok(walked)) => walked.as_ref().map_or(Err(not_yet), Clone::clone),
            // It takes longer, or the server stops.
            Ok(Err(_)) | Err(_) => Err(not_yet),
        }
    }

    /// The walk for this prefix, which may have ended; otherwise a new one.
    fn walk(&self, store: &RedisNamespace, prefix: &str, stopping: &CancellationToken) -> Result<Found, Refusal> {
        let mut all = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        all.retain(|_, found| match &*found.borrow() {
            None => found.has_changed().is_ok(),
            Some(Ok(top)) => now < top.used_until,
            Some(Err(_)) => false,
        });
        let key = (store.tag().to_owned(), prefix.to_owned());
        if let Some(found) = all.get(&key) {
            return Ok(found.clone());
        }
        if all.len() >= WALKS_MAX {
            return Err(Refusal::Overloaded { retry_after_ms: RETRY_AFTER_MS });
        }
        let (sender, found) = watch::channel(None);
        all.insert(key, found.clone());
        let (store, prefix) = (store.clone(), prefix.to_owned());
        let (turn, stopping) = (self.turn.clone(), stopping.clone());
        // It goes on although its caller leaves: the next one has its result.
        tokio::spawn(async move {
            if let Some(walked) = stopping.run_until_cancelled(walk(&store, &prefix, &turn)).await {
                sender.send_replace(Some(walked.map(Arc::new)));
            }
        });
        Ok(found)
    }
}

async fn walk(store: &RedisNamespace, prefix: &str, turn: &Semaphore) -> Result<TopCounters, Refusal> {
    let (begin, read_from_ms) = (Instant::now(), store.now_ms());
    let (mut highest, mut token) = (Highest::new(TOP_MAX), String::new());
    loop {
        // Walks take turns, step by step: one over millions of counters does not hold up the others.
        let _turn = turn.acquire().await;
        let step = Instant::now();
        let page = match store.config().counter_type {
            CounterType::BestEffort => store.list(&token, STEP_COUNTERS).await?,
            CounterType::Eventual | CounterType::Accurate => store.rolled_up(&token, STEP_COUNTERS).await?,
        };
        let is_one =
            |listed: &ListedCounter| !listed.checkpoint.is_deleted && listed.counter.as_str().starts_with(prefix);
        page.counters.into_iter().filter(is_one).for_each(|listed| highest.offer(listed));
        let Some(next) = page.next else { break };
        token = next;
        // Half of the time is left for others.
        sleep(step.elapsed()).await;
    }
    let used_for = (begin.elapsed() * USED_TIMES).clamp(USED_MIN, USED_MAX);
    Ok(TopCounters {
        counters: highest.into_highest(),
        read_from_ms,
        read_to_ms: store.now_ms(),
        used_until: Instant::now() + used_for,
    })
}
