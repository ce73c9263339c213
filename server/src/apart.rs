//! A task on a thread of its own. A relay decodes and encodes thousands of events at a stretch, and the runtime has a
//! thread or two: on one of them, every call of the queue would wait for it, and Redis with them.

use futures::future::BoxFuture;
use std::panic::resume_unwind;
use std::thread;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Runs the task to its end; its timers and connections are the present runtime's. Dropped, it has the task dropped,
/// too, and does not wait for that.
///
/// # Panics
/// As the task does; and where there can be no more threads.
pub(crate) async fn apart(name: &str, task: BoxFuture<'static, ()>) {
    let (runtime, given_up) = (Handle::current(), CancellationToken::new());
    let _give_up_when_dropped = given_up.clone().drop_guard();
    let (ending, ended) = oneshot::channel::<()>();
    let run = move || {
        let _ending = ending;
        runtime.block_on(given_up.run_until_cancelled_owned(task));
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run).expect("a thread");
    // Nothing is ever sent: it ends when the thread lets go of it, by a panic too.
    let _ = ended.await;
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::time::Duration;

    #[tokio::test]
    async fn it_is_another_thread_with_the_same_timers() {
        let here = thread::current().id();
        let task = async move {
            assert_ne!(thread::current().id(), here);
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        apart("test", task.boxed()).await;
    }

    #[tokio::test]
    async fn a_panic_is_the_callers() {
        let ended = tokio::spawn(apart("test", async { panic!("of the task") }.boxed())).await;
        assert!(ended.unwrap_err().is_panic());
    }

    #[tokio::test]
    async fn whoever_drops_it_drops_the_task() {
        let dropped = CancellationToken::new();
        let guard = dropped.clone().drop_guard();
        let task = async move {
            let _guard = guard;
            std::future::pending::<()>().await;
        };
        let running = tokio::spawn(apart("test", task.boxed()));
        tokio::task::yield_now().await;
        running.abort();
        dropped.cancelled().await;
    }
}
