//! The highest counts of a namespace (N16). A walk over its counters finds them, in small steps, and is shared by all callers.
//!
//! A list that every commit keeps up to date would cost each rollup, and memory for each counter. A walk costs only
//! its callers, and its load has a bound: one step at a time, with a rest after it, and a result that is used for a time.

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
/// A result is used for this factor times the time of its walk, within these bounds. So callers that repeat one list cause walks for
/// a tenth of the time.
const USED_TIMES: u32 = 9;
const USED_MIN: Duration = Duration::from_secs(1);
const USED_MAX: Duration = Duration::from_secs(300);
/// Lists in a server: walks that run, and their results while they are used. The first list of a namespace does not count, so
/// other namespaces never refuse it.
const LISTS_MAX: usize = 64;
/// Lists of one namespace. All walks share the steps, so this also bounds how much one namespace delays the others.
const NAMESPACE_LISTS_MAX: usize = 8;
/// When a caller may retry whose walk has not ended, or has not begun.
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
    /// From then on another list may replace it: it was used for as long as its walk took, so that walks cannot take more than half
    /// of the time.
    replaceable_from: Instant,
}

type Walked = Option<Result<Arc<TopCounters>, Refusal>>;
type Found = watch::Receiver<Walked>;

/// The lists of a server, by the namespace's tag and the prefix.
#[derive(Default)]
struct Lists(HashMap<(String, String), Found>);

impl Lists {
    /// Removes results that are no longer used, failed walks, and walks that the server has stopped.
    fn prune(&mut self, now: Instant) {
        self.0.retain(|_, found| match &*found.borrow() {
            None => found.has_changed().is_ok(),
            Some(Ok(top)) => now < top.used_until,
            Some(Err(_)) => false,
        });
    }

    /// Adds a list whose walk begins now. `None`: there are too many.
    fn begin(&mut self, tag: &str, prefix: &str, now: Instant) -> Option<(watch::Sender<Walked>, Found)> {
        let of_namespace = self.0.keys().filter(|(of, _)| of == tag).count();
        if of_namespace >= NAMESPACE_LISTS_MAX {
            self.replace(now, |of| of == tag)?;
        } else if of_namespace > 0 && self.0.len() >= LISTS_MAX {
            self.replace(now, |_| true)?;
        }
        let (sender, found) = watch::channel(None);
        self.0.insert((tag.to_owned(), prefix.to_owned()), found.clone());
        Some((sender, found))
    }

    /// Removes the result that has been replaceable for longest, of the namespaces with these tags.
    fn replace(&mut self, now: Instant, is_candidate: impl Fn(&str) -> bool) -> Option<()> {
        let candidates = self.0.iter().filter(|((tag, _), _)| is_candidate(tag));
        let from = |found: &Found| match &*found.borrow() {
            Some(Ok(top)) => Some(top.replaceable_from),
            Some(Err(_)) | None => None,
        };
        let since = candidates.filter_map(|(key, found)| Some((from(found)?, key)));
        let (_, key) = since.filter(|(from, _)| *from <= now).min()?;
        let key = key.clone();
        self.0.remove(&key);
        Some(())
    }
}

/// The walks of a server, and what they have found.
pub(super) struct TopWalks {
    lists: Mutex<Lists>,
    /// To take a step.
    turn: Arc<Semaphore>,
}

impl TopWalks {
    pub(super) fn new() -> TopWalks {
        TopWalks { lists: Mutex::default(), turn: Arc::new(Semaphore::new(1)) }
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
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        lists.prune(now);
        if let Some(found) = lists.0.get(&(store.tag().to_owned(), prefix.to_owned())) {
            return Ok(found.clone());
        }
        let Some((sender, found)) = lists.begin(store.tag(), prefix, now) else {
            return Err(Refusal::Overloaded { retry_after_ms: RETRY_AFTER_MS });
        };
        let (store, prefix) = (store.clone(), prefix.to_owned());
        let (turn, stopping) = (self.turn.clone(), stopping.clone());
        // The walk continues when its caller leaves: the next caller uses its result.
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
        // Walks alternate, step by step: a walk over millions of counters does not block the others.
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
    let took = begin.elapsed();
    let end = Instant::now();
    Ok(TopCounters {
        counters: highest.into_highest(),
        read_from_ms,
        read_to_ms: store.now_ms(),
        used_until: end + (took * USED_TIMES).clamp(USED_MIN, USED_MAX),
        replaceable_from: end + took.clamp(USED_MIN, USED_MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A result that can be replaced from this time on.
    fn ended(replaceable_from: Instant) -> Walked {
        let used_until = replaceable_from + 8 * SECOND;
        Some(Ok(Arc::new(TopCounters {
            counters: Vec::new(),
            read_from_ms: 1,
            read_to_ms: 2,
            used_until,
            replaceable_from,
        })))
    }

    fn prefixes(lists: &Lists, namespace: &str) -> Vec<String> {
        let keys = lists.0.keys().filter(|(tag, _)| tag == namespace);
        let mut prefixes: Vec<String> = keys.map(|(_, prefix)| prefix.clone()).collect();
        prefixes.sort();
        prefixes
    }

    #[test]
    fn n16_a_new_list_replaces_the_oldest_that_was_used_for_as_long_as_its_walk() {
        let (mut lists, now) = (Lists::default(), Instant::now());
        let running: Vec<_> =
            (0..NAMESPACE_LISTS_MAX).map(|it| lists.begin("n", &it.to_string(), now).expect("a list").0).collect();
        assert!(lists.begin("n", "more", now).is_none(), "walks that run are not replaced");
        running[3].send_replace(ended(now + 3 * SECOND));
        running[5].send_replace(ended(now + 2 * SECOND));
        assert!(lists.begin("n", "more", now + SECOND).is_none(), "both results are younger than their walks");
        let _more = lists.begin("n", "more", now + 3 * SECOND).expect("a list");
        assert_eq!(prefixes(&lists, "n"), ["0", "1", "2", "3", "4", "6", "7", "more"]);
        let _last = lists.begin("n", "last", now + 3 * SECOND).expect("a list");
        assert!(lists.begin("n", "other", now + 9 * SECOND).is_none());
    }

    #[test]
    fn n16_a_namespace_without_a_list_may_begin_one_when_the_server_has_its_most() {
        let (mut lists, now) = (Lists::default(), Instant::now());
        let mut running = Vec::new();
        for it in 0..LISTS_MAX {
            let namespace = (it / NAMESPACE_LISTS_MAX).to_string();
            running.push(lists.begin(&namespace, &it.to_string(), now).expect("a list").0);
        }
        let _first = lists.begin("n", "first", now).expect("a list");
        assert!(lists.begin("n", "second", now).is_none());
        // Its second list may replace a result of another namespace.
        running[9].send_replace(ended(now));
        let _second = lists.begin("n", "second", now).expect("a list");
        assert_eq!((prefixes(&lists, "1").len(), prefixes(&lists, "n").len()), (NAMESPACE_LISTS_MAX - 1, 2));
    }
}
