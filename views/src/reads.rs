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
/// How long a reader waits for the counters if it can have an earlier count instead.
const PATIENCE: Duration = Duration::from_millis(100);
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

/// A reader that waits for a count; dropped: the counters do not answer.
struct Request {
    key: CounterKey,
    reader: oneshot::Sender<KnownCount>,
}

/// Reads counts.
pub(crate) struct Reads {
    known: Arc<Known>,
    requests: mpsc::UnboundedSender<Request>,
}

/// The counts that this process has read, in two generations: when the younger one is full, the older one is dropped.
struct Known {
    generations: Mutex<[HashMap<CounterKey, KnownCount>; 2]>,
    generation_max: usize,
    failed_at: Mutex<Option<Instant>>,
}

impl Reads {
    /// Calls the counters until it is dropped. At most `counts_max` counts are kept, and at least half as many of
    /// those that were read last. `counters` repeats no call by itself.
    pub(crate) fn start(counters: CounterClient, counts_max: usize) -> Reads {
        let (generations, failed_at) = (Mutex::default(), Mutex::default());
        let known = Arc::new(Known { generations, generation_max: counts_max / 2, failed_at });
        let (requests, received) = mpsc::unbounded_channel();
        tokio::spawn(run(counters, known.clone(), received));
        Reads { known, requests }
    }

    /// The count of a counter, at most 100 ms old while the counters answer.
    ///
    /// # Errors
    /// [`Refusal::NoCount`]: they do not answer, and this process has no earlier count.
    pub(crate) async fn get(&self, key: CounterKey) -> Result<KnownCount, Refusal> {
        let Some(earlier) = self.known.get(&key) else {
            return self.read(key).await.ok_or(Refusal::NoCount);
        };
        if earlier.read_at.elapsed() < FRESH {
            return Ok(earlier);
        }
        if !self.known.is_away()
            && let Ok(Some(count)) = timeout(PATIENCE, self.read(key)).await
        {
            return Ok(count);
        }
        metrics::old_count();
        Ok(earlier)
    }

    async fn read(&self, key: CounterKey) -> Option<KnownCount> {
        let (reader, count) = oneshot::channel();
        self.requests.send(Request { key, reader }).ok()?;
        count.await.ok()
    }
}

impl Known {
    fn get(&self, key: &CounterKey) -> Option<KnownCount> {
        let mut generations = lock(&self.generations);
        if let Some(known) = generations[0].get(key) {
            return Some(*known);
        }
        let known = *generations[1].get(key)?;
        self.insert(&mut generations, key.clone(), known);
        Some(known)
    }

    fn set(&self, key: CounterKey, known: KnownCount) {
        self.insert(&mut lock(&self.generations), key, known);
    }

    fn insert(&self, generations: &mut [HashMap<CounterKey, KnownCount>; 2], key: CounterKey, known: KnownCount) {
        if generations[0].len() >= self.generation_max {
            generations[1] = std::mem::take(&mut generations[0]);
        }
        generations[0].insert(key, known);
    }

    fn is_away(&self) -> bool {
        lock(&self.failed_at).is_some_and(|failed_at| failed_at.elapsed() < AWAY)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes requests, many at once, and reads their counters.
async fn run(counters: CounterClient, known: Arc<Known>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut received = Vec::new();
    while requests.recv_many(&mut received, CALL_MAX).await > 0 {
        let mut wanted: HashMap<Arc<str>, HashSet<String>> = HashMap::new();
        for Request { key: (namespace, counter), .. } in &received {
            wanted.entry(namespace.clone()).or_default().insert(counter.clone());
        }
        let read_at = Instant::now();
        let calls = wanted.into_iter().map(async |(namespace, names)| {
            let counts = call(&counters, &namespace, names.into_iter().collect()).await?;
            counts.into_iter().for_each(|(counter, count)| {
                known.set((namespace.clone(), counter), KnownCount { count, read_at });
            });
            Ok::<(), String>(())
        });
        let failed = join_all(calls).await.into_iter().find_map(Result::err);
        if let Some(why) = &failed {
            tracing::debug!(why, "the counters do not answer");
            // Also for those that have come meanwhile: each call that fails can take a while.
            while requests.try_recv().is_ok() {}
        }
        *lock(&known.failed_at) = failed.map(|_| Instant::now());
        for Request { key, reader } in received.drain(..) {
            if let Some(count) = known.get(&key).filter(|known| known.read_at >= read_at) {
                // The reader may have gone.
                let _ = reader.send(count);
            }
        }
    }
}

/// Reads counters of one namespace.
async fn call(counters: &CounterClient, namespace: &str, names: Vec<String>) -> Result<Vec<(String, i64)>, String> {
    let results = match counters.get_many(namespace, names.clone()).await {
        Ok(results) => results,
        // The first view creates it.
        Err(Error::Refused(refused)) if refused.reason == "NAMESPACE_NOT_FOUND" => {
            return Ok(names.into_iter().map(|name| (name, 0)).collect());
        }
        Err(error) => return Err(error.to_string()),
    };
    let count = |(name, result): (String, Result<Counted, Refused>)| {
        result.map(|counted| (name, counted.count)).map_err(|refused| refused.to_string())
    };
    names.into_iter().zip(results).map(count).collect()
}
