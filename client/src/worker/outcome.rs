//! How a lease ended: what the handler says, what the store answered, and the counts.

use crate::error::Refused;
use crate::lease::{LeaseRef, Release, Transition};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most bytes of a reason that the wire takes.
const REASON_BYTES_MAX: usize = 255;

/// Why a handler did not do its work: the message is released with this reason.
///
/// Made by `?` from whatever can be displayed, or by [`Failure::new`] to say when to try again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    delay_ms: Option<u64>,
}

impl Failure {
    /// A reason. The next attempt comes when the queue's retry backoff says so.
    pub fn new(reason: impl Into<String>) -> Self {
        Failure { reason: reason.into(), delay_ms: None }
    }

    /// The next attempt comes after so long.
    #[must_use]
    pub fn retry_after_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = Some(delay_ms);
        self
    }

    /// What a panicking handler said.
    pub(super) fn panicked(panic: Box<dyn std::any::Any + Send>) -> Self {
        let said = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        Failure::new(format!("the handler panicked: {}", said.unwrap_or("(no message)")))
    }

    /// The grace of a stopping worker was too short for this handler. It runs again at once, elsewhere.
    pub(super) fn stopped() -> Self {
        Failure::new("the worker stopped").retry_after_ms(0)
    }

    /// As the wire wants it: without control characters, cut to length.
    pub(super) fn into_release(self, lease: LeaseRef) -> Release {
        let mut reason = String::with_capacity(self.reason.len().min(REASON_BYTES_MAX));
        for c in self.reason.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            if reason.len() + c.len_utf8() > REASON_BYTES_MAX {
                break;
            }
            reason.push(c);
        }
        Release { lease, delay_ms: self.delay_ms, reason }
    }
}

// Failure itself is not Display, so this does not overlap with From<T> for T.
impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        // The alternate form of an error chain is all of it on one line.
        Failure::new(format!("{error:#}"))
    }
}

/// What became of a lease, as the store confirmed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler succeeded and the store knows. (The state is pending where the message was coalesced.)
    Completed(Transition),
    /// The handler failed, panicked or was stopped, and the message went back (or, without attempts left, is errored).
    Released(Transition),
    /// The lease ended before the work did, or the store refused the result: the message is another's to run.
    Lost(Lost),
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It ran out by this machine's clock and no extension was confirmed.
    Expired,
    /// The store refused an extension or the result.
    Refused(Refused),
    /// The stream broke, and the worker had asked that leases go back when it does.
    StreamClosed,
}

/// What a worker has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WorkerStats {
    /// Leases received.
    pub leased: u64,
    /// Leases that ended with a confirmed Complete.
    pub completed: u64,
    /// Leases given back, confirmed.
    pub released: u64,
    /// Leases lost.
    pub lost: u64,
    /// Extensions confirmed.
    pub extended: u64,
    /// Times the stream was opened anew after it broke.
    pub reconnects: u64,
}

/// The live counts behind [`WorkerStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) leased: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) extended: AtomicU64,
    pub(super) reconnects: AtomicU64,
}

impl Counters {
    pub(super) fn snapshot(&self) -> WorkerStats {
        WorkerStats {
            leased: self.leased.load(Relaxed),
            completed: self.completed.load(Relaxed),
            released: self.released.load(Relaxed),
            lost: self.lost.load(Relaxed),
            extended: self.extended.load(Relaxed),
            reconnects: self.reconnects.load(Relaxed),
        }
    }

    pub(super) fn count(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::Completed(_) => &self.completed,
            Outcome::Released(_) => &self.released,
            Outcome::Lost(_) => &self.lost,
        };
        counter.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_fits_the_wire() {
        let lease = LeaseRef { id: "a".into(), fencing_token: 1 };
        let release = Failure::new(format!("line 1\nline 2 {}", "é".repeat(200))).into_release(lease);
        assert!(release.reason.starts_with("line 1 line 2 é"));
        assert!((254..=255).contains(&release.reason.len()));
    }

    #[test]
    fn a_panic_tells_what_it_said() {
        let of = |panic: Box<dyn std::any::Any + Send>| Failure::panicked(panic).reason;
        assert_eq!(of(Box::new("boom")), "the handler panicked: boom");
        assert_eq!(of(Box::new("boom".to_owned())), "the handler panicked: boom");
        assert_eq!(of(Box::new(7)), "the handler panicked: (no message)");
    }
}
