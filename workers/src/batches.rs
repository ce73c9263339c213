//! Batches: what is leased while one batch is in the store makes up the next (N10).

use crate::metrics;
use crate::pacer::Pacer;
use crate::records::{Record, Records, RollupStage, now_us};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tallystone_client::{Failure, Lease};
use tallystone_counters::redis::RedisNamespace;
use tallystone_counters::{CounterName, Job, LeaseOrder, Refusal, RolledUp, roll_up};
use tokio::sync::{Notify, mpsc, oneshot};

/// A leased job, and where its end is told.
pub(crate) struct Leased {
    job: Job,
    done: oneshot::Sender<Result<(), Failure>>,
}

/// One after the other, the batches of one queue.
pub(crate) struct Batches {
    pub(crate) store: RedisNamespace,
    pub(crate) worker: String,
    pub(crate) records: Option<Arc<Records>>,
    /// Told when the namespace has been changed.
    pub(crate) stale: Arc<Notify>,
}

/// Has a job done by the batches behind this sender.
pub(crate) async fn ask(batches: mpsc::Sender<Leased>, lease: Lease) -> Result<(), Failure> {
    let counter = CounterName::parse(lease.id)?;
    let lease = LeaseOrder { leased_at_ms: lease.leased_at_ms, fencing_token: lease.fencing_token };
    let (done, ended) = oneshot::channel();
    let gone = |_| Failure::new("the worker is stopping");
    batches
        .send(Leased { job: Job { counter, lease }, done })
        .await
        .map_err(|_| Failure::new("the worker is stopping"))?;
    ended.await.map_err(gone)?
}

impl Batches {
    /// Until nobody can ask any more.
    pub(crate) async fn run(self, mut leased: mpsc::Receiver<Leased>) {
        let batch_count = self.store.config().rollup_batch_count as usize;
        let (mut pacer, mut batch) = (Pacer::default(), Vec::with_capacity(batch_count));
        while leased.recv_many(&mut batch, batch_count).await > 0 {
            let begin = Instant::now();
            let counters = self.roll_up(batch.drain(..)).await;
            let took = begin.elapsed();
            let pause = pacer.pause_after(took);
            metrics::batch(counters, took, pause);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
    }

    async fn roll_up(&self, batch: impl Iterator<Item = Leased>) -> usize {
        let mut by_counter: BTreeMap<CounterName, Leased> = BTreeMap::new();
        // Whoever has lost its lease meanwhile waits no longer; and of one counter only the latest lease counts.
        for leased in batch.filter(|leased| !leased.done.is_closed()) {
            let known = by_counter.get(&leased.job.counter).map(|known| known.job.lease);
            if known.is_none_or(|known| known < leased.job.lease) {
                by_counter.insert(leased.job.counter.clone(), leased);
            }
        }
        let (jobs, waiting): (Vec<Job>, Vec<_>) =
            by_counter.into_values().map(|leased| (leased.job, leased.done)).unzip();
        self.record(jobs.iter().map(|job| (job, RollupStage::Begin)));
        let results = roll_up(&self.store, &self.store, &jobs).await;
        self.record(jobs.iter().zip(&results).map(|(job, result)| (job, stage(result))));
        let now_ms = self.store.now_ms();
        for (done, result) in waiting.into_iter().zip(results) {
            metrics::rolled_up(&result, now_ms);
            if result == Err(Refusal::Stale) {
                self.stale.notify_one();
            }
            // Its lease may be another's by now.
            let _ = done.send(result.map(drop).map_err(Failure::from));
        }
        jobs.len()
    }

    fn record<'a>(&self, stages: impl Iterator<Item = (&'a Job, RollupStage)>) {
        let Some(records) = &self.records else { return };
        let record = |(job, stage): (&Job, RollupStage)| Record {
            at_us: now_us(),
            worker: self.worker.clone(),
            namespace: self.store.name().to_string(),
            counter: job.counter.to_string(),
            fencing_token: job.lease.fencing_token,
            stage,
        };
        records.write(&stages.map(record).collect::<Vec<_>>());
    }
}

fn stage(result: &Result<RolledUp, Refusal>) -> RollupStage {
    match result {
        Ok(RolledUp::Committed { .. }) => RollupStage::Committed,
        Ok(RolledUp::Nothing) => RollupStage::Nothing,
        Ok(RolledUp::Lost) => RollupStage::Lost,
        Err(_) => RollupStage::Failed,
    }
}
