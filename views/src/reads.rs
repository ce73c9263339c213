//! Counts for readers. Reads that arrive together become one call of the counters; while the counters are away, readers get
//! the last known count with its age (V5).

use crate::Refusal;
use crate::metrics;
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
#[derive(Clone, Copy, Debug, PartialEq)]
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
    /// By namespace: none of them waits for the call of another one, or is away because another one is.
    queues: HashMap<Arc<str>, Queue>,
}

/// What is to be read of one namespace.
struct Queue {
    requests: mpsc::UnboundedSender<Request>,
    failed_at: Arc<Mutex<Option<Instant>>>,
}

/// The counts that this process has read, in two generations: when the younger one is full, the older one is dropped.
struct Known {
    generations: Mutex<[Generation; 2]>,
    generation_max: usize,
}

type Generation = HashMap<CounterKey, Entry>;

#[derive(Clone, Copy)]
struct Entry {
    known: KnownCount,
    /// When it was last requested in the background, unless it was read since.
    requested_at: Option<Instant>,
}

impl Reads {
    /// Calls the counters until it is dropped, for counters of these namespaces. At most `counts_max` counts are kept, and at least half
    /// as many of those that were read last. `counters` repeats no call by itself.
    pub(crate) fn start(
        counters: CounterClient,
        namespaces: impl Iterator<Item = Arc<str>>,
        counts_max: usize,
    ) -> Reads {
        let call = move |namespace, names| {
            let counters = counters.clone();
            async move { read(&counters, namespace, names).await }
        };
        Reads::start_with(call, namespaces, counts_max)
    }

    /// `call` reads counters of one namespace.
    fn start_with<F, C>(call: C, namespaces: impl Iterator<Item = Arc<str>>, counts_max: usize) -> Reads
    where
        C: Fn(Arc<str>, Vec<String>) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Read> + Send + 'static,
    {
        let known = Arc::new(Known { generations: Mutex::default(), generation_max: counts_max / 2 });
        let queue = |namespace: Arc<str>| {
            let (requests, received) = mpsc::unbounded_channel();
            let failed_at = Arc::default();
            tokio::spawn(run(call.clone(), namespace.clone(), known.clone(), Arc::clone(&failed_at), received));
            (namespace, Queue { requests, failed_at })
        };
        Reads { queues: namespaces.map(queue).collect(), known }
    }

    /// The count of a counter. If the counters answer within 3 ms, it is at most 1 s old, or 100 ms if it is read all the time.
    ///
    /// # Errors
    /// [`Refusal::NoCount`]: they do not answer, and this process has no earlier count.
    pub(crate) async fn get(&self, key: CounterKey) -> Result<KnownCount, Refusal> {
        let queue = self.queues.get(&key.0).ok_or_else(|| Refusal::NamespaceNotFound(key.0.to_string()))?;
        let Some(earlier) = self.known.get(&key) else {
            // It is requested also then, so that it is there when the counters are.
            let is_away = queue.is_away();
            let count = queue.request(key);
            let read = if is_away { timeout(PATIENCE, count).await.ok() } else { Some(count.await) };
            return read.and_then(Result::ok).ok_or(Refusal::NoCount);
        };
        let age = earlier.read_at.elapsed();
        if age < FRESH {
            return Ok(earlier);
        }
        if !queue.is_away() {
            if age < SERVED {
                if self.known.is_to_be_requested(&key) {
                    drop(queue.request(key));
                }
                return Ok(earlier);
            }
            let patience = if age < RECENT { BRIEF_PATIENCE } else { PATIENCE };
            match timeout(patience, queue.request(key)).await {
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
}

impl Queue {
    /// Requests a count, which comes when the counters have answered. Without a reader it is read, too.
    fn request(&self, key: CounterKey) -> oneshot::Receiver<KnownCount> {
        let (reader, count) = oneshot::channel();
        // If nothing receives, the reader is dropped.
        let _ = self.requests.send(Request { key, reader });
        count
    }

    /// Whether a call of this namespace has just failed.
    fn is_away(&self) -> bool {
        lock(&self.failed_at).is_some_and(|failed_at| failed_at.elapsed() < AWAY)
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
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes requests of one namespace, many at once, and reads their counters.
async fn run<F: Future<Output = Read>>(
    call: impl Fn(Arc<str>, Vec<String>) -> F,
    namespace: Arc<str>,
    known: Arc<Known>,
    failed_at: Arc<Mutex<Option<Instant>>>,
    mut requests: mpsc::UnboundedReceiver<Request>,
) {
    let mut received = Vec::new();
    while requests.recv_many(&mut received, CALL_MAX).await > 0 {
        let names: HashSet<String> = received.iter().map(|Request { key, .. }| key.1.clone()).collect();
        let read_at = Instant::now();
        let (mut failed, mut has_read) = (None, false);
        match call(namespace.clone(), names.into_iter().collect()).await {
            Ok(results) => {
                for (counter, result) in results {
                    match result {
                        Ok(count) => {
                            has_read = true;
                            known.set((namespace.clone(), counter), KnownCount { count, read_at });
                        }
                        Err(why) => failed = Some(why),
                    }
                }
            }
            Err(why) => failed = Some(why),
        }
        for Request { key, reader } in received.drain(..) {
            if let Some(count) = known.get(&key).filter(|known| known.read_at >= read_at) {
                // The reader may have gone.
                let _ = reader.send(count);
            }
        }
        // A counter that is refused is no failure of the others.
        let failed = failed.filter(|_| !has_read);
        if let Some(why) = &failed {
            tracing::debug!(%namespace, why, "the counters do not answer");
            // Also for those that have come meanwhile: each call that fails can take a while.
            while requests.try_recv().is_ok() {}
        }
        *lock(&failed_at) = failed.map(|_| Instant::now());
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

    fn namespaces() -> impl Iterator<Item = Arc<str>> {
        ["n", "other"].into_iter().map(Into::into)
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
        (Reads::start_with(call, namespaces(), 1_000), calls)
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
        *lock(&reads.queues["n"].failed_at) = Some(Instant::now());
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
        let reads = Reads::start_with(call, namespaces(), 1_000);
        for round in 0..2 {
            let (good, bad) = tokio::join!(reads.get(key("good")), reads.get(key("bad")));
            let good = good.unwrap();
            assert_eq!((good.count, good.read_at.elapsed()), (7, Duration::ZERO), "round {round}");
            assert_eq!(bad.unwrap_err(), Refusal::NoCount);
            assert!(!reads.queues["n"].is_away());
            advance(Duration::from_secs(2)).await;
        }
        // Nothing was read at all.
        assert_eq!(reads.get(key("bad")).await.unwrap_err(), Refusal::NoCount);
        tokio::task::yield_now().await;
        assert!(reads.queues["n"].is_away());
    }
    #[tokio::test(start_paused = true)]
    async fn v5_a_namespace_that_is_refused_or_slow_is_no_failure_of_the_others() {
        for other_ms in [0, 5_000] {
            let call = move |namespace: Arc<str>, names: Vec<String>| async move {
                if &*namespace == "other" {
                    sleep(Duration::from_millis(other_ms)).await;
                    return Err("the right is missing".to_owned());
                }
                // As long as the failed call of the other one is under way.
                sleep(Duration::from_millis(1)).await;
                Ok(names.into_iter().map(|name| (name, Ok(7))).collect())
            };
            let reads = Reads::start_with(call, namespaces(), 1_000);
            let of_other = |video: &str| (Arc::from("other"), video.to_owned());
            for round in 0..10 {
                let (cold, known, other) = tokio::join!(
                    reads.get(key(&format!("cold-{round}"))),
                    reads.get(key("known")),
                    timeout(SOON, reads.get(of_other("v"))),
                );
                assert_eq!(cold.unwrap().count, 7, "{other_ms} ms, round {round}");
                // Older than 1 s before, so it was read again, and that takes less than 3 ms.
                let known = known.unwrap();
                assert!(known.read_at.elapsed() <= SOON + Duration::from_millis(1), "{:?}", known.read_at.elapsed());
                assert!(other.is_err() || other.is_ok_and(|other| other == Err(Refusal::NoCount)));
                advance(SERVED).await;
            }
        }
    }
}
