//! The workers' own log: which worker flew which flight from when to when, by one monotonic clock. It holds nothing that
//! the server says.

use super::plan::{FlightNo, Plan};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tallystone_client::{Lease, LeaseRef};

/// The log, shared by all workers.
pub(super) struct FlightLog {
    started: Instant,
    plan: Arc<Plan>,
    entries: Mutex<FlightLogEntries>,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub(super) struct FlightLogEntries {
    pub(super) runs: Vec<Run>,
    pub(super) acknowledged: Vec<Acknowledged>,
    /// Ids of leased messages that the demo did not enqueue.
    pub(super) strangers: Vec<String>,
}

/// One attempt of one worker to fly a flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) flight: FlightNo,
    pub(super) worker: u32,
    pub(super) attempt: u32,
    pub(super) fencing_token: u64,
    /// Nanoseconds since the log began.
    pub(super) took_off_ns: u64,
    pub(super) ended_ns: u64,
    /// False: the worker was killed, or its lease was lost, before the flight landed.
    pub(super) landed: bool,
    /// From the message's acceptance to this lease, by the store's clock.
    pub(super) queued_ms: u64,
}

/// A flight's completion that the server has confirmed to the worker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acknowledged {
    pub(super) flight: FlightNo,
    pub(super) fencing_token: u64,
}

impl FlightLog {
    pub(super) fn new(plan: Arc<Plan>) -> Self {
        FlightLog { started: Instant::now(), plan, entries: Mutex::default() }
    }

    /// Nanoseconds since the log began.
    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes a take-off; answers how many there were before. The flight ends when the guard is dropped.
    pub(super) fn take_off(self: &Arc<Self>, worker: u32, lease: &Lease) -> (usize, OpenRun) {
        let Some(flight) = self.plan.number(&lease.id) else {
            let mut entries = self.entries();
            entries.strangers.push(lease.id.clone());
            return (entries.runs.len(), OpenRun { log: Arc::clone(self), run: None });
        };
        let queued_ms = lease.leased_at_ms.saturating_sub(lease.enqueued_at_ms);
        let (attempt, fencing_token) = (lease.attempt, lease.fencing_token);
        let mut entries = self.entries();
        let run = entries.runs.len();
        // The clock is read under the lock, so that the order of the log is that of its times.
        let took_off_ns = self.now_ns();
        let (ended_ns, landed) = (u64::MAX, false);
        entries.runs.push(Run { flight, worker, attempt, fencing_token, took_off_ns, ended_ns, landed, queued_ms });
        (run, OpenRun { log: Arc::clone(self), run: Some(run) })
    }

    /// Notes a confirmed completion.
    pub(super) fn acknowledge(&self, lease: &LeaseRef) {
        if let Some(flight) = self.plan.number(&lease.id) {
            self.entries().acknowledged.push(Acknowledged { flight, fencing_token: lease.fencing_token });
        }
    }

    /// How many flights this worker has in the air.
    pub(super) fn in_the_air(&self, worker: u32) -> usize {
        let entries = self.entries();
        entries.runs.iter().filter(|run| run.worker == worker && run.ended_ns == u64::MAX).count()
    }

    /// All that was written.
    pub(super) fn close(&self) -> FlightLogEntries {
        std::mem::take(&mut self.entries())
    }

    fn entries(&self) -> MutexGuard<'_, FlightLogEntries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flight in the air. Dropped without [`OpenRun::land`], it ends without having landed.
pub(super) struct OpenRun {
    log: Arc<FlightLog>,
    run: Option<usize>,
}

impl OpenRun {
    pub(super) fn land(mut self) {
        self.end(true);
    }

    fn end(&mut self, landed: bool) {
        let Some(run) = self.run.take() else { return };
        let now = self.log.now_ns();
        if let Some(run) = self.log.entries().runs.get_mut(run) {
            (run.ended_ns, run.landed) = (now, landed);
        }
    }
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        self.end(false);
    }
}
