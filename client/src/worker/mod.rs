//! The worker runtime: takes leases from a Work stream, runs a handler on each, and tells the outcome.
//! What lives here: the [`Worker`] and its loop. What may not: calls of single RPCs, which are the client's.

mod held;
mod outcome;
mod run;
mod stream;

pub use outcome::{Failure, Lost, Outcome, WorkerStats};

use crate::client::{Client, new_id, wire_ms};
use crate::error::Result;
use crate::lease::{Lease, LeaseRef};
use crate::message::Filter;
use outcome::Counters;
use std::sync::Arc;
use std::time::Duration;
use tallystone_proto::queue::v1 as wire;

/// Runs a handler for the messages of one queue.
///
/// ```no_run
/// # async fn example(client: tallystone_client::Client) -> tallystone_client::Result<()> {
/// use tallystone_client::{Failure, Lease, Worker};
///
/// async fn send_mail(lease: Lease) -> Result<(), Failure> {
///     let address = std::str::from_utf8(&lease.payload)?; // any error releases the message, with its text
///     println!("to {address}, attempt {}", lease.attempt);
///     Ok(())
/// }
///
/// let worker = Worker::new(client, "mails").name("mailer-1").concurrency(16);
/// let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
/// let stats = worker.run_until(stop, send_mail).await?;
/// println!("{} sent, {} to be tried again", stats.completed, stats.released);
/// # Ok(())
/// # }
/// ```
///
/// **One stream.** The worker grants as many credits as it has free places; the server pushes leases the moment
/// messages become runnable. A result and the credit for the next lease travel together, and under load many of
/// them in one request.
///
/// **Leases.** While a handler runs, its lease is extended every time a third of it has passed. When a lease is lost
/// (an extension is refused, or the end of the lease passes by the local clock without a confirmed
/// extension) the handler's future is dropped at its next `.await`, since the message is another worker's to run.
/// Work that cannot be dropped so (a blocking thread, a remote write) is protected by the
/// [fencing token](crate#leases-and-fencing).
///
/// **Failures.** `Ok` completes the message. [`Failure`] (which `?` makes of any error) releases it with the
/// error's text as the reason; so does a panic. The queue's retry backoff, or
/// [`Failure::retry_after_ms`], says when it runs again, its max attempts how often.
///
/// **Broken streams.** The worker opens another, with jittered backoff, for as long as it takes. Handlers run on while
/// their leases live; results that were not confirmed are told again. With
/// [`release_on_close`](Worker::release_on_close) the server gives the leases back at once instead, and the
/// handlers are dropped.
///
/// **Stopping.** See [`Worker::run_until`]. Dropping its future is the abrupt way: handlers are dropped and the leases
/// lapse, or go back with `release_on_close`.
#[derive(Clone)]
pub struct Worker {
    client: Client,
    queue: String,
    name: String,
    concurrency: u32,
    lease_ms: Option<u64>,
    filters: Vec<Filter>,
    release_on_close: bool,
    grace: Duration,
    counters: Arc<Counters>,
    on_outcome: Option<Arc<OnOutcome>>,
}

type OnOutcome = dyn Fn(&LeaseRef, &Outcome) + Send + Sync;

impl Worker {
    /// One message of this queue at a time, under a name drawn at random.
    pub fn new(client: Client, queue: impl Into<String>) -> Self {
        Worker {
            client,
            queue: queue.into(),
            name: format!("worker-{}", new_id()),
            concurrency: 1,
            lease_ms: None,
            filters: Vec::new(),
            release_on_close: false,
            grace: Duration::from_secs(30),
            counters: Arc::default(),
            on_outcome: None,
        }
    }

    /// Its name in history and Explain, up to 128 bytes.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many handlers run at once; default 1, and at least that.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// How long the leases are, rather than the message's or the queue's default: how soon another worker takes over
    /// when this one dies. Not how long a handler may take: leases are extended.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Self {
        self.lease_ms = Some(lease_ms);
        self
    }

    /// Only messages that pass this filter, or another one given; up to 16.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// When the stream ends, whatever the reason, the server gives the unfinished leases back at once, rather than
    /// letting them lapse. Others take over sooner; in exchange a broken connection costs the work in hand.
    /// Default false.
    #[must_use]
    pub fn release_on_close(mut self, release_on_close: bool) -> Self {
        self.release_on_close = release_on_close;
        self
    }

    /// How long handlers may run on after the shutdown signal; default 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Called with every outcome, in the worker's own task: be brief.
    #[must_use]
    pub fn on_outcome(mut self, on_outcome: impl Fn(&LeaseRef, &Outcome) + Send + Sync + 'static) -> Self {
        self.on_outcome = Some(Arc::new(on_outcome));
        self
    }

    /// What has been done so far, by this worker and its clones.
    pub fn stats(&self) -> WorkerStats {
        self.counters.snapshot()
    }

    /// Works for ever, or until the server refuses for good.
    pub async fn run<F, Fut>(&self, handler: F) -> Result<WorkerStats>
    where
        F: Fn(Lease) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.run_until(std::future::pending(), handler).await
    }

    /// Works until `shutdown` is ready, then stops gracefully: takes no more, lets the running handlers finish within the
    /// [grace](Worker::grace), releases what is left, and returns when the server has confirmed it all.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) where trying again cannot help: no such queue, a bad name or filter.
    /// A server that is away is no error: the worker waits for it.
    pub async fn run_until<F, Fut>(&self, shutdown: impl Future<Output = ()>, handler: F) -> Result<WorkerStats>
    where
        F: Fn(Lease) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        run::Run::new(self, handler).until(shutdown).await?;
        Ok(self.stats())
    }

    /// What opens a stream.
    fn start(&self) -> wire::WorkStart {
        wire::WorkStart {
            queue: self.queue.clone(),
            worker: self.name.clone(),
            lease_ms: self.lease_ms.map(wire_ms),
            filters: self.filters.iter().cloned().map(Filter::into_wire).collect(),
            release_on_close: self.release_on_close,
        }
    }

    fn settle(&self, lease: &LeaseRef, outcome: Outcome) {
        if let Outcome::Lost(how) = &outcome {
            tracing::warn!(worker = self.name, id = lease.id, ?how, "a lease was lost");
        }
        self.counters.count(&outcome);
        if let Some(tell) = &self.on_outcome {
            tell(lease, &outcome);
        }
    }
}
