//! Reads as fresh as required (N19): they wait until the counts are exact to a time.
//!
//! No count can be exact to a time before the log refuses every earlier event. A read sleeps until then, and only then makes
//! [checks](super::exact_check), ever more rarely. A rollup takes some tenths of a second.

use super::exact_check::Exact;
use super::open::OpenNamespace;
use super::{Count, CounterService};
use crate::log::WINDOW_MS;
use crate::names::{CounterName, NamespaceName};
use crate::namespace::CounterType;
use crate::refusal::Refusal;
use std::time::Duration;
use tallystone_model::Applied;
use tokio::time::{Instant, sleep_until};

/// The first and the longest pause between two checks.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// How fresh counts must be, and for how long their reader waits.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    /// The time to which they must be exact (Unix ms).
    pub min_exact_to_ms: u64,
    /// When the reader gives up. If that is now, one check is made.
    pub until: Instant,
}

/// A read under way.
struct FreshRead<'a> {
    counters: &'a [CounterName],
    freshness: Freshness,
    counts: Vec<Count>,
    /// The indices of the counters that are not exact to the time.
    behind: Vec<usize>,
}

impl CounterService {
    /// The counts of counters of one namespace, in their order, each exact to `min_exact_to_ms` or later. A caller that drops
    /// this future waits no more.
    ///
    /// # Errors
    /// Of one counter: [`Refusal::NotExactYet`], when the time is over, or at once if no rollup can reach `min_exact_to_ms`
    /// before that. Of the call: [`Refusal::Invalid`] for a BEST_EFFORT namespace, [`Refusal::Overloaded`].
    pub async fn get_fresh(
        &self,
        namespace: &NamespaceName,
        counters: &[CounterName],
        freshness: Freshness,
    ) -> Result<Vec<Result<Count, Refusal>>, Refusal> {
        let counts = self.get(namespace, counters).await?;
        if counts.iter().any(|count| count.counter_type == CounterType::BestEffort) {
            return Err(best_effort());
        }
        let mut read = FreshRead::new(counters, freshness, counts);
        if !read.behind.is_empty() {
            let _place = self.read_room.take(read.behind.len())?;
            tokio::select! {
                ended = self.until_exact(namespace, &mut read) => ended?,
                () = self.stopping.cancelled() => {
                    let why = "the server is stopping".to_owned();
                    return Err(Refusal::Unavailable { applied: Applied::No, why });
                }
            }
        }
        Ok(read.into_results())
    }

    /// Ends when all counters are exact to the time, or cannot be before the reader gives up.
    async fn until_exact(&self, namespace: &NamespaceName, read: &mut FreshRead<'_>) -> Result<(), Refusal> {
        let Freshness { min_exact_to_ms, until } = read.freshness;
        let mut pause = PAUSE;
        loop {
            // It may change meanwhile.
            let open = self.directory.get(namespace).await?;
            if open.config.counter_type == CounterType::BestEffort {
                return Err(best_effort());
            }
            let now = Instant::now();
            match now.checked_add(open.closes_in(min_exact_to_ms)).filter(|at| *at <= until.max(now)) {
                None => return Ok(()),
                Some(at) if at > now => {
                    sleep_until(at).await;
                    continue;
                }
                Some(_) => {}
            }
            match read.check(&open, self).await {
                Err(Refusal::Stale) => match self.directory.instead_of(&open).await {
                    // A shard has lost the revision. The next poll of the registry configures it again.
                    Ok(_) | Err(Refusal::Stale) => {}
                    Err(refusal) => return Err(refusal),
                },
                checked => checked?,
            }
            let now = Instant::now();
            if read.behind.is_empty() || now >= until {
                return Ok(());
            }
            sleep_until((now + pause).min(until)).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

impl OpenNamespace {
    /// After which time the log accepts no event before `to_ms` (Unix ms).
    fn closes_in(&self, to_ms: u64) -> Duration {
        let sealable_ms = to_ms.div_ceil(WINDOW_MS).saturating_mul(WINDOW_MS).saturating_add(self.config.lag_ms());
        Duration::from_millis(sealable_ms.saturating_sub(self.store.now_ms()))
    }
}

impl<'a> FreshRead<'a> {
    fn new(counters: &'a [CounterName], freshness: Freshness, counts: Vec<Count>) -> FreshRead<'a> {
        let is_behind = |index: &usize| counts[*index].exact_to_ms < freshness.min_exact_to_ms;
        let behind = (0..counts.len()).filter(is_behind).collect();
        FreshRead { counters, freshness, counts, behind }
    }

    /// Makes one check of the counters that are behind, together with other reads.
    async fn check(&mut self, open: &OpenNamespace, service: &CounterService) -> Result<(), Refusal> {
        let min_ms = self.freshness.min_exact_to_ms;
        let required = self.behind.iter().map(|index| (self.counters[*index].clone(), min_ms)).collect();
        let checked = open.exact_checks.call(required, &service.directory.room.uncounted()).await;
        let checked = checked.into_iter().collect::<Result<Vec<Exact>, Refusal>>()?;
        for (index, Exact { count, to_ms }) in self.behind.iter().zip(checked) {
            self.counts[*index] = Count { count, exact_to_ms: to_ms, counter_type: open.config.counter_type };
        }
        self.behind.retain(|index| self.counts[*index].exact_to_ms < min_ms);
        Ok(())
    }

    fn into_results(self) -> Vec<Result<Count, Refusal>> {
        let min_ms = self.freshness.min_exact_to_ms;
        let result = |count: Count| match count.exact_to_ms {
            exact_to_ms if exact_to_ms < min_ms => Err(Refusal::NotExactYet { exact_to_ms }),
            _ => Ok(count),
        };
        self.counts.into_iter().map(result).collect()
    }
}

fn best_effort() -> Refusal {
    Refusal::invalid("min_exact_to_ms", "must be 0: the namespace is BEST_EFFORT, so its counts are exact to no time")
}
