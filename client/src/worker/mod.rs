//! The worker runtime: takes leases from a Work stream, runs a handler for each, and sends the results.
//! What lives here: the [`Worker`] and its loop. What may not: calls of single RPCs, which are the client's.

mod held;
mod outcome;
mod outgoing;
mod run;
mod settings;
#[cfg(feature = "telemetry")]
mod spans;
mod stream;

pub use outcome::{Failure, Lost, Outcome, Success, WorkerStats};

use crate::calls::LIMIT_MAX;
use crate::client::Client;
use crate::error::Result;
use crate::lease::{Lease, LeaseRef};
use crate::message::Filter;
use settings::Settings;
use std::sync::Arc;
use std::time::Duration;

/// Runs a handler for each message of one queue.
///
/// ```no_run
/// # async fn example(client: tallystone_client::Client) -> tallystone_client::Result<()> {
/// use tallystone_client::{Lease, Worker};
/// # #[derive(Clone)]
/// # struct Pool;
/// # impl Pool {
/// #     async fn save(&self, _: &str) -> std::io::Result<()> { Ok(()) }
/// # }
/// # let pool = Pool;
///
/// let worker = Worker::new(client, "mails").name("mailer-1").concurrency(16);
/// let stop = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
/// let handler = async move |lease: Lease| {
///     let address = std::str::from_utf8(&lease.payload)?; // any error releases the message, with its text
///     pool.save(address).await?;
///     Ok(())
/// };
/// let stats = worker.run_until(stop, handler).await?;
/// println!("{} sent, {} to be tried again", stats.completed, stats.released);
/// # Ok(())
/// # }
/// ```
///
/// **The handler** is a function, or a closure that returns a future, such as `async move |lease| { … }`. Each message
/// runs a clone of it, so what it captures must be cloneable: a connection pool, a client, a channel's sender. An
/// [`Arc`] shares anything else.
///
/// **One stream.** The worker grants one credit per free place, and the server pushes a lease for each as soon as a
/// message becomes runnable. A result and the credit for the next lease travel together; under load, many of them
/// share one request.
///
/// **Leases.** While a handler runs, its lease is extended each time a third of it has passed. A lease is lost when an
/// extension is refused, or when its end passes by the local clock without a confirmed extension. Then the handler's
/// future is dropped at its next `.await`, because another worker may run the message. Work that cannot be dropped
/// (a blocking thread, a remote write) is protected by the [fencing token](crate#leases-and-fencing).
///
/// **Verdicts.** `Ok(())` completes the message; `Ok` of text or bytes, up to 1,024, also leaves them with it as its result
/// ([`Success`]). [`Failure`], which `?` makes of any error, releases it with the error's text as the reason; so does a
/// panic. The queue's retry backoff, or [`Failure::retry_after_ms`], sets the time of the next attempt, and the message's
/// maximum of attempts their number. After [`Failure::never_again`] the message is errored at once, after
/// [`Failure::cancel`] it is canceled.
///
/// **Broken streams.** The worker opens another stream, with jittered backoff, until it succeeds. Handlers continue while
/// their leases live, and unconfirmed results are sent again. With [`release_on_close`](Worker::release_on_close) the
/// server releases the leases at once instead, and the worker drops the handlers.
///
/// **Stopping.** See [`Worker::run_until`]. Dropping its future stops at once: the handlers are dropped, and their leases
/// expire, or are released with `release_on_close`.
#[derive(Clone)]
pub struct Worker {
    settings: Settings,
}

impl Worker {
    /// A worker that runs one message of this queue at a time, with a random name.
    pub fn new(client: Client, queue: impl Into<String>) -> Self {
        Worker { settings: Settings::new(client, queue.into()) }
    }

    /// The worker's name, up to 128 bytes, which history and Explain show.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// How many handlers run at once; at least and by default 1.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.settings.concurrency = concurrency.max(1);
        self
    }

    /// The length of the leases, instead of the message's or the queue's. It bounds how soon another worker takes over
    /// when this one dies; it does not bound the handlers, because leases are extended.
    #[must_use]
    pub fn lease_ms(mut self, lease_ms: u64) -> Self {
        self.settings.lease_ms = Some(lease_ms);
        self
    }

    /// Adds a filter: the worker runs only messages that pass one of its filters. Up to 16.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.settings.filters.push(filter);
        self
    }

    /// Whether the server releases unfinished leases at once when the stream ends, for whatever reason, instead of letting
    /// them expire. Other workers take over sooner; in exchange, a broken connection drops the running handlers. Default
    /// false.
    #[must_use]
    pub fn release_on_close(mut self, release_on_close: bool) -> Self {
        self.settings.release_on_close = release_on_close;
        self
    }

    /// Whether the worker shares a Work stream with the other workers of this client that do, up to 1,000 on one. For a
    /// process that works on many queues: each further queue then costs the server and this process a few kilobytes
    /// rather than a stream. One task on each side serves a shared stream, so a worker of one busy queue is faster without.
    /// Default false.
    #[must_use]
    pub fn shared_stream(mut self, shared_stream: bool) -> Self {
        self.settings.shared_stream = shared_stream;
        self
    }

    /// How long handlers may continue after the shutdown signal; default 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace.min(LIMIT_MAX);
        self
    }

    /// A function to call with every outcome. It runs in the worker's own task and must not block.
    #[must_use]
    pub fn on_outcome(mut self, on_outcome: impl Fn(&LeaseRef, &Outcome) + Send + Sync + 'static) -> Self {
        self.settings.on_outcome = Some(Arc::new(on_outcome));
        self
    }

    /// The statistics of this worker and its clones together.
    pub fn stats(&self) -> WorkerStats {
        self.settings.stats.snapshot()
    }

    /// Runs until the server refuses for good; see [`Worker::run_until`].
    pub async fn run<F, Fut, T>(&self, handler: F) -> Result<WorkerStats>
    where
        F: FnOnce(Lease) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
        T: Into<Success>,
    {
        self.run_until(std::future::pending(), handler).await
    }

    /// Runs until `shutdown` is ready, then stops gracefully: takes no more leases, lets the running handlers finish within
    /// the [grace](Worker::grace), releases the others, and returns when a server has confirmed every result. If none is
    /// available, it gives up after the [call timeout](crate::ClientBuilder::call_timeout), and those leases expire. A lease that
    /// still arrives after the stop is released, and its handler never runs.
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) if trying again cannot help: there is no such queue, or a name or filter is
    /// invalid. An unavailable server is not an error: the worker waits for it.
    pub async fn run_until<F, Fut, T>(&self, shutdown: impl Future<Output = ()>, handler: F) -> Result<WorkerStats>
    where
        F: FnOnce(Lease) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
        T: Into<Success>,
    {
        run::WorkerLoop::new(&self.settings, handler).run_until(shutdown).await?;
        Ok(self.stats())
    }
}
