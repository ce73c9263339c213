//! A part of the system under test, on dedicated threads or on those of the bench.

use anyhow::Result;
use std::net::Ipv4Addr;
use tallystone_serving::{Host, Running};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};

/// A running part, and its threads.
pub(crate) struct OwnThreads<T> {
    pub(crate) part: T,
    /// `None`: it runs on the threads of the bench.
    runtime: Option<Runtime>,
}

impl<T: Send + 'static> OwnThreads<T> {
    /// Starts a part on this many dedicated threads with this name; 0: on those of the bench.
    pub(crate) async fn start(
        name: &str,
        threads: usize,
        start: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<OwnThreads<T>> {
        let runtime = match threads {
            0 => None,
            n => Some(Builder::new_multi_thread().worker_threads(n).thread_name(name).enable_all().build()?),
        };
        let handle = runtime.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone());
        match handle.spawn(start).await? {
            Ok(part) => Ok(OwnThreads { part, runtime }),
            Err(error) => {
                runtime.into_iter().for_each(Runtime::shutdown_background);
                Err(error.context(format!("the {name} did not start")))
            }
        }
    }

    /// Stops the part, then its threads.
    pub(crate) async fn stop(self, stop: impl AsyncFnOnce(T) -> Result<()>) -> Result<()> {
        let stopped = stop(self.part).await;
        self.runtime.into_iter().for_each(Runtime::shutdown_background);
        stopped
    }
}

/// Serves a host on a free port of the loopback address.
pub(crate) async fn serve(host: Host) -> Result<Running> {
    Ok(Running::start(host, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)?)
}
