//! Work of a process that is not the answer to a call: a relay, an indexer, rollups, pruning.

use crate::dedicated_thread;
use futures::future::{BoxFuture, FutureExt, TryFutureExt};
use std::fmt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// One background task. It runs on a dedicated thread until it ends or its token is cancelled.
pub struct BackgroundTask {
    name: &'static str,
    run: Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, Result<(), String>> + Send>,
}

impl BackgroundTask {
    /// A task. `name` becomes the name of its thread; `run` receives the token whose cancellation stops it.
    pub fn new<F>(name: &'static str, run: impl FnOnce(CancellationToken) -> F + Send + 'static) -> BackgroundTask
    where
        F: Future<Output = ()> + Send + 'static,
    {
        BackgroundTask { name, run: Box::new(|stopping| Box::pin(run(stopping).map(Ok))) }
    }

    /// A task that can fail; its failure ends the process that it belongs to.
    pub fn fallible<F, E>(
        name: &'static str,
        run: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) -> BackgroundTask
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display,
    {
        let run = move |stopping| run(stopping).map_err(move |error| format!("{name}: {error}"));
        BackgroundTask { name, run: Box::new(|stopping| Box::pin(run(stopping))) }
    }
}

impl fmt::Debug for BackgroundTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackgroundTask").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The background tasks of a process that have not ended yet. Dropped, it drops them.
#[derive(Debug, Default)]
pub struct BackgroundTasks {
    running: JoinSet<Result<(), String>>,
}

impl BackgroundTasks {
    /// Starts these tasks; cancelling `stopping` stops all of them.
    pub fn start(tasks: impl IntoIterator<Item = BackgroundTask>, stopping: &CancellationToken) -> BackgroundTasks {
        let start = |task: BackgroundTask| dedicated_thread(task.name, (task.run)(stopping.clone()));
        BackgroundTasks { running: tasks.into_iter().map(start).collect() }
    }

    /// Waits for a task to fail or panic, and returns why. A process must not go on without a task: without a relay, the
    /// outboxes would fill.
    pub async fn failed(&mut self) -> String {
        while let Some(ended) = self.running.join_next().await {
            match ended {
                Ok(Ok(())) => {}
                Ok(Err(why)) => return why,
                Err(panic) => return panic.to_string(),
            }
        }
        std::future::pending().await
    }

    /// Waits until all tasks have ended. Failures are logged: the process stops anyway.
    pub async fn ended(&mut self) {
        while let Some(ended) = self.running.join_next().await {
            if let Ok(Err(why)) = ended {
                tracing::warn!("a background task has failed while it stopped: {why}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_stop_when_their_token_is_cancelled() {
        let stopping = CancellationToken::new();
        let until_stopped = |name| BackgroundTask::new(name, |stopping| async move { stopping.cancelled().await });
        let mut tasks = BackgroundTasks::start([until_stopped("one"), until_stopped("two")], &stopping);
        stopping.cancel();
        tasks.ended().await;
    }

    #[tokio::test]
    async fn failures_and_panics_are_reported_and_a_plain_end_is_not() {
        let plain = || BackgroundTask::new("plain", |_| async {});
        let panics = BackgroundTask::new("panics", |_| async { panic!("out of luck") });
        let fails = BackgroundTask::fallible("fails", |_| async { Err("out of disk") });
        let token = CancellationToken::new();
        assert!(BackgroundTasks::start([plain(), panics], &token).failed().await.contains("panic"));
        assert_eq!(BackgroundTasks::start([plain(), fails], &token).failed().await, "fails: out of disk");
    }
}
