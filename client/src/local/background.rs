//! The task that pushes and pulls, and the task that writes the cells to disk.

use super::folder::Folder;
use super::pull::pull;
use super::push::Pusher;
use super::service::Service;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

/// What a caller waits for.
pub(super) enum Request {
    Push(ReplySender),
    Pull(ReplySender),
    /// Pushes, and ends the task.
    Close(ReplySender),
}

/// Where the result goes: a text says what failed.
pub(super) type ReplySender = oneshot::Sender<Result<(), String>>;

/// Pushes and pulls until it is closed. One at a time: a pull then knows which adds its counts have. `has_rest`: a process before this one
/// has left something to push.
pub(super) async fn run<S: Service>(
    folder: Arc<Folder>,
    service: Arc<S>,
    mut pusher: Pusher<S>,
    has_rest: bool,
    mut requests: mpsc::Receiver<Request>,
) {
    let mut push_tick = ticks(folder.options.push_interval_ms);
    let mut next_pull = Instant::now() + jittered(folder.options.pull_interval_ms);
    if has_rest {
        // A failure is in the statistics.
        drop(pusher.round().await);
    }
    loop {
        // Replies and results are dropped where no caller waits: they are in the statistics.
        tokio::select! {
            request = requests.recv() => match request {
                Some(Request::Push(reply)) => drop(reply.send(pusher.round().await)),
                Some(Request::Pull(reply)) => {
                    let pulled = pull(&folder, &*service, pusher.delay(), &pusher.pushes, &mut pusher.types).await;
                    drop(reply.send(pulled));
                }
                Some(Request::Close(reply)) => {
                    let result = pusher.round().await;
                    drop(folder);
                    // A log waits a moment for its client to end.
                    drop(spawn_blocking(move || drop(pusher)).await);
                    drop(reply.send(result));
                    return;
                }
                None => return,
            },
            _ = push_tick.tick() => drop(pusher.round().await),
            () = sleep_until(next_pull) => {
                drop(pull(&folder, &*service, pusher.delay(), &pusher.pushes, &mut pusher.types).await);
                next_pull = Instant::now() + jittered(folder.options.pull_interval_ms);
            }
        }
    }
}

/// Writes the cells to disk at an interval, until the other end of `closing` is dropped: when this returns, no write is under way. A
/// push that waits for the service does not hold it up.
pub(super) async fn sync(folder: Arc<Folder>, mut closing: oneshot::Receiver<()>) {
    let mut tick = ticks(folder.options.sync_interval_ms);
    loop {
        tokio::select! {
            _ = &mut closing => return,
            _ = tick.tick() => {}
        }
        let folder = folder.clone();
        // A failure is in the statistics; the next tick tries again.
        if spawn_blocking(move || drop(folder.sync())).await.is_err() {
            return;
        }
    }
}

/// The first one after the first interval.
fn ticks(interval_ms: u64) -> Interval {
    let period = Duration::from_millis(interval_ms);
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Longer or shorter by at most a tenth.
fn jittered(interval_ms: u64) -> Duration {
    let random = uuid::Uuid::new_v4().as_u64_pair().1 % 201;
    Duration::from_millis((interval_ms.saturating_mul(900 + random) / 1_000).max(1))
}
