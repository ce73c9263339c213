//! Batches: the jobs that are leased while one batch is in the store make up the next one (N10). Each partition of the
//! store has batches of its counters, so that one that is unavailable or slow holds up no others.

use crate::metrics;
use crate::pacer::Pacer;
use crate::publisher::Publisher;
use crate::records::{Record, Records, RollupStage, now_us};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_client::{Failure, Lease};
use tallystone_counters::redis::RedisNamespace;
use tallystone_counters::{CounterName, Job, LeaseOrder, Refusal, RolledUp};
use tokio::sync::{Notify, mpsc, oneshot};

/// The pause of a job before the next attempt, after a rollup that was refused because clocks differ.
const SKEW_PAUSE: Duration = Duration::from_secs(1);

/// The least time between two lines of the log that say that rollups of the same batches fail. The metric counts each.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// A leased job, and where its result goes.
pub(crate) struct LeasedJob {
    job: Job,
    done: oneshot::Sender<Result<(), Refusal>>,
}

/// The way of the jobs of some queues to the batches of their partition.
#[derive(Clone)]
pub(crate) struct Lanes {
    pub(crate) store: RedisNamespace,
    /// One for each of [`RedisNamespace::homes`].
    pub(crate) batches: Arc<[mpsc::Sender<LeasedJob>]>,
}

/// Rolls up the jobs of some queues of one namespace whose counters are at home in one partition, one batch after the other.
pub(crate) struct Batches {
    pub(crate) store: RedisNamespace,
    /// Counters of one batch.
    pub(crate) counters_max: usize,
    pub(crate) worker: String,
    pub(crate) records: Option<Arc<Records>>,
    pub(crate) publisher: Option<Arc<Publisher>>,
    /// Notified when a shard follows another revision of the namespace.
    pub(crate) stale: Arc<Notify>,
}

impl Lanes {
    /// Rolls up the counter of a lease, in the next batch of its partition.
    pub(crate) async fn roll_up(self, lease: Lease) -> Result<(), Failure> {
        let counter = CounterName::parse(lease.id)?;
        let batches = &self.batches[self.store.home_of(&counter)];
        let lease = LeaseOrder { leased_at_ms: lease.leased_at_ms, fencing_token: lease.fencing_token };
        let (done, ended) = oneshot::channel();
        let stopping = || Failure::new("the worker is stopping");
        batches.send(LeasedJob { job: Job { counter, lease }, done }).await.map_err(|_| stopping())?;
        match ended.await.map_err(|_| stopping())? {
            Ok(()) => Ok(()),
            Err(skew @ Refusal::ClockSkew { .. }) => {
                // The queue's clock may be the wrong one, and a delay by it would end far too late: the job waits here.
                tokio::time::sleep(SKEW_PAUSE).await;
                Err(Failure::from(skew).retry_after_ms(0))
            }
            Err(refusal) => Err(refusal.into()),
        }
    }
}

/// A batch that has ended.
struct Done {
    counters: usize,
    /// Not if the store was unavailable. How long that took says nothing about its load, and the queue delays these jobs.
    reached_store: bool,
}

/// What the log has of the failed rollups of these batches.
#[derive(Default)]
struct Failures {
    logged_at: Option<Instant>,
}

impl Failures {
    /// The first of these refused jobs that the log must name now. A changed namespace has workers of its next revision soon,
    /// the witness has logged clocks that differ, and an unavailable Redis refuses the jobs of every namespace.
    fn due<'a>(
        &mut self,
        mut refused: impl Iterator<Item = (&'a Job, &'a Refusal)>,
        now: Instant,
    ) -> Option<(&'a Job, &'a Refusal)> {
        if self.logged_at.is_some_and(|logged_at| now.saturating_duration_since(logged_at) < LOG_EVERY) {
            return None;
        }
        let is_passing = |refusal: &Refusal| {
            matches!(refusal, Refusal::Stale | Refusal::ClockSkew { .. } | Refusal::Unavailable { .. })
        };
        let found = refused.find(|(_, refusal)| !is_passing(refusal))?;
        self.logged_at = Some(now);
        Some(found)
    }
}

impl Batches {
    /// Runs until no sender is left.
    pub(crate) async fn run(self, mut leased: mpsc::Receiver<LeasedJob>) {
        let (mut pacer, mut failures, mut batch) = (Pacer::default(), Failures::default(), Vec::new());
        while leased.recv_many(&mut batch, self.counters_max).await > 0 {
            let begin = Instant::now();
            let done = self.roll_up_batch(batch.drain(..), &mut failures).await;
            let took = begin.elapsed();
            let pause = if done.reached_store { pacer.pause_after(took) } else { Duration::ZERO };
            metrics::batch(done.counters, took, pause);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn roll_up_batch(&self, batch: impl Iterator<Item = LeasedJob>, failures: &mut Failures) -> Done {
        let mut by_counter: BTreeMap<CounterName, LeasedJob> = BTreeMap::new();
        // A job whose lease was lost meanwhile is skipped. Of several leases of one counter only the latest is valid.
        for leased in batch.filter(|leased| !leased.done.is_closed()) {
            if let Err(skew) = self.store.check_lease(leased.job.lease) {
                let _ = leased.done.send(Err(skew));
                continue;
            }
            let other = by_counter.get(&leased.job.counter).map(|other| other.job.lease);
            if other.is_none_or(|other| other < leased.job.lease) {
                by_counter.insert(leased.job.counter.clone(), leased);
            }
        }
        let (jobs, waiting): (Vec<Job>, Vec<_>) =
            by_counter.into_values().map(|leased| (leased.job, leased.done)).unzip();
        self.record(jobs.iter().map(|job| (job, RollupStage::Begin)));
        let results = tallystone_counters::roll_up(&self.store, &self.store, &jobs).await;
        self.record(jobs.iter().zip(&results).map(|(job, result)| (job, stage(result))));
        self.publish(&jobs, &results);
        let refusals = jobs.iter().zip(&results).filter_map(|(job, result)| Some((job, result.as_ref().err()?)));
        if let Some((job, refusal)) = failures.due(refusals, Instant::now()) {
            let (namespace, counter) = (self.store.name(), &job.counter);
            tracing::warn!(%namespace, %counter, %refusal, "rollups fail; trying until they succeed");
        }
        let reached_store = !results.iter().any(|result| matches!(result, Err(Refusal::Unavailable { .. })));
        let now_ms = self.store.now_ms();
        for ((job, done), result) in jobs.iter().zip(waiting).zip(results) {
            metrics::rolled_up(&result, now_ms);
            if let Err(refusal) = &result {
                tracing::debug!(counter = %job.counter, %refusal, "not rolled up");
            }
            if result == Err(Refusal::Stale) {
                self.stale.notify_one();
            }
            // The handler is gone if its lease was lost meanwhile.
            let _ = done.send(result.map(drop));
        }
        Done { counters: jobs.len(), reached_store }
    }

    /// Publishes the checkpoints that are committed, now or before, if the namespace is bound to a counter set.
    fn publish(&self, jobs: &[Job], results: &[Result<RolledUp, Refusal>]) {
        let (Some(publisher), Some(to)) = (&self.publisher, &self.store.config().published_to) else { return };
        let committed = jobs.iter().zip(results).filter_map(|(job, result)| match result {
            Ok(RolledUp::Committed { checkpoint, .. }) => Some((&job.counter, checkpoint)),
            Ok(RolledUp::Nothing { checkpoint }) if checkpoint.exact_to_ms > 0 => Some((&job.counter, checkpoint)),
            _ => None,
        });
        publisher.take(to, committed);
    }

    fn record<'a>(&self, stages: impl Iterator<Item = (&'a Job, RollupStage)>) {
        let Some(records) = &self.records else { return };
        let record = |(job, stage): (&Job, RollupStage)| Record {
            at_us: now_us(),
            worker: self.worker.clone(),
            namespace: self.store.name().to_string(),
            counter: job.counter.to_string(),
            fencing_token: job.lease.fencing_token,
            leased_at_ms: job.lease.leased_at_ms,
            stage,
        };
        records.write(&stages.map(record).collect::<Vec<_>>());
    }
}

fn stage(result: &Result<RolledUp, Refusal>) -> RollupStage {
    match result {
        Ok(RolledUp::Committed { .. }) => RollupStage::Committed,
        Ok(RolledUp::Nothing { .. }) => RollupStage::Nothing,
        Ok(RolledUp::Lost) => RollupStage::Lost,
        Err(_) => RollupStage::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::Applied;

    #[test]
    fn failed_rollups_are_logged_once_a_minute() {
        let job = Job { counter: CounterName::parse("c").unwrap(), lease: LeaseOrder::default() };
        let (mut failures, begin) = (Failures::default(), Instant::now());
        let mut logged = |refusal: &Refusal, after_s| {
            failures.due([(&job, refusal)].into_iter(), begin + Duration::from_secs(after_s)).is_some()
        };
        let denied = Refusal::Internal("ACL failure in script".to_owned());
        assert!(!logged(&Refusal::Stale, 0));
        assert!(!logged(&Refusal::ClockSkew { offset_ms: 1, skew_max_ms: 1 }, 0));
        assert!(!logged(&Refusal::Unavailable { applied: Applied::No, why: String::new() }, 0));
        assert_eq!([0, 1, 59, 60, 61].map(|after_s| logged(&denied, after_s)), [true, false, false, true, false]);
    }
}
