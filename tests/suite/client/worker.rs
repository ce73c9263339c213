//! The worker's guarantees.

use crate::client::harness::{World, soon, until};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;
use tallystone_client::{
    Backoff, Cancellation, Client, Dequeue, Failure, Filter, Lease, LeaseRef, Lost, NewMessage, Outcome, QueueConfig,
    State, Success, Worker, WorkerStats,
};
use tokio::sync::{Notify, Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// Puts messages into a queue whose failed messages run again at once: the store's clock does not advance.
async fn fill(client: &Client, queue: &str, ids: impl IntoIterator<Item = &str>) {
    let config = QueueConfig { retry_backoff: Some(Backoff::NONE), ..QueueConfig::simple() };
    client.create_queue(queue, config).await.unwrap();
    let messages = ids.into_iter().map(|id| NewMessage::new(id, id.to_owned())).collect();
    for result in client.enqueue(queue, messages).await.unwrap() {
        result.unwrap();
    }
}

/// A worker that runs until it is stopped.
struct Running {
    worker: Worker,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<tallystone_client::Result<WorkerStats>>,
}

impl Running {
    fn start<F, Fut, T>(worker: Worker, handler: F) -> Self
    where
        F: FnOnce(Lease) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
        T: Into<Success> + 'static,
    {
        let (stop, stopped) = oneshot::channel::<()>();
        let running = worker.clone();
        let ended = tokio::spawn(async move { running.run_until(async { drop(stopped.await) }, handler).await });
        Running { worker, stop, ended }
    }

    /// Its handler signals that it has begun, and succeeds when the gate opens.
    fn gated(worker: Worker, begun: &Arc<Notify>, gate: &Arc<Notify>) -> Self {
        let (begun, gate) = (begun.clone(), gate.clone());
        Running::start(worker, async move |_| {
            begun.notify_one();
            gate.notified().await;
            Ok(())
        })
    }

    async fn stop(self) -> WorkerStats {
        drop(self.stop);
        soon("stopped", self.ended).await.unwrap().unwrap()
    }
}

async fn runs_every_message_within_its_concurrency(world: World) {
    let ids: Vec<String> = (0..1_000).map(|n| n.to_string()).collect();
    fill(&world.client, "q", ids.iter().map(String::as_str)).await;
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let worker = world.worker("q").concurrency(7);
    let (at_once, peak) = (running, most.clone());
    let worker = Running::start(worker, move |_| {
        let (at_once, peak) = (at_once.clone(), peak.clone());
        async move {
            peak.fetch_max(at_once.fetch_add(1, SeqCst) + 1, SeqCst);
            tokio::task::yield_now().await;
            at_once.fetch_sub(1, SeqCst);
            Ok(())
        }
    });
    until("all completed", || worker.worker.stats().completed == 1_000).await;
    let stats = worker.stop().await;
    assert_eq!(stats, WorkerStats { leased: 1_000, completed: 1_000, ..WorkerStats::default() });
    assert!((1..=7).contains(&most.load(SeqCst)), "{most:?}");
    assert_eq!(world.client.depth("q", None).await.unwrap().completed, 1_000);
}

/// A connection pool, as handlers capture it: its clones share what was saved.
#[derive(Clone)]
struct Pool(mpsc::UnboundedSender<String>);

impl Pool {
    async fn save(&self, id: &str) -> Result<(), mpsc::error::SendError<String>> {
        tokio::task::yield_now().await;
        self.0.send(id.to_owned())
    }
}

async fn a_handler_is_a_closure_with_captured_state(world: World) {
    fill(&world.client, "q", ["a", "b"]).await;
    let (saved, mut ids) = mpsc::unbounded_channel();
    let pool = Pool(saved);
    let mut next = async || soon("saved", ids.recv()).await.unwrap();
    let worker = world.worker("q");

    let captured = pool.clone();
    let borrowing = Running::start(worker.clone(), async move |lease: Lease| {
        captured.save(&lease.id).await?;
        Ok(())
    });
    assert_eq!([next().await, next().await], ["a", "b"]);
    borrowing.stop().await;

    fill(&world.client, "q", ["c"]).await;
    let moving = Running::start(worker, move |lease: Lease| async move { Ok(pool.save(&lease.id).await?) });
    assert_eq!(next().await, "c");
    assert_eq!(moving.stop().await.completed, 3);
}

async fn failures_and_panics_release_with_their_reason(world: World) {
    fill(&world.client, "q", ["fails", "panics", "later"]).await;
    let worker = Running::start(world.worker("q").concurrency(3), |lease| async move {
        match lease.id.as_str() {
            "fails" if lease.attempt == 1 => Err("not\ntoday")?,
            "panics" if lease.attempt == 1 => panic!("ouch"),
            "later" => return Err(Failure::new("busy").retry_after_ms(60_000)),
            _ => {}
        }
        Ok(())
    });
    until("settled", || worker.worker.stats().completed == 2 && worker.worker.stats().released == 3).await;
    worker.stop().await;
    let message = async |id| world.client.get_message("q", id).await.unwrap();
    assert_eq!(message("fails").await.reason, "not today");
    assert_eq!(message("panics").await.reason, "the handler panicked: ouch");
    let later = message("later").await;
    assert_eq!((later.state, later.due_ms - later.state_since_ms), (State::Invisible, 60_000));
}

async fn q23_q29_a_handler_says_what_happens_to_its_message(world: World) {
    fill(&world.client, "q", ["done", "broken", "unwanted", "too much"]).await;
    let handler = async move |lease: Lease| match lease.id.as_str() {
        "done" => Ok("a result".to_owned()),
        "broken" => {
            let number: Result<u64, _> = lease.id.parse();
            let number = number.map_err(|error| Failure::from(error).never_again())?;
            Ok(number.to_string())
        }
        "unwanted" => Err(Failure::new("flight is off").cancel()),
        _ => Ok("x".repeat(1_025)),
    };
    let worker = Running::start(world.worker("q").concurrency(4), handler);
    until("settled", || worker.worker.stats().completed == 1 && worker.worker.stats().released == 3).await;
    worker.stop().await;
    for (id, state, reason, result) in [
        ("done", State::Completed, "", "a result"),
        ("broken", State::Errored, "invalid digit found in string", ""),
        ("unwanted", State::Canceled, "flight is off", ""),
        ("too much", State::Errored, "the result of the work has 1025 bytes; the maximum is 1024", ""),
    ] {
        let message = world.client.get_message("q", id).await.unwrap();
        assert_eq!((message.state, message.reason.as_str(), &message.result[..]), (state, reason, result.as_bytes()));
        assert_eq!(message.attempts, 1);
    }
}

async fn q11_a_long_handler_keeps_its_lease(world: World) {
    fill(&world.client, "q", ["long"]).await;
    let worker = world.worker("q").lease_ms(1_000);
    let stats = worker.clone();
    let worker = Running::start(worker, move |_| {
        let stats = stats.clone();
        async move {
            until("extended four times", || stats.stats().extended >= 4).await;
            Ok(())
        }
    });
    until("completed", || worker.worker.stats().completed == 1).await;
    let stats = worker.stop().await;
    assert_eq!((stats.leased, stats.lost), (1, 0));
}

/// Sends its text when it is dropped.
struct Dropped(mpsc::UnboundedSender<String>, String);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(std::mem::take(&mut self.1));
    }
}

type Endless = std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

/// A handler that never ends; the ids of the messages that it starts, and of those whose handler was dropped.
fn endless()
-> (impl FnOnce(Lease) -> Endless + Clone + Send, mpsc::UnboundedReceiver<String>, mpsc::UnboundedReceiver<String>) {
    let (begun, begins) = mpsc::unbounded_channel();
    let (dropped, drops) = mpsc::unbounded_channel();
    let handler = move |lease: Lease| {
        let _ = begun.send(lease.id.clone());
        let guard = Dropped(dropped.clone(), lease.id);
        let endless = async move {
            let _guard = guard;
            std::future::pending().await
        };
        Box::pin(endless) as Endless
    };
    (handler, begins, drops)
}

async fn q7_a_forced_cancel_drops_the_handler_at_once(world: World) {
    fill(&world.client, "q", ["canceled", "stays"]).await;
    let (handler, mut begins, mut drops) = endless();
    let (report, mut outcomes) = mpsc::unbounded_channel();
    // Its leases need no extension for an hour.
    let worker = world.worker("q").concurrency(2).lease_ms(3 * 3_600_000);
    let worker = worker.on_outcome(move |lease, outcome| drop(report.send((lease.id.clone(), outcome.clone()))));
    let worker = Running::start(worker, handler);
    for _ in 0..2 {
        soon("begun", begins.recv()).await.unwrap();
    }
    world.client.cancel("q", vec![Cancellation::of("canceled").force()]).await.unwrap();
    assert_eq!(soon("dropped", drops.recv()).await.unwrap(), "canceled");
    let (id, outcome) = soon("reported", outcomes.recv()).await.unwrap();
    assert_eq!((id.as_str(), outcome), ("canceled", Outcome::Lost(Lost::Revoked)));
    fill(&world.client, "q", ["next"]).await;
    assert_eq!(soon("begun", begins.recv()).await.unwrap(), "next", "the worker has room again");
    assert_eq!(worker.worker.stats().lost, 1);
}

async fn q23_a_purge_and_a_forced_deletion_drop_the_handler_at_once(world: World) {
    fill(&world.client, "q", ["purged"]).await;
    let (handler, mut begins, mut drops) = endless();
    let (report, mut outcomes) = mpsc::unbounded_channel();
    // Its leases need no extension for an hour.
    let worker = world.worker("q").lease_ms(3 * 3_600_000);
    let worker = worker.on_outcome(move |lease, outcome| drop(report.send((lease.id.clone(), outcome.clone()))));
    let _worker = Running::start(worker, handler);
    soon("begun", begins.recv()).await.unwrap();
    assert_eq!(world.client.purge_queue("q", true).await.unwrap().purged, 1);
    assert_eq!(soon("dropped", drops.recv()).await.unwrap(), "purged");
    fill(&world.client, "q", ["deleted"]).await;
    soon("begun", begins.recv()).await.unwrap();
    world.client.delete_queue("q", true).await.unwrap();
    assert_eq!(soon("dropped", drops.recv()).await.unwrap(), "deleted");
    for id in ["purged", "deleted"] {
        let (of, outcome) = soon("reported", outcomes.recv()).await.unwrap();
        assert_eq!((of.as_str(), outcome), (id, Outcome::Lost(Lost::Revoked)));
    }
}

async fn q11_a_lost_lease_drops_the_handler(world: World) {
    fill(&world.client, "q", ["taken"]).await;
    let (handler, mut begins, mut drops) = endless();
    let (report, mut outcomes) = mpsc::unbounded_channel();
    let worker = world.worker("q").lease_ms(1_000).on_outcome(move |lease, outcome| {
        let _ = report.send((lease.id.clone(), outcome.clone()));
    });
    let worker = Running::start(worker, handler);
    soon("begun", begins.recv()).await.unwrap();
    // Another client uses its fencing token.
    let fencing_token = world.client.get_message("q", "taken").await.unwrap().fencing_token;
    let lease = LeaseRef { id: "taken".to_owned(), fencing_token };
    world.client.complete("q", vec![lease.into()]).await.unwrap().remove(0).unwrap();
    assert_eq!(soon("dropped", drops.recv()).await.unwrap(), "taken");
    let (id, outcome) = soon("reported", outcomes.recv()).await.unwrap();
    assert!(matches!(&outcome, Outcome::Lost(Lost::Refused(refused)) if refused.is_lease_lost()), "{outcome:?}");
    assert_eq!(id, "taken");
    // The worker has room again.
    fill(&world.client, "q", ["next"]).await;
    assert_eq!(soon("begun", begins.recv()).await.unwrap(), "next");
    assert_eq!(worker.worker.stats().lost, 1);
}

async fn a_stop_waits_for_handlers_and_releases_the_others(world: World) {
    fill(&world.client, "q", ["ends", "endless", "untouched"]).await;
    let (begun, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Notify::new()));
    let worker = world.worker("q").concurrency(2).grace(Duration::from_millis(300));
    let (signal, open) = (begun.clone(), gate.clone());
    let worker = Running::start(worker, move |lease| {
        let (signal, open) = (signal.clone(), open.clone());
        async move {
            signal.add_permits(1);
            if lease.id == "endless" {
                std::future::pending::<()>().await;
            }
            open.notified().await;
            Ok(())
        }
    });
    soon("both begun", begun.acquire_many(2)).await.unwrap().forget();
    let Running { stop, ended, .. } = worker;
    drop(stop);
    gate.notify_one();
    let stats = soon("stopped", ended).await.unwrap().unwrap();
    assert_eq!(stats, WorkerStats { leased: 2, completed: 1, released: 1, ..WorkerStats::default() });
    let message = async |id| world.client.get_message("q", id).await.unwrap();
    assert_eq!(message("ends").await.state, State::Completed);
    let endless = message("endless").await;
    assert_eq!((endless.state, endless.reason.as_str()), (State::Pending, "the worker stopped"));
    assert_eq!(message("untouched").await.attempts, 0);
}

async fn a_broken_stream_loses_no_work(world: World) {
    fill(&world.client, "q", ["before"]).await;
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = Running::gated(world.worker("q"), &begun, &gate);
    soon("begun", begun.notified()).await;
    world.wire.cut();
    until("opened again", || worker.worker.stats().reconnects == 1).await;
    // The handler has continued; its result is sent on the new stream.
    gate.notify_one();
    until("completed", || worker.worker.stats().completed == 1).await;
    fill(&world.client, "q", ["after"]).await;
    gate.notify_one();
    until("completed", || worker.worker.stats().completed == 2).await;
    let stats = worker.stop().await;
    assert_eq!((stats.leased, stats.lost, stats.released), (2, 0, 0));
}

async fn a_stop_does_not_wait_for_servers_that_are_gone(world: World) {
    fill(&world.client, "q", ["m"]).await;
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    // Calls are repeated for 30 s.
    let client = world.client.with_call_timeout(Duration::from_millis(500));
    let worker = Running::gated(Worker::new(client, "q").shared_stream(world.shared_streams), &begun, &gate);
    soon("begun", begun.notified()).await;
    world.wire.shut();
    soon("every connection is broken", world.wire.until_silent()).await;
    gate.notify_one();
    drop(worker.stop);
    let ended = timeout(Duration::from_secs(15), worker.ended).await;
    let stats = ended.expect("it gives up").unwrap().unwrap();
    assert_eq!((stats.leased, stats.completed), (1, 0));
}

async fn release_on_close_releases_the_leases(world: World) {
    fill(&world.client, "q", ["m"]).await;
    let (handler, mut begins, mut drops) = endless();
    let worker = world.worker("q").name("one").release_on_close(true);
    let one = Running::start(worker, handler);
    soon("begun", begins.recv()).await.unwrap();
    one.ended.abort();
    soon("dropped", drops.recv()).await.unwrap();
    // The store's clock does not advance, so the lease has not expired.
    let again = world.client.dequeue(Dequeue::new("q").wait_ms(20_000)).await.unwrap();
    assert_eq!((again[0].id.as_str(), again[0].attempt), ("m", 2));
}

async fn without_release_on_close_the_lease_expires(world: World) {
    fill(&world.client, "q", ["m"]).await;
    let (handler, mut begins, mut drops) = endless();
    let one = Running::start(world.worker("q").lease_ms(1_000), handler);
    soon("begun", begins.recv()).await.unwrap();
    one.ended.abort();
    soon("dropped", drops.recv()).await.unwrap();
    assert!(world.client.dequeue(Dequeue::new("q")).await.unwrap().is_empty());
    world.advance_ms(1_000);
    assert_eq!(world.client.dequeue(Dequeue::new("q")).await.unwrap()[0].attempt, 2);
}

async fn q8_a_worker_runs_only_what_passes_its_filters(world: World) {
    world.client.create_queue("q", QueueConfig::simple()).await.unwrap();
    let message = |id: &str, color: &str| NewMessage::new(id, "").metadata("color", color);
    let messages = vec![message("1", "red"), message("2", "green"), message("3", "blue")];
    world.client.enqueue("q", messages).await.unwrap();
    let worker = world.worker("q").filter(Filter::equals("color", "red")).filter(Filter::equals("color", "blue"));
    let worker = Running::start(worker, |_| async { Ok(()) });
    until("completed", || worker.worker.stats().completed == 2).await;
    worker.stop().await;
    assert_eq!(world.client.get_message("q", "2").await.unwrap().state, State::Pending);
}

async fn a_worker_of_an_unknown_queue_fails(world: World) {
    let worker = world.worker("nowhere");
    let error = soon("refused", worker.run(|_| async { Ok(()) })).await.unwrap_err();
    assert_eq!(error.refused().unwrap().reason, "QUEUE_NOT_FOUND");
}

/// More workers than one stream takes, and connections that break: every message is completed, and one worker's end leaves
/// the others alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_workers_share_streams_that_break() {
    const WORKERS: usize = 1_100;
    let world = World::new().await.with_shared_streams();
    let queue = |number: usize| format!("q{number}");
    let fill_all = async |id: &'static str| {
        let mut fills: JoinSet<()> = (0..WORKERS)
            .map(|number| {
                let client = world.client.clone();
                async move { fill(&client, &queue(number), [id]).await }
            })
            .collect();
        while let Some(filled) = fills.join_next().await {
            filled.unwrap();
        }
    };
    fill_all("before").await;
    let workers = (0..WORKERS).map(|number| Running::start(world.worker(&queue(number)), |_| async { Ok(()) }));
    let mut workers: Vec<Running> = workers.collect();
    let completed =
        |workers: &[Running], least| workers.iter().all(|running| running.worker.stats().completed >= least);
    until("all completed", || completed(&workers, 1)).await;
    let nowhere = soon("refused", world.worker("nowhere").run(|_| async { Ok(()) })).await;
    assert_eq!(nowhere.unwrap_err().refused().unwrap().reason, "QUEUE_NOT_FOUND");
    workers.remove(0).stop().await;
    world.wire.cut();
    fill_all("after").await;
    until("all completed", || completed(&workers, 2)).await;
    // Two streams broke at the same time. A worker of the first can join the second before that is known to be broken, too.
    assert!(workers.iter().all(|running| (1..=2).contains(&running.worker.stats().reconnects)));
    let mut stops: JoinSet<WorkerStats> = workers.into_iter().map(Running::stop).collect();
    while let Some(stats) = stops.join_next().await {
        let stats = stats.unwrap();
        assert_eq!((stats.leased, stats.completed, stats.lost), (2, 2, 0));
    }
}

/// Each test runs with a stream for each worker, and with one that they share.
macro_rules! on_own_and_on_shared_streams {
    ($($name:ident)*) => {
        mod own {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::client::harness::World::new().await).await;
            })*
        }
        mod shared {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(crate::client::harness::World::new().await.with_shared_streams()).await;
            })*
        }
    };
}

on_own_and_on_shared_streams! {
    runs_every_message_within_its_concurrency
    a_handler_is_a_closure_with_captured_state
    failures_and_panics_release_with_their_reason
    q23_q29_a_handler_says_what_happens_to_its_message
    q11_a_long_handler_keeps_its_lease
    q7_a_forced_cancel_drops_the_handler_at_once
    q23_a_purge_and_a_forced_deletion_drop_the_handler_at_once
    q11_a_lost_lease_drops_the_handler
    a_stop_waits_for_handlers_and_releases_the_others
    a_broken_stream_loses_no_work
    a_stop_does_not_wait_for_servers_that_are_gone
    release_on_close_releases_the_leases
    without_release_on_close_the_lease_expires
    q8_a_worker_runs_only_what_passes_its_filters
    a_worker_of_an_unknown_queue_fails
}
