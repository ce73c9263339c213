//! Counts for readers. Reads that arrive together become one call of the counters; while the counters are away, readers get
//! the last known count with its age (V5).

use crate::Refusal;
use crate::metrics;
use futures::future::join_all;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tallystone_client::{Counted, CounterClient, Error, Refused};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// A count of this age is not read again.
const FRESH: Duration = Duration::from_millis(100);
/// A count of up to this age is answered at once, and read again in the background.
const SERVED: Duration = Duration::from_secs(1);
/// How long a reader waits for the counters if it can have a count of up to 10 s instead. Even a busy machine mostly answers in this
/// time; without the bound, one read in a hundred would take as long as the counters take under load.
const BRIEF_PATIENCE: Duration = Duration::from_millis(3);
const RECENT: Duration = Duration::from_secs(10);
/// How long it waits if it can only have an older one.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a reader waits for a count that it can do without.
const SOON: Duration = Duration::from_secs(1);
/// After a failed call, readers with an earlier count get it at once for so long.
const AWAY: Duration = Duration::from_secs(1);
/// Counters of one call.
const CALL_MAX: usize = 1_000;

/// Namespace and name of a counter.
pub(crate) type CounterKey = (Arc<str>, String);

/// A count, and when it was read from the counters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownCount {
    pub(crate) count: i64,
    pub(crate) read_at: Instant,
}

/// A count that is to be read.
struct Request {
    key: CounterKey,
    /// Waits for it, or has gone; dropped: the counters do not answer.
    reader: oneshot::Sender<KnownCount>,
}

/// What a call of the counters has read: each counter by itself, or why none of them.
type Read = Result<Vec<(String, Result<i64, String>)>, String>;

/// Reads counts.
pub(crate) struct Reads {
    known: Arc<Known>,
    requests: mpsc::UnboundedSender<Request>,
}

/// The counts that this process has read, in two generations: when the younger one is full, the older one is dropped.
struct Known {
    generations: Mutex<[Generation; 2]>,
    generation_max: usize,
    failed_at: Mutex<Option<Instant>>,
}

type Generation = HashMap<CounterKey, Entry>;

#[derive(Clone, Copy)]
struct Entry {
    known: KnownCount,
    /// When it was last requested in the background, unless it was read since.
    requested_at: Option<Instant>,
}

impl Reads {
    /// Calls the counters until it is dropped. At most `counts_max` counts are kept, and at least half as many of
    /// those that were read last. `counters` repeats no call by itself.
    pub(crate) fn start(counters: CounterClient, counts_max: usize) -> Reads {
        let call = move |namespace, names| {
            let counters = counters.clone();
            async move { read(&counters, namespace, names).await }
        };
        Reads::start_with(call, counts_max)
    }

    /// `call` reads counters of one namespace.
    fn start_with<F, C>(call: C, counts_max: usize) -> Reads
    where
        C: Fn(Arc<str>, Vec<String>) -> F + Send + Sync + 'static,
        F: Future<Output = Read> + Send + 'static,
    {
        let (generations, failed_at) = (Mutex::default(), Mutex::default());
        let known = Arc::new(Known { generations, generation_max: counts_max / 2, failed_at });
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(run(call, known.clone(), received));
        Reads { known, requests }
    }

    /// The count of a counter. If the counters answer within 3 ms, it is at most 1 s old, or 100 ms if it is read all the time.
    ///
    /// # Errors
    /// [`Refusal::NoCount`]: they do not answer, and this process has no earlier count.
    pub(crate) async fn get(&self, key: CounterKey) -> Result<KnownCount, Refusal> {
        let Some(earlier) = self.known.get(&key) else {
            // It is requested also then, so that it is there when the counters are.
            let is_away = self.known.is_away();
            let count = self.request(key);
            let read = if is_away { timeout(PATIENCE, count).await.ok() } else { Some(count.await) };
            return read.and_then(Result::ok).ok_or(Refusal::NoCount);
        };
        let age = earlier.read_at.elapsed();
        if age < FRESH {
            return Ok(earlier);
        }
        if !self.known.is_away() {
            if age < SERVED {
                if self.known.is_to_be_requested(&key) {
                    drop(self.request(key));
                }
                return Ok(earlier);
            }
            let patience = if age < RECENT { BRIEF_PATIENCE } else { PATIENCE };
            match timeout(patience, self.request(key)).await {
                Ok(Ok(count)) => return Ok(count),
                // It is read meanwhile.
                Err(_) if age < RECENT => return Ok(earlier),
                _ => {}
            }
        }
        metrics::old_count();
        Ok(earlier)
    }

    /// The same count, if the counters answer within a second or this process has an earlier one.
    pub(crate) async fn get_soon(&self, key: CounterKey) -> Option<KnownCount> {
        timeout(SOON, self.get(key)).await.ok()?.ok()
    }

    /// Requests a count, which comes when the counters have answered. Without a reader it is read, too.
    fn request(&self, key: CounterKey) -> oneshot::Receiver<KnownCount> {
        let (reader, count) = oneshot::channel();
        // If nothing receives, the reader is dropped.
        let _ = self.requests.send(Request { key, reader });
        count
    }
}

impl Known {
    fn get(&self, key: &CounterKey) -> Option<KnownCount> {
        let mut generations = lock(&self.generations);
        if let Some(entry) = generations[0].get(key) {
            return Some(entry.known);
        }
        let entry = *generations[1].get(key)?;
        self.insert(&mut generations, key.clone(), entry);
        Some(entry.known)
    }

    fn set(&self, key: CounterKey, known: KnownCount) {
        self.insert(&mut lock(&self.generations), key, Entry { known, requested_at: None });
    }

    /// Whether to request a known count in the background: not while a request of it waits.
    fn is_to_be_requested(&self, key: &CounterKey) -> bool {
        let mut generations = lock(&self.generations);
        let Some(entry) = generations[0].get_mut(key) else { return false };
        // A request is dropped if the counters do not answer.
        let waits = entry.requested_at.is_some_and(|requested_at| requested_at.elapsed() < AWAY);
        if !waits {
            entry.requested_at = Some(Instant::now());
        }
        !waits
    }

    fn insert(&self, generations: &mut [Generation; 2], key: CounterKey, entry: Entry) {
        if generations[0].len() >= self.generation_max {
            generations[1] = std::mem::take(&mut generations[0]);
        }
        generations[0].insert(key, entry);
    }

    fn is_away(&self) -> bool {
        lock(&self.failed_at).is_some_and(|failed_at| failed_at.elapsed() < AWAY)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes requests, many at once, and reads their counters.
async fn run<F: Future<Output = Read>>(
    call: impl Fn(Arc<str>, Vec<String>) -> F,
    known: Arc<Known>,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    let mut received = Vec::new();
    while requests.recv_many(&mut received, CALL_MAX).await > 0 {
        let mut wanted: HashMap<Arc<str>, HashSet<String>> = HashMap::new();
        for Request { key: (namespace, counter), .. } in &received {
            wanted.entry(namespace.clone()).or_default().insert(counter.clone());
        }
        let read_at = Instant::now();
        let calls = wanted.into_iter().map(async |(namespace, names)| {
            let mut refused = None;
            for (counter, result) in call(namespace.clone(), names.into_iter().collect()).await? {
                match result {
                    Ok(count) => known.set((namespace.clone(), counter), KnownCount { count, read_at }),
                    Err(why) => refused = Some(why),
                }
            }
            Ok(refused)
        });
        let ended: Vec<Result<Option<String>, String>> = join_all(calls).await;
        let mut has_read = false;
        for Request { key, reader } in received.drain(..) {
            if let Some(count) = known.get(&key).filter(|known| known.read_at >= read_at) {
                has_read = true;
                // The reader may have gone.
                let _ = reader.send(count);
            }
        }
        // A counter that is refused is no failure of the others.
        let failed = ended.into_iter().find_map(|ended| ended.map_or_else(Some, |why| why.filter(|_| !has_read)));
        if let Some(why) = &failed {
            tracing::debug!(why, "the counters do not answer");
            // Also for those that have come meanwhile: each call that fails can take a while.
            while requests.try_recv().is_ok() {}
        }
        *lock(&known.failed_at) = failed.map(|_| Instant::now());
    }
}

/// Reads counters of one namespace.
async fn read(counters: &CounterClient, namespace: Arc<str>, names: Vec<String>) -> Read {
    let results = match counters.get_many(&namespace, names.clone()).await {
        Ok(results) => results,
        // The first view creates it.
        Err(Error::Refused(refused)) if refused.reason == "NAMESPACE_NOT_FOUND" => {
            return Ok(names.into_iter().map(|name| (name, Ok(0))).collect());
        }
        Err(error) => return Err(error.to_string()),
    };
    let count = |result: Result<Counted, Refused>| match result {
        Ok(counted) => Ok(counted.count),
        Err(refused) => Err(refused.to_string()),
    };
    Ok(names.into_iter().zip(results.into_iter().map(count)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};
    use tokio::time::{advance, sleep};

    fn key(counter: &str) -> CounterKey {
        ("n".into(), counter.to_owned())
    }

    /// Counts that are as high as the number of the call, which takes so long.
    fn slow(call_time: Duration) -> (Reads, Arc<AtomicI64>) {
        let calls = Arc::new(AtomicI64::new(0));
        let called = calls.clone();
        let call = move |_, names: Vec<String>| {
            let count = called.fetch_add(1, Ordering::Relaxed) + 1;
            async move {
                sleep(call_time).await;
                Ok(names.into_iter().map(|name| (name, Ok(count))).collect())
            }
        };
        (Reads::start_with(call, 1_000), calls)
    }

    #[tokio::test(start_paused = true)]
    async fn v5_a_count_of_up_to_a_second_is_answered_at_once_and_read_again_in_the_background() {
        let (reads, calls) = slow(Duration::from_millis(300));
        assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
        advance(Duration::from_millis(200)).await;
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
            tokio::task::yield_now().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        sleep(Duration::from_millis(400)).await;
        assert_eq!(calls.load(Ordering::Relaxed), 2, "one request at a time");
        assert!(reads.get(key("v")).await.unwrap().count >= 2, "it was read again");
    }

    #[tokio::test(start_paused = true)]
    async fn v5_an_older_count_is_read_again_first_and_answered_if_the_counters_are_slow() {
        for (age_s, call_ms, expected, waits_ms) in [(2, 2, 2, 2), (2, 80, 1, 3), (20, 80, 2, 80), (20, 300, 1, 100)] {
            let (reads, _) = slow(Duration::from_millis(call_ms));
            assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
            advance(Duration::from_secs(age_s)).await;
            let began = Instant::now();
            assert_eq!(reads.get(key("v")).await.unwrap().count, expected, "a call of {call_ms} ms");
            assert_eq!(began.elapsed(), Duration::from_millis(waits_ms));
            sleep(Duration::from_millis(call_ms)).await;
            assert_eq!(reads.get(key("v")).await.unwrap().count, 2, "it was read meanwhile");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn v5_a_count_that_is_not_known_holds_up_no_reader_for_long() {
        let (reads, _) = slow(Duration::from_secs(60));
        let began = Instant::now();
        assert!(reads.get_soon(key("v")).await.is_none());
        assert_eq!(began.elapsed(), SOON);
        *lock(&reads.known.failed_at) = Some(Instant::now());
        let began = Instant::now();
        assert_eq!(reads.get(key("v")).await.unwrap_err(), Refusal::NoCount);
        assert_eq!(began.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn v5_a_refused_counter_is_no_failure_of_the_others() {
        let call = |_, names: Vec<String>| {
            let result = |name: &str| if name == "bad" { Err("refused".to_owned()) } else { Ok(7) };
            let results = names.into_iter().map(|name| (name.clone(), result(&name))).collect();
            async { Ok(results) }
        };
        let reads = Reads::start_with(call, 1_000);
        for round in 0..2 {
            let (good, bad) = tokio::join!(reads.get(key("good")), reads.get(key("bad")));
            let good = good.unwrap();
            assert_eq!((good.count, good.read_at.elapsed()), (7, Duration::ZERO), "round {round}");
            assert_eq!(bad.unwrap_err(), Refusal::NoCount);
            assert!(!reads.known.is_away());
            advance(Duration::from_secs(2)).await;
        }
        // Nothing was read at all.
        assert_eq!(reads.get(key("bad")).await.unwrap_err(), Refusal::NoCount);
        tokio::task::yield_now().await;
        assert!(reads.known.is_away());
    }
}
