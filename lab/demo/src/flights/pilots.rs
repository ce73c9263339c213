//! The workers: they fly the flights that they lease, and one of them is killed midway.

use super::flight_log::{FlightLog, FlightLogEntries};
use super::plan::Plan;
use anyhow::{Context, Result, anyhow};
use indicatif::ProgressBar;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tallystone_client::{Client, Failure, Lease, LeaseRef, Outcome, Worker};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};

/// Flights that one worker flies at once, so that the killed one holds several.
pub(super) const FLIGHTS_PER_WORKER: u32 = 4;
/// After this long without a completion, something is wrong: the demo reports what it has.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// How long the worker to be killed may wait until it holds all its flights.
const FULL_HANDS_WITHIN: Duration = Duration::from_millis(500);

/// The log of the workers, and how long they took.
pub(super) struct Flown {
    pub(super) log: FlightLogEntries,
    pub(super) elapsed: Duration,
    pub(super) killed: Option<Kill>,
}

/// The worker that was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kill {
    pub(super) worker: u32,
    pub(super) at_ns: u64,
}

/// What the workers share.
struct Crew {
    log: Arc<FlightLog>,
    /// The worker that takes off for the flight in the middle; it never lands again.
    doomed: OnceLock<u32>,
    /// It was named, or took one more flight.
    doomed_took_off: Notify,
    middle: Option<usize>,
    completed: AtomicU64,
    to_complete: u64,
    all_completed: Notify,
    progress: ProgressBar,
}

/// Flies every flight of the plan.
pub(super) async fn fly(
    client: &Client,
    queue: &str,
    plan: &Arc<Plan>,
    workers: u32,
    progress: &ProgressBar,
) -> Result<Flown> {
    let crew = Arc::new(Crew {
        log: Arc::new(FlightLog::new(Arc::clone(plan))),
        doomed: OnceLock::new(),
        doomed_took_off: Notify::new(),
        // A single worker is not killed: no other could take over.
        middle: (workers > 1).then_some(plan.flights.len() / 2),
        completed: AtomicU64::new(0),
        to_complete: plan.flights.len() as u64,
        all_completed: Notify::new(),
        progress: progress.clone(),
    });
    let started = Instant::now();
    let (stop, stopped) = watch::channel(false);
    let mut tasks = JoinSet::new();
    let mut handles: Vec<AbortHandle> = Vec::new();
    for number in 0..workers {
        let worker = worker(client, queue, number, &crew);
        let (crew, mut stopped) = (Arc::clone(&crew), stopped.clone());
        handles.push(tasks.spawn(async move {
            let shutdown = async move { drop(stopped.wait_for(|stopped| *stopped).await) };
            worker.run_until(shutdown, move |lease| Arc::clone(&crew).fly_one(number, lease)).await
        }));
    }
    let mut killed = None;
    tokio::select! {
        at = crew.kill_when_full(&handles) => killed = Some(at),
        () = crew.all_completed_or_stalled() => {}
        Some(failure) = next_failure(&mut tasks) => return Err(failure),
    }
    tokio::select! {
        () = crew.all_completed_or_stalled() => {}
        Some(failure) = next_failure(&mut tasks) => return Err(failure),
    }
    let elapsed = started.elapsed();
    let _ = stop.send(true);
    while let Some(ended) = tasks.join_next().await {
        if let Ok(stats) = ended {
            stats.context("a worker failed")?;
        }
    }
    Ok(Flown { log: crew.log.close(), elapsed, killed })
}

/// One of the workers.
fn worker(client: &Client, queue: &str, number: u32, crew: &Arc<Crew>) -> Worker {
    let crew = Arc::clone(crew);
    Worker::new(client.clone(), queue)
        .name(format!("pilot-{number}"))
        .concurrency(FLIGHTS_PER_WORKER)
        .grace(Duration::from_secs(5))
        .on_outcome(move |lease: &LeaseRef, outcome: &Outcome| {
            if let Outcome::Completed(_) = outcome {
                crew.complete(lease);
            }
        })
}

/// The first worker that ended before the stop signal; the killed one does not count.
async fn next_failure(
    tasks: &mut JoinSet<tallystone_client::Result<tallystone_client::WorkerStats>>,
) -> Option<anyhow::Error> {
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(Ok(_)) => return Some(anyhow!("a worker stopped unexpectedly")),
            Ok(Err(error)) => return Some(anyhow::Error::new(error).context("a worker failed")),
            Err(error) if error.is_cancelled() => {}
            Err(error) => return Some(error.into()),
        }
    }
    None
}

impl Crew {
    /// The handler: flies one flight. Flight time is what it takes to let another task run.
    async fn fly_one(self: Arc<Self>, worker: u32, lease: Lease) -> Result<(), Failure> {
        let (before, flying) = self.log.take_off(worker, &lease);
        if self.middle.is_some_and(|middle| before >= middle) {
            let doomed = *self.doomed.get_or_init(|| worker);
            if doomed == worker {
                self.doomed_took_off.notify_one();
                std::future::pending::<()>().await;
            }
        }
        tokio::task::yield_now().await;
        flying.land();
        Ok(())
    }

    fn complete(&self, lease: &LeaseRef) {
        self.log.acknowledge(lease);
        self.progress.inc(1);
        if self.completed.fetch_add(1, Relaxed) + 1 == self.to_complete {
            self.all_completed.notify_waiters();
        }
    }

    /// Waits until the doomed worker's hands are full, and kills it: its task, its stream and its flights are
    /// dropped without a word to the server.
    async fn kill_when_full(&self, workers: &[AbortHandle]) -> Kill {
        let worker = loop {
            self.doomed_took_off.notified().await;
            if let Some(doomed) = self.doomed.get() {
                break *doomed;
            }
        };
        let full = async {
            while self.log.in_the_air(worker) < FLIGHTS_PER_WORKER as usize {
                self.doomed_took_off.notified().await;
            }
        };
        // Near the end of a short file there may not be enough flights.
        let _ = tokio::time::timeout(FULL_HANDS_WITHIN, full).await;
        workers[worker as usize].abort();
        Kill { worker, at_ns: self.log.now_ns() }
    }

    async fn all_completed_or_stalled(&self) {
        loop {
            // Listening begins before the count is read, so that no completion is missed between the two.
            let all = self.all_completed.notified();
            let before = self.completed.load(Relaxed);
            if before >= self.to_complete {
                return;
            }
            let stalled = tokio::time::timeout(STALLED_AFTER, all).await.is_err();
            if stalled && self.completed.load(Relaxed) == before {
                return;
            }
        }
    }
}
