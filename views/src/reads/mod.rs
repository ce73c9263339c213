//! Counts for readers. Reads that arrive together become one call of the counters; while the counters are away, readers get
//! the last known count with its age (V5).
//!
//! What lives here: what a reader gets (this file), which counters wait to be read (`queue`), which counts were read (`known`), and
//! what a count is (`count`). What may not: HTTP.

mod count;
mod known;
mod queue;
#[cfg(test)]
mod tests;

use crate::Refusal;
use crate::metrics;
pub(crate) use count::{CounterKey, KnownCount};
use known::CountCache;
use queue::Queue;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Counted, CounterClient, Error, Refused};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;

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
/// How long it waits if it cannot have any.
const LONG_PATIENCE: Duration = Duration::from_secs(2);
/// How long a reader waits for a count that it can do without.
const SOON: Duration = Duration::from_secs(1);
/// What a call of the counters has read: each counter by itself, or why none of them.
type Read = Result<Vec<(String, Result<i64, String>)>, String>;

/// Reads counts.
pub(crate) struct Reads {
    known: Arc<CountCache>,
    /// By namespace: none of them waits for the call of another one, or is away because another one is.
    queues: HashMap<Arc<str>, Arc<Queue>>,
    _calling: Vec<AbortOnDropHandle<()>>,
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
        let known = Arc::new(CountCache::new(counts_max));
        let queues: HashMap<Arc<str>, Arc<Queue>> =
            namespaces.map(|namespace| (namespace, Arc::new(Queue::default()))).collect();
        let calling = |(namespace, queue): (&Arc<str>, &Arc<Queue>)| {
            let running = run(call.clone(), namespace.clone(), known.clone(), Arc::clone(queue));
            AbortOnDropHandle::new(tokio::spawn(running))
        };
        let calling = queues.iter().map(calling).collect();
        Reads { known, queues, _calling: calling }
    }

    /// The count of a counter. If the counters answer within 3 ms, it is at most 1 s old, or 100 ms if it is read all the time.
    ///
    /// # Errors
    /// This process has no earlier count, and
    /// - [`Refusal::NoCount`]: the counters do not answer within 2 s, or refuse the counter.
    /// - [`Refusal::Overloaded`]: too many others wait to be read.
    pub(crate) async fn get(&self, key: CounterKey) -> Result<KnownCount, Refusal> {
        let (namespace, counter) = &key;
        let queue =
            self.queues.get(namespace).ok_or_else(|| Refusal::NamespaceNotFound(namespace.as_ref().to_owned()))?;
        let Some(earlier) = self.known.get(&key) else {
            // It is requested also while the counters are away, so that it is there when they are back.
            let patience = if queue.is_away() { PATIENCE } else { LONG_PATIENCE };
            let coming = queue.request(counter, false).ok_or(Refusal::Overloaded)?;
            return timeout(patience, coming.count()).await.ok().flatten().ok_or(Refusal::NoCount);
        };
        let age = earlier.read_at.elapsed();
        if age < FRESH {
            return Ok(earlier);
        }
        if !queue.is_away() {
            let coming = queue.request(counter, true);
            if age < SERVED {
                return Ok(earlier);
            }
            if let Some(coming) = coming {
                let patience = if age < RECENT { BRIEF_PATIENCE } else { PATIENCE };
                match timeout(patience, coming.count()).await {
                    Ok(Some(count)) => return Ok(count),
                    // It is read meanwhile.
                    Err(_) if age < RECENT => return Ok(earlier),
                    _ => {}
                }
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

/// Reads the counters of one namespace that wait, many at once.
async fn run<F: Future<Output = Read>>(
    call: impl Fn(Arc<str>, Vec<String>) -> F,
    namespace: Arc<str>,
    known: Arc<CountCache>,
    queue: Arc<Queue>,
) {
    loop {
        let names = queue.next().await;
        let read_at = Instant::now();
        let (mut failed, mut counts) = (None, HashMap::new());
        match call(namespace.clone(), names.clone()).await {
            Ok(results) => {
                for (counter, result) in results {
                    match result {
                        Ok(count) => {
                            let count = KnownCount { count, read_at };
                            known.set((namespace.clone(), counter.clone()), count);
                            counts.insert(counter, count);
                        }
                        Err(why) => failed = Some(why),
                    }
                }
            }
            Err(why) => failed = Some(why),
        }
        match failed {
            Some(why) if counts.is_empty() => {
                tracing::debug!(%namespace, why, "the counters do not answer");
                queue.fail();
            }
            // A counter that is refused is no failure of the others.
            _ => queue.end(&names, |name| counts.get(name).copied()),
        }
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
