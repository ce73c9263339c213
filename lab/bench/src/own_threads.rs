//! A part of the system under test, on dedicated threads or on those of the bench.

use anyhow::{Context, Result};
use std::net::Ipv4Addr;
use tallystone_serving::{Host, Running};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};

/// A running part, and its threads.
pub(crate) struct OwnThreads<T> {
    pub(crate) part: T,
    threads: Threads,
}

/// Threads that end when this is dropped, also where a figure fails: async code may not drop a `Runtime`.
/// `None`: those of the bench.
struct Threads(Option<Runtime>);

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl<T: Send + 'static> OwnThreads<T> {
    /// Starts a part on this many dedicated threads with this name; 0: on those of the bench.
    pub(crate) async fn start(
        name: &str,
        threads: usize,
        start: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<OwnThreads<T>> {
        let threads = Threads(match threads {
            0 => None,
            n => Some(Builder::new_multi_thread().worker_threads(n).thread_name(name).enable_all().build()?),
        });
        let handle = threads.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone());
        let part = handle.spawn(start).await?.with_context(|| format!("the {name} did not start"))?;
        Ok(OwnThreads { part, threads })
    }

    /// Stops the part, then its threads.
    pub(crate) async fn stop(self, stop: impl AsyncFnOnce(T) -> Result<()>) -> Result<()> {
        let OwnThreads { part, threads: _threads } = self;
        stop(part).await
    }
}

/// Serves a host on a free port of the loopback address.
pub(crate) async fn serve(host: Host) -> Result<Running> {
    Ok(Running::start(host, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)?)
}
