//! A future on a dedicated thread.

use futures::future::BoxFuture;
use std::panic::resume_unwind;
use std::thread;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Runs the future to its end on a new thread and returns its output; its timers and connections are those of the current runtime.
///
/// A relay decodes and encodes thousands of events without a pause. The runtime has one or two threads: on one of them,
/// the relay would delay every call of the queue.
///
/// When the caller drops the returned future, the thread drops `task` at its next await point. The caller does not wait
/// for that.
///
/// # Panics
/// When `task` panics, and when the system cannot start another thread.
pub async fn dedicated_thread<T: Send + 'static>(name: &str, task: BoxFuture<'static, T>) -> T {
    let (runtime, dropped) = (Handle::current(), CancellationToken::new());
    let _cancel_when_dropped = dropped.clone().drop_guard();
    let (ending, ended) = oneshot::channel::<()>();
    let run = move || {
        let _ending = ending;
        runtime.block_on(dropped.run_until_cancelled_owned(task))
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread");
    // Nothing is ever sent: the channel closes when the thread ends, also by a panic.
    let _ = ended.await;
    let done = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    done.expect("cancelled only when this future is dropped")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::time::Duration;

    #[tokio::test]
    async fn a_task_runs_on_another_thread_with_the_same_timers() {
        let here = thread::current().id();
        let task = async move {
            assert_ne!(thread::current().id(), here);
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        dedicated_thread("test", task.boxed()).await;
    }

    #[tokio::test]
    async fn a_panic_reaches_the_caller() {
        let ended = tokio::spawn(dedicated_thread::<()>("test", async { panic!("of the task") }.boxed())).await;
        assert!(ended.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn dropping_the_future_drops_the_task() {
        let dropped = CancellationToken::new();
        let guard = dropped.clone().drop_guard();
        let task = async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        };
        let running = tokio::spawn(dedicated_thread("test", task.boxed()));
        tokio::task::yield_now().await;
        running.abort();
        dropped.cancelled().await;
    }
}
