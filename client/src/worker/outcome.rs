//! How a lease ended: the handler's verdict, the store's answer, and the statistics.

use crate::error::Refused;
use crate::lease::{Completion, LeaseRef, Release, Transition, Verdict};
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The most bytes of a reason that the server accepts.
const REASON_BYTES_MAX: usize = 255;
/// The most bytes of a result that the server accepts.
const RESULT_BYTES_MAX: usize = 1_024;

/// The success of a handler: what it leaves with the completed message. A handler returns `Ok(())` for nothing, or text or
/// bytes, up to 1,024.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Success(Bytes);

impl Success {
    /// How to end the lease. The server would refuse a longer result, and the work would be repeated for nothing.
    pub(super) fn into_end(self, lease: LeaseRef) -> Result<Completion, Release> {
        match self.0.len() {
            0..=RESULT_BYTES_MAX => Ok(Completion { lease, result: self.0 }),
            bytes => {
                let why = format!("the result of the work has {bytes} bytes; the maximum is {RESULT_BYTES_MAX}");
                Err(Failure::new(why).never_again().into_release(lease))
            }
        }
    }
}

impl From<()> for Success {
    fn from((): ()) -> Self {
        Success::default()
    }
}

impl From<Bytes> for Success {
    fn from(result: Bytes) -> Self {
        Success(result)
    }
}

impl From<Vec<u8>> for Success {
    fn from(result: Vec<u8>) -> Self {
        Success(result.into())
    }
}

impl From<String> for Success {
    fn from(result: String) -> Self {
        Success(result.into())
    }
}

impl From<&'static str> for Success {
    fn from(result: &'static str) -> Self {
        Success(result.into())
    }
}

/// The failure of a handler. The worker releases the message with its reason, and by default it runs again.
///
/// `?` makes one of any error that can be displayed. [`Failure::new`] also sets the time of the next attempt, or that there
/// is none: `Err(Failure::new("no such address").never_again())`. A failure that `?` would make can say so too:
/// `parse(&payload).map_err(|error| Failure::from(error).never_again())?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    reason: String,
    delay_ms: Option<u64>,
    verdict: Verdict,
}

impl Failure {
    /// A failure with this reason. The queue's retry backoff sets the time of the next attempt.
    pub fn new(reason: impl Into<String>) -> Self {
        Failure { reason: reason.into(), delay_ms: None, verdict: Verdict::Retry }
    }

    /// The next attempt comes after this delay; 0: at once.
    #[must_use]
    pub fn retry_after_ms(mut self, delay_ms: u64) -> Self {
        (self.delay_ms, self.verdict) = (Some(delay_ms), Verdict::Retry);
        self
    }

    /// There is no next attempt: the message is errored now.
    #[must_use]
    pub fn never_again(mut self) -> Self {
        (self.delay_ms, self.verdict) = (None, Verdict::Error);
        self
    }

    /// The message is not to be done any more: it is canceled.
    #[must_use]
    pub fn cancel(mut self) -> Self {
        (self.delay_ms, self.verdict) = (None, Verdict::Cancel);
        self
    }

    /// The failure of a handler that panicked, with the panic's message.
    pub(super) fn panicked(panic: Box<dyn std::any::Any + Send>) -> Self {
        let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        Failure::new(format!("the handler panicked: {}", message.unwrap_or("(no message)")))
    }

    /// The failure of a handler that did not end within the grace of a stopping worker, or did not begin. The message runs again at
    /// once.
    pub(super) fn stopped() -> Self {
        Failure::new("the worker stopped").retry_after_ms(0)
    }

    /// The release to send. The server accepts no control characters and a limited length.
    pub(super) fn into_release(self, lease: LeaseRef) -> Release {
        let mut reason = String::with_capacity(self.reason.len().min(REASON_BYTES_MAX));
        for c in self.reason.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            if reason.len() + c.len_utf8() > REASON_BYTES_MAX {
                break;
            }
            reason.push(c);
        }
        Release { lease, delay_ms: self.delay_ms, reason, verdict: self.verdict }
    }
}

// Failure itself is not Display, so this does not overlap with From<T> for T.
impl<E: std::fmt::Display> From<E> for Failure {
    fn from(error: E) -> Self {
        // The alternate form of an error chain has all of it on one line.
        Failure::new(format!("{error:#}"))
    }
}

/// How a lease ended, as the store confirmed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler succeeded, and the store has the result. The message is completed, or pending if it was coalesced.
    Completed(Transition),
    /// The handler failed, panicked or was stopped, or never began because the worker stops. The message runs again, or is errored
    /// if no attempts are left, or what the [`Failure`] says.
    Released(Transition),
    /// The lease ended before the work did, or the store refused the result. Another worker may run the message.
    Lost(Lost),
}

/// How a lease was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// It expired by this machine's clock without a confirmed extension.
    Expired,
    /// The store refused an extension or the result.
    Refused(Refused),
    /// A Cancel with force has ended it, or a purge or deletion of its queue.
    Revoked,
    /// The stream broke, and [`release_on_close`](crate::Worker::release_on_close) is set.
    StreamClosed,
}

/// The statistics of a worker since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct WorkerStats {
    /// Leases received.
    pub leased: u64,
    /// Leases that ended with a confirmed Complete.
    pub completed: u64,
    /// Leases that ended with a confirmed Release.
    pub released: u64,
    /// Leases lost.
    pub lost: u64,
    /// Extensions confirmed.
    pub extended: u64,
    /// How often the stream broke and was opened again.
    pub reconnects: u64,
}

/// The running totals behind [`WorkerStats`].
#[derive(Debug, Default)]
pub(super) struct RunningStats {
    pub(super) leased: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) extended: AtomicU64,
    pub(super) reconnects: AtomicU64,
}

impl RunningStats {
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
    fn a_reason_is_cut_to_what_the_server_accepts() {
        let lease = LeaseRef { id: "a".into(), fencing_token: 1 };
        let release = Failure::new(format!("line 1\nline 2 {}", "é".repeat(200))).into_release(lease);
        assert!(release.reason.starts_with("line 1 line 2 é"));
        assert!((254..=255).contains(&release.reason.len()));
    }

    #[test]
    fn q23_a_result_that_no_server_accepts_is_a_failure_for_good() {
        let lease = || LeaseRef { id: "a".into(), fencing_token: 1 };
        let result = "x".repeat(RESULT_BYTES_MAX);
        assert_eq!(Success::from(result.clone()).into_end(lease()), Ok(Completion::of(lease()).result(result)));
        let release = Success::from(vec![0; RESULT_BYTES_MAX + 1]).into_end(lease()).unwrap_err();
        assert_eq!((release.verdict, release.delay_ms), (Verdict::Error, None));
        assert!(release.reason.contains("1025 bytes"), "{release:?}");
    }

    #[test]
    fn a_panic_keeps_its_message() {
        let of = |panic: Box<dyn std::any::Any + Send>| Failure::panicked(panic).reason;
        assert_eq!(of(Box::new("boom")), "the handler panicked: boom");
        assert_eq!(of(Box::new("boom".to_owned())), "the handler panicked: boom");
        assert_eq!(of(Box::new(7)), "the handler panicked: (no message)");
    }
}
