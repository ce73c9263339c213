//! The Work stream: credits, results in order, rubbish, and how it ends.

use super::{because, invalid, refused, refused_item};
use crate::testing::*;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use tallystone_proto::queue::v1 as pb;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

pub(super) struct Stream {
    pub(super) send: mpsc::UnboundedSender<pb::WorkRequest>,
    receive: Streaming<pb::WorkResponse>,
}

impl Stream {
    pub(super) async fn open(server: &TestServer) -> Self {
        let (send, requests) = mpsc::unbounded_channel();
        let requests = futures::stream::unfold(requests, |mut requests| async move {
            let request = requests.recv().await?;
            Some((request, requests))
        });
        let receive = server.queue.clone().work(requests).await.unwrap().into_inner();
        Stream { send, receive }
    }

    async fn start(server: &TestServer, credits: u32, release_on_close: bool) -> Self {
        let stream = Stream::open(server).await;
        stream.send.send(pb::WorkRequest { credits, ..start("q", release_on_close) }).unwrap();
        stream
    }

    pub(super) async fn next(&mut self) -> Result<Option<pb::WorkResponse>, Status> {
        tokio::time::timeout(SOON, self.receive.message()).await.expect("a response in time")
    }

    /// Responses until this number of leases has come.
    async fn leases(&mut self, count: usize) -> Vec<pb::Lease> {
        let mut leases = Vec::new();
        while leases.len() < count {
            leases.extend(self.next().await.unwrap().unwrap().leases);
        }
        leases
    }
}

pub(super) fn start(queue: &str, release_on_close: bool) -> pb::WorkRequest {
    let (queue, worker) = (queue.to_owned(), "w".to_owned());
    let start = pb::WorkStart { queue, worker, release_on_close, ..Default::default() };
    pb::WorkRequest { start: Some(start), ..Default::default() }
}

pub(super) fn lease_ref(lease: &pb::Lease) -> pb::LeaseRef {
    pb::LeaseRef { id: lease.id.clone(), fencing_token: lease.fencing_token, ..Default::default() }
}

#[tokio::test]
async fn q7_credits_bound_what_is_pushed_and_completing_fetches_the_next() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a", "b", "c", "d"]).await;
    let mut stream = Stream::start(&server, 1, false).await;
    let a = stream.leases(1).await.remove(0);
    assert_eq!((a.id.as_str(), server.depth("q").await.running), ("a", 1), "one credit, one lease");
    // Bad items between good ones answer in their places.
    let complete =
        vec![pb::LeaseRef::default(), lease_ref(&a), lease_ref(&pb::Lease { id: "z".to_owned(), ..a.clone() })];
    let release =
        vec![pb::LeaseRelease { id: "b".to_owned(), fencing_token: 1, delay_ms: Some(-1), ..Default::default() }];
    stream.send.send(pb::WorkRequest { credits: 2, complete, release, ..Default::default() }).unwrap();
    // A malformed item gets its result as soon as no earlier item waits, so in a separate response.
    let response = stream.next().await.unwrap().unwrap();
    assert_eq!((response.completed.len(), response.released.len(), response.leases.len()), (1, 1, 0));
    let Some(pb::transition_result::Outcome::Error(status)) = &response.completed[0].outcome else { panic!() };
    assert_eq!(refused_item(status), invalid("complete[0].id"));
    let Some(pb::transition_result::Outcome::Error(status)) = &response.released[0].outcome else { panic!() };
    assert_eq!(refused_item(status), invalid("release[0].delay_ms"));
    let response = stream.next().await.unwrap().unwrap();
    let outcomes: Vec<_> = response.completed.iter().map(|result| result.outcome.clone().unwrap()).collect();
    assert!(matches!(outcomes[0], pb::transition_result::Outcome::Ok(_)));
    let pb::transition_result::Outcome::Error(status) = &outcomes[1] else { panic!() };
    assert_eq!(refused_item(status), because(Code::NotFound, "MESSAGE_NOT_FOUND"));
    let ids: Vec<&str> = response.leases.iter().map(|lease| lease.id.as_str()).collect();
    assert_eq!(ids, ["b", "c"], "with the results, in one response");

    let extend = pb::LeaseExtension {
        id: "b".to_owned(),
        fencing_token: response.leases[0].fencing_token,
        lease_ms: Some(90_000),
    };
    let back = &response.leases[1];
    let release = pb::LeaseRelease { delay_ms: Some(0), ..release_of(back) };
    stream.send.send(pb::WorkRequest { extend: vec![extend], release: vec![release], ..Default::default() }).unwrap();
    let response = stream.next().await.unwrap().unwrap();
    assert_eq!((response.extended.len(), response.released.len(), response.leases.len()), (1, 1, 0));
    let depth = server.depth("q").await;
    assert_eq!((depth.running, depth.pending, depth.completed), (1, 2, 1));
}

/// A release without delay, reason and verdict.
fn release_of(lease: &pb::Lease) -> pb::LeaseRelease {
    pb::LeaseRelease { id: lease.id.clone(), fencing_token: lease.fencing_token, ..Default::default() }
}

#[tokio::test]
async fn q23_q29_results_and_verdicts_travel_on_a_stream_as_in_single_calls() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a", "b", "c"]).await;
    let mut stream = Stream::start(&server, 3, false).await;
    let leases = stream.leases(3).await;
    let verdict = |lease, verdict: pb::Verdict, reason: &str| pb::LeaseRelease {
        verdict: verdict.into(),
        reason: reason.to_owned(),
        ..release_of(lease)
    };
    let complete = vec![pb::LeaseRef { result: "done".into(), ..lease_ref(&leases[0]) }];
    let release =
        vec![verdict(&leases[1], pb::Verdict::Error, "no such"), verdict(&leases[2], pb::Verdict::Cancel, "off")];
    stream.send.send(pb::WorkRequest { complete, release: release.clone(), ..Default::default() }).unwrap();
    let response = stream.next().await.unwrap().unwrap();
    let releases = pb::ReleaseRequest { queue: "q".to_owned(), releases: release };
    let again = server.queue.release(releases).await.unwrap().into_inner().results;
    assert_eq!(response.released, again, "Q10: a unary call gets the same");
    let expected = [
        ("a", pb::State::Completed, "", "done"),
        ("b", pb::State::Errored, "no such", ""),
        ("c", pb::State::Canceled, "off", ""),
    ];
    for (id, state, reason, result) in expected {
        let request = pb::GetMessageRequest { queue: "q".to_owned(), id: id.to_owned() };
        let message = server.admin.get_message(request).await.unwrap().into_inner().message.unwrap();
        assert_eq!((message.state(), message.reason.as_str(), &message.result[..]), (state, reason, result.as_bytes()));
    }
}

#[tokio::test]
async fn q7_a_forced_cancel_reaches_the_stream_that_has_the_lease() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a", "b"]).await;
    let mut streams = [Stream::start(&server, 1, false).await, Stream::start(&server, 1, true).await];
    let mut leases = Vec::new();
    for stream in &mut streams {
        leases.push(stream.leases(1).await.remove(0));
    }
    for (stream, lease) in streams.iter_mut().zip(&leases) {
        let cancellation = pb::Cancellation { id: lease.id.clone(), force: true, ..Default::default() };
        let request = pb::CancelRequest { queue: "q".to_owned(), cancellations: vec![cancellation] };
        server.queue.cancel(request).await.unwrap();
        let response = stream.next().await.unwrap().unwrap();
        assert_eq!(response, pb::WorkResponse { revoked: vec![lease_ref(lease)], ..Default::default() });
    }
    // The other stream was not notified, and nothing was released.
    drop(streams);
    server.until_depth("q", |depth| depth.canceled == 2 && depth.pending == 0).await;
}

#[tokio::test]
async fn q18_a_stream_waits_and_is_woken() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let mut stream = Stream::start(&server, 3, false).await;
    server.store.called("dequeue", 1).await;
    server.enqueue("q", &["a"]).await;
    assert_eq!(stream.leases(1).await[0].id, "a");
    server.enqueue("q", &["b", "c", "d"]).await;
    let ids: Vec<String> = stream.leases(2).await.into_iter().map(|lease| lease.id).collect();
    assert_eq!(ids, ["b", "c"]);
    assert_eq!(server.depth("q").await.pending, 1, "the credits are used up");
}

#[tokio::test]
async fn rubbish_ends_the_stream_with_one_status() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a"]).await;
    let started = |change: fn(&mut pb::WorkStart)| {
        let mut request = start("q", false);
        request.start.as_mut().into_iter().for_each(change);
        request
    };
    let credits = |credits| pb::WorkRequest { credits, ..Default::default() };
    let many = pb::WorkRequest { complete: vec![pb::LeaseRef::default(); 1_001], ..Default::default() };
    for (requests, field) in [
        (vec![pb::WorkRequest::default()], "start"),
        (vec![credits(1)], "start"),
        (vec![start("q", false), start("q", false)], "start"),
        (vec![start("", false)], "start.queue"),
        (vec![start("a b", false)], "start.queue"),
        (vec![started(|start| start.worker = "a\nb".to_owned())], "start.worker"),
        (vec![started(|start| start.lease_ms = Some(-1))], "start.lease_ms"),
        (vec![started(|start| start.filters = vec![pb::Filter::default()])], "start.filters[0]"),
        (vec![started(|start| start.filters = vec![filter("k", "v"); 17])], "start.filters"),
        (vec![start("q", false), credits(1_001)], "credits"),
        (vec![start("q", false), credits(1_000), credits(u32::MAX)], "credits"),
        (vec![start("q", false), many.clone()], "complete"),
    ] {
        let mut stream = Stream::open(&server).await;
        requests.into_iter().for_each(|request| stream.send.send(request).unwrap());
        let status = loop {
            match stream.next().await {
                Ok(response) => assert!(response.is_some(), "{field}: ended without a status"),
                Err(status) => break status,
            }
        };
        assert_eq!(refused::<()>(Err(status)), invalid(field));
        server.until_depth("q", |depth| depth.pending + depth.running == 1).await;
    }
    let mut stream = Stream::open(&server).await;
    stream.send.send(pb::WorkRequest { credits: 1, ..start("none", false) }).unwrap();
    assert_eq!(refused(stream.next().await), because(Code::NotFound, "QUEUE_NOT_FOUND"));
}

#[tokio::test]
async fn q7_a_closed_stream_releases_unfinished_leases_if_requested() {
    for (release_on_close, cancel) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut server = TestServer::start().await;
        server.enqueue("q", &["a", "b", "c", "d"]).await;
        let mut stream = Stream::start(&server, 3, release_on_close).await;
        let leases = stream.leases(3).await;
        stream.send.send(pb::WorkRequest { complete: vec![lease_ref(&leases[0])], ..Default::default() }).unwrap();
        if cancel {
            assert_eq!(stream.next().await.unwrap().unwrap().completed.len(), 1);
            drop(stream);
        } else {
            // Half-closed: what was sent is still answered, then the stream ends well.
            let Stream { send, mut receive } = stream;
            drop(send);
            assert_eq!(receive.message().await.unwrap().unwrap().completed.len(), 1);
            assert_eq!(receive.message().await.unwrap(), None);
        }
        let running = if release_on_close { 0 } else { 2 };
        server.until_depth("q", |depth| depth.running == running && depth.completed == 1).await;
        assert_eq!(attempts(&mut server, &leases[1].id).await, 1, "its worker had it");
        // A stream that is gone leases nothing more.
        server.enqueue("q", &["e"]).await;
        assert_eq!(server.depth("q").await.running, running);
    }
}

#[tokio::test]
async fn leases_that_were_never_sent_always_go_back() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a", "b"]).await;
    server.store.exit.send_replace(false);
    let stream = Stream::start(&server, 2, false).await;
    server.store.called("dequeue", 1).await;
    drop(stream);
    assert!(server.queue.dequeue(pb::DequeueRequest::default()).await.is_err(), "behind the cancellation");
    server.store.exit.send_replace(true);
    server.until_depth("q", |depth| depth.pending == 2 && depth.running == 0).await;
    assert_eq!(attempts(&mut server, "a").await, 0, "no worker got it");
}

async fn attempts(server: &mut TestServer, id: &str) -> i32 {
    let request = pb::GetMessageRequest { queue: "q".to_owned(), id: id.to_owned() };
    server.admin.get_message(request).await.unwrap().into_inner().message.unwrap().attempts
}

#[tokio::test]
async fn a_stream_outlives_a_pause_and_an_outage() {
    let mut server = TestServer::start().await;
    let paused = pb::QueueConfig { dequeue_blocked: Some(true), ..Default::default() };
    server.create("q", paused).await;
    let mut stream = Stream::start(&server, 2, false).await;
    server.store.called("dequeue", 1).await;
    server.enqueue("q", &["a"]).await;
    let request = pb::UpdateQueueRequest {
        name: "q".to_owned(),
        config: Some(pb::QueueConfig { dequeue_blocked: Some(false), ..Default::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["dequeue_blocked".to_owned()] }),
    };
    server.admin.update_queue(request).await.unwrap();
    let a = stream.leases(1).await.remove(0);

    server.store.away.store(true, Ordering::SeqCst);
    stream.send.send(pb::WorkRequest { complete: vec![lease_ref(&a)], ..Default::default() }).unwrap();
    let response = stream.next().await.unwrap().unwrap();
    let Some(pb::transition_result::Outcome::Error(status)) = &response.completed[0].outcome else { panic!() };
    assert_eq!(refused_item(status), because(Code::Unavailable, "STORE_UNAVAILABLE"));
    server.store.away.store(false, Ordering::SeqCst);
    server.enqueue("q", &["b"]).await;
    assert_eq!(stream.leases(1).await[0].id, "b");
}

#[tokio::test]
async fn a_stop_ends_streams_and_gives_back() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a"]).await;
    let mut stream = Stream::start(&server, 5, true).await;
    stream.leases(1).await;
    let store = server.store.clone();
    server.stop();
    assert_eq!(refused(stream.next().await), because(Code::Unavailable, "SERVER_STOPPING"));
    drop(stream);
    server.stopped().await.unwrap();
    let queue = tallystone_model::QueueName::parse("queue", "q").unwrap();
    let depth = tallystone_model::Store::depth(&store.oracle, &tallystone_model::Shard::first(&queue), None).await;
    assert_eq!(depth.unwrap().pending, 1, "released before the server ended");
}

#[tokio::test]
async fn large_leases_come_in_responses_that_any_client_can_read() {
    let mut server = TestServer::start().await;
    for batch in 0..2 {
        let messages = (0..100)
            .map(|i| pb::NewMessage { payload: vec![7; 32 * 1024].into(), ..message(&format!("{batch}-{i}")) })
            .collect();
        server.queue.enqueue(pb::EnqueueRequest { queue: "q".to_owned(), messages }).await.unwrap();
    }
    // A client with the default limit of 4 MiB.
    server.queue = pb::queue_client::QueueClient::new(server.channel.clone());
    let mut stream = Stream::start(&server, 200, false).await;
    assert_eq!(stream.leases(200).await.len(), 200);
}

/// Many streams, a few of which break off all the time: every message is completed once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q18_streams_under_load_complete_everything() {
    const MESSAGES: usize = 3_000;
    let mut server = TestServer::start().await;
    server
        .create(
            "q",
            pb::QueueConfig { terminal_retention_ms: Some(0), max_attempts: Some(1_000), ..Default::default() },
        )
        .await;
    let done = CancellationToken::new();
    let completed = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let mut workers = Vec::new();
    for n in 0..16 {
        let (done, completed, client) = (done.clone(), completed.clone(), server.queue.clone());
        workers.push(tokio::spawn(async move {
            while !done.is_cancelled() {
                let (send, mut requests) = mpsc::unbounded_channel();
                let requests = futures::stream::poll_fn(move |context| requests.poll_recv(context));
                let mut receive = client.clone().work(requests).await.unwrap().into_inner();
                send.send(pb::WorkRequest { credits: 2, ..start("q", true) }).unwrap();
                let mut left = if n % 4 == 0 { 20 } else { usize::MAX };
                while left > 0 {
                    let response = tokio::select! {
                        response = receive.message() => response.unwrap().unwrap(),
                        () = done.cancelled() => return,
                    };
                    for result in response.completed {
                        assert!(matches!(result.outcome, Some(pb::transition_result::Outcome::Ok(_))), "{result:?}");
                        let mut completed = completed.lock().unwrap();
                        completed.insert(result.id);
                        if completed.len() == MESSAGES {
                            done.cancel();
                        }
                    }
                    let complete: Vec<_> = response.leases.iter().map(lease_ref).collect();
                    left = left.saturating_sub(1);
                    if !complete.is_empty() && left > 0 {
                        let credits = complete.len() as u32;
                        send.send(pb::WorkRequest { credits, complete, ..Default::default() }).unwrap();
                    }
                }
            }
        }));
    }
    for i in 0..MESSAGES {
        server.enqueue("q", &[&format!("m{i}")]).await;
    }
    let all = tokio::time::timeout(std::time::Duration::from_secs(60), done.cancelled()).await;
    assert!(all.is_ok(), "{} of {MESSAGES} came through", completed.lock().unwrap().len());
    for worker in workers {
        worker.await.unwrap();
    }
}
