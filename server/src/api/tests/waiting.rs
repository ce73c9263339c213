//! Long polls (Q18): waiting callers are woken, disconnected callers lease nothing, and the server does not poll.

use super::{because, refused};
use crate::testing::*;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tallystone_model::{NewMessage, Shard, Store};
use tallystone_proto::queue::v1 as pb;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status};

type Waiting = JoinHandle<Result<Vec<pb::Lease>, Status>>;

fn wait(server: &TestServer, request: pb::DequeueRequest) -> Waiting {
    let mut queue = server.queue.clone();
    tokio::spawn(async move { Ok(queue.dequeue(request).await?.into_inner().leases) })
}

async fn ids(waiting: Waiting) -> Vec<String> {
    let leases = tokio::time::timeout(SOON, waiting).await.expect("woken").unwrap().unwrap();
    leases.into_iter().map(|lease| lease.id).collect()
}

fn shard() -> Shard {
    shard_of("q")
}

fn domain(id: &str) -> NewMessage {
    NewMessage::new(tallystone_model::MessageId::parse("id", id).unwrap(), 0)
}

#[tokio::test]
async fn q18_waiters_are_woken_by_an_enqueue_here_in_order_of_arrival() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let mut waiting = Vec::new();
    for count in 1..=3 {
        waiting.push(wait(&server, dequeue("q", 1, 300_000)));
        server.store.called("dequeue", count).await;
    }
    for id in ["a", "b", "c"] {
        server.enqueue("q", &[id]).await;
        assert_eq!(ids(waiting.remove(0)).await, [id]);
    }
}

#[tokio::test]
async fn q18_waiters_are_woken_by_another_server() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let waiting = wait(&server, dequeue("q", 1, 300_000));
    server.store.called("dequeue", 1).await;
    // Directly into the store: only the store's notification reaches this server's lane.
    server.store.oracle.enqueue(&shard(), vec![domain("a")]).await.unwrap();
    assert_eq!(ids(waiting).await, ["a"]);
}

#[tokio::test]
async fn q18_a_notification_that_comes_while_the_dequeue_is_in_the_store_is_not_lost() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    server.store.exit.send_replace(false);
    let waiting = wait(&server, dequeue("q", 1, 300_000));
    // It has found nothing, and its answer is on the way, when the message comes.
    server.store.called("dequeue", 1).await;
    while server.store.oracle.depth(&shard(), None).await.unwrap().pending == 0 {
        server.store.oracle.enqueue(&shard(), vec![domain("a")]).await.unwrap();
    }
    server.store.exit.send_replace(true);
    assert_eq!(ids(waiting).await, ["a"]);
}

#[tokio::test]
async fn q18_a_due_window_wakes_and_one_release_wakes() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let later = pb::NewMessage { invisibility_ms: Some(50), ..message("a") };
    let request = pb::EnqueueRequest { queue: "q".to_owned(), messages: vec![later] };
    server.queue.enqueue(request).await.unwrap();
    let waiting = wait(&server, dequeue("q", 1, 300_000));
    server.store.called("dequeue", 1).await;
    server.store.clock_ms.fetch_add(50, Ordering::SeqCst);
    let lease = tokio::time::timeout(SOON, waiting).await.expect("woken by its timer").unwrap().unwrap().remove(0);

    let waiting = wait(&server, dequeue("q", 1, 300_000));
    server.store.called("dequeue", server.store.calls("dequeue") + 1).await;
    let (id, fencing_token) = (lease.id, lease.fencing_token);
    let release = pb::LeaseRelease { id, fencing_token, delay_ms: Some(0), ..Default::default() };
    let request = pb::ReleaseRequest { queue: "q".to_owned(), releases: vec![release] };
    server.queue.release(request).await.unwrap();
    assert_eq!(ids(waiting).await, ["a"]);
}

#[tokio::test]
async fn q18_waiters_with_filters_are_woken_by_what_passes_only() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let request = |value| pb::DequeueRequest { filters: vec![filter("k", value)], ..dequeue("q", 1, 300_000) };
    let (one, two) = (wait(&server, request("1")), wait(&server, request("2")));
    server.store.called("dequeue", 1).await;
    let tagged = |id, value: &str| pb::NewMessage { metadata: filter("k", value).equals, ..message(id) };
    for (id, value) in [("none", "0"), ("second", "2"), ("first", "1")] {
        let request = pb::EnqueueRequest { queue: "q".to_owned(), messages: vec![tagged(id, value)] };
        server.queue.enqueue(request).await.unwrap();
    }
    assert_eq!(ids(two).await, ["second"]);
    assert_eq!(ids(one).await, ["first"]);
    assert_eq!(server.depth("q").await.pending, 1);
}

#[tokio::test]
async fn q18_one_batch_wakes_as_many_as_it_can_feed() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let waiting: Vec<Waiting> = (0..50).map(|_| wait(&server, dequeue("q", 1, 300_000))).collect();
    server.store.called("dequeue", 1).await;
    let ids_sent: Vec<String> = (0..50).map(|i| format!("m{i:02}")).collect();
    server.enqueue("q", &ids_sent.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut got = Vec::new();
    for waiting in waiting {
        got.extend(ids(waiting).await);
    }
    got.sort();
    assert_eq!(got, ids_sent);
}

#[tokio::test]
async fn q18_idle_waiters_cause_no_store_calls() {
    let mut server = TestServer::start().await;
    for queue in ["q", "r"] {
        server.create(queue, pb::QueueConfig::default()).await;
    }
    let waiting: Vec<Waiting> = (0..200).map(|i| wait(&server, dequeue(["q", "r"][i % 2], 1, 400))).collect();
    for waiting in waiting {
        assert_eq!(ids(waiting).await, [] as [String; 0]);
    }
    let calls = server.store.calls("dequeue");
    assert!(calls <= 200, "{calls} calls for 200 waiters: each causes one at most");
    // A caller that comes while others wait causes one call, and wakes no other.
    assert_eq!(server.store.calls("enqueue"), 0);
}

#[tokio::test]
async fn q8_the_deadline_ends_the_wait_in_time_to_answer() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let mut request = Request::new(dequeue("q", 1, 300_000));
    request.set_timeout(Duration::from_secs(2));
    let answer = server.queue.dequeue(request).await.expect("an empty answer, not DEADLINE_EXCEEDED");
    assert_eq!(answer.into_inner().leases, []);
}

#[tokio::test]
async fn q7_a_caller_that_has_gone_leases_nothing() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    // While it waits.
    let waiting = wait(&server, dequeue("q", 1, 300_000));
    server.store.called("dequeue", 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    // The cancellation is on the same connection as the enqueue, and before it.
    server.enqueue("q", &["a"]).await;
    server.until_depth("q", |depth| depth.pending == 1 && depth.running == 0).await;
}

#[tokio::test]
async fn q7_leases_of_a_caller_that_goes_meanwhile_come_back_at_once() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a", "b"]).await;
    server.store.exit.send_replace(false);
    let plain = wait(&server, dequeue("q", 1, 0));
    server.store.called("dequeue", 1).await;
    let keyed = pb::DequeueRequest { request_id: "r".to_owned(), ..dequeue("q", 1, 0) };
    let kept = wait(&server, keyed.clone());
    server.store.called("dequeue", 2).await;
    for gone in [plain, kept] {
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
    }
    // The server has seen both cancellations when it answers this, behind them on the connection.
    assert!(server.queue.dequeue(pb::DequeueRequest::default()).await.is_err());
    server.store.exit.send_replace(true);
    server.until_depth("q", |depth| depth.pending == 1 && depth.running == 1).await;
    assert_eq!(ids(wait(&server, keyed)).await, ["b"], "Q10: the retry gets what the first call leased");
}

#[tokio::test]
async fn q2_pausing_answers_who_comes_and_resuming_wakes() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let waiting = wait(&server, dequeue("q", 1, 300_000));
    server.store.called("dequeue", 1).await;
    let request = pb::UpdateQueueRequest {
        name: "q".to_owned(),
        config: Some(pb::QueueConfig { dequeue_blocked: Some(true), ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["dequeue_blocked".to_owned()] }),
    };
    server.admin.update_queue(request).await.unwrap();
    let paused = because(Code::FailedPrecondition, "DEQUEUE_BLOCKED");
    assert_eq!(refused(tokio::time::timeout(SOON, waiting).await.expect("an answer").unwrap()), paused);
}

#[tokio::test]
async fn deleting_the_queue_answers_who_waits() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let waiting = wait(&server, dequeue("q", 1, 300_000));
    server.store.called("dequeue", 1).await;
    server.admin.delete_queue(pb::DeleteQueueRequest { name: "q".to_owned(), force: false }).await.unwrap();
    let gone = because(Code::NotFound, "QUEUE_NOT_FOUND");
    assert_eq!(refused(tokio::time::timeout(SOON, waiting).await.expect("an answer").unwrap()), gone);
}

/// Producers through this server and past it, consumers that wait: every message is delivered. Nothing falls due by itself
/// (the store's clock does not advance), so one lost wake-up would leave a message behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q18_no_wake_up_is_lost_under_load() {
    load(|_| SOON, false).await;
}

/// The same with answers that take their time: more happens while a dequeue is in the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q18_no_wake_up_is_lost_when_answers_are_slow() {
    load(|_| SOON, true).await;
}

/// The same while every fourth consumer goes all the time, in the middle of whatever happens then. What was leased to
/// one whose answer was on the way lapses, so here the clock runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q7_callers_that_go_under_load_cost_no_message() {
    load(|n| if n % 4 == 0 { Duration::from_millis(3) } else { SOON }, true).await;
}

const MESSAGES: usize = 4_000;

/// A lapsed lease is granted again at once.
fn no_backoff() -> pb::RetryBackoff {
    pb::RetryBackoff { kind: pb::retry_backoff::Kind::None.into(), ..Default::default() }
}

async fn load(patience: fn(i32) -> Duration, slow: bool) {
    let mut server = TestServer::start().await;
    server.store.slow.store(slow, Ordering::SeqCst);
    let config = pb::QueueConfig {
        terminal_retention_ms: Some(0),
        max_attempts: Some(1_000),
        lease_ms: Some(2_000),
        retry_backoff: Some(no_backoff()),
        ..Default::default()
    };
    server.create("q", config).await;
    let done = CancellationToken::new();
    let completed = Arc::new(Mutex::new(BTreeSet::new()));
    let mut tasks = JoinSet::new();
    for n in 0..32 {
        let (mut queue, done, completed) = (server.queue.clone(), done.clone(), completed.clone());
        tasks.spawn(async move {
            while !done.is_cancelled() {
                let leases = tokio::select! {
                    answer = queue.dequeue(dequeue("q", 1 + n % 3, 300_000)) => answer.unwrap().into_inner().leases,
                    () = tokio::time::sleep(patience(n)) => continue,
                    () = done.cancelled() => return,
                };
                let leases = leases.into_iter().map(|l| pb::LeaseRef {
                    id: l.id,
                    fencing_token: l.fencing_token,
                    ..Default::default()
                });
                let request = pb::CompleteRequest { queue: "q".to_owned(), leases: leases.collect() };
                for result in queue.complete(request).await.unwrap().into_inner().results {
                    let mut completed = completed.lock().unwrap();
                    if let Some(pb::transition_result::Outcome::Ok(_)) = result.outcome {
                        assert!(completed.insert(result.id), "completed twice");
                    }
                    if completed.len() == MESSAGES {
                        done.cancel();
                    }
                }
            }
        });
    }
    let mut here = server.queue.clone();
    tasks.spawn(async move {
        for i in 0..MESSAGES / 2 {
            let request = pb::EnqueueRequest { queue: "q".to_owned(), messages: vec![message(&format!("h{i}"))] };
            here.enqueue(request).await.unwrap();
        }
    });
    let store = server.store.clone();
    tasks.spawn(async move {
        for i in 0..MESSAGES / 2 {
            store.oracle.enqueue(&shard(), vec![domain(&format!("b{i}"))]).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let runs = patience(0) < SOON;
    let (store, begun, clock_done) = (server.store.clone(), std::time::Instant::now(), done.clone());
    tasks.spawn(async move {
        let begun_ms = store.clock_ms.load(Ordering::SeqCst);
        while runs && !clock_done.is_cancelled() {
            store.clock_ms.store(begun_ms + begun.elapsed().as_millis() as u64, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let all = tokio::time::timeout(Duration::from_secs(60), done.cancelled()).await;
    assert!(all.is_ok(), "{} of {MESSAGES} came through", completed.lock().unwrap().len());
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}
