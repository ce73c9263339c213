//! Enqueues in one stream: the same answers as unary calls, in any order; bounds, deadlines, and how a stream ends.

use super::{because, invalid, refused};
use crate::config::QueueTemplates;
use crate::testing::*;
use futures::SinkExt;
use futures::channel::mpsc;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use tallystone_model::limits::{BATCH_BYTES_MAX, BATCH_ITEMS_MAX};
use tallystone_proto::RpcStatus;
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::enqueue_answer::Outcome;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::status::from_call;
use tallystone_serving::{AuditConfig, AuthConfig, Host, JwtConfig, Limits, Ports, TlsConfig};
use tokio::time::timeout;
use tonic::{Code, Status};
use tonic_types::RpcStatusExt as _;

/// What a call was answered.
type Answer = Result<pb::EnqueueResponse, RpcStatus>;

/// One open stream.
struct Calls {
    requests: Option<mpsc::Sender<pb::EnqueueStreamRequest>>,
    responses: tonic::Streaming<pb::EnqueueStreamResponse>,
}

impl Calls {
    async fn open(mut queue: QueueClient<tonic::transport::Channel>) -> Calls {
        let (requests, receiver) = mpsc::channel(64);
        let responses = queue.enqueue_stream(receiver).await.unwrap().into_inner();
        Calls { requests: Some(requests), responses }
    }

    async fn send(&mut self, calls: Vec<pb::EnqueueCall>) {
        self.send_request(pb::EnqueueStreamRequest { calls, canceled: Vec::new() }).await;
    }

    async fn send_request(&mut self, request: pb::EnqueueStreamRequest) {
        self.requests.as_mut().unwrap().send(request).await.unwrap();
    }

    async fn next(&mut self) -> Result<Option<pb::EnqueueStreamResponse>, Status> {
        timeout(SOON, self.responses.message()).await.expect("in time")
    }

    /// The answers of so many calls, in their order.
    async fn answers(&mut self, count: usize) -> Vec<(u64, Answer)> {
        let mut answers = Vec::new();
        while answers.len() < count {
            let response = self.next().await.unwrap().expect("more answers");
            answers.extend(response.answers.into_iter().map(|answer| match answer.outcome.unwrap() {
                Outcome::Ok(response) => (answer.number, Ok(response)),
                Outcome::Error(status) => (answer.number, Err(status)),
            }));
        }
        assert_eq!(answers.len(), count);
        answers
    }

    /// Closes this side; returns how the stream ends.
    async fn end(&mut self) -> Result<(), Status> {
        drop(self.requests.take());
        loop {
            match self.next().await {
                Ok(Some(response)) => assert_eq!(response.answers, []),
                Ok(None) => return Ok(()),
                Err(status) => return Err(status),
            }
        }
    }
}

fn request(queue: &str, messages: Vec<pb::NewMessage>) -> pb::EnqueueRequest {
    pb::EnqueueRequest { queue: queue.to_owned(), messages }
}

fn call(number: u64, request: pb::EnqueueRequest) -> pb::EnqueueCall {
    pb::EnqueueCall { number, request: Some(request), ..Default::default() }
}

/// A call that is answered without the store.
fn bad(number: u64) -> pb::EnqueueCall {
    call(number, request("bad name", vec![message("a")]))
}

async fn server_with(limits: Limits) -> TestServer {
    let ports = Ports::open(
        limits,
        &TlsConfig::default(),
        &AuthConfig::default(),
        &JwtConfig::default(),
        &AuditConfig::default(),
    );
    TestServer::start_with(Host::new().ports(&ports.unwrap()), TestStore::new(), QueueTemplates::default()).await
}

/// Everything that an answer says. The metadata of a refusal has no order on the wire.
fn in_full(answer: &Answer) -> Result<Vec<Result<pb::Enqueued, String>>, String> {
    let of_status = |status: &RpcStatus| {
        let details = status.get_error_details();
        let info = details.error_info().expect("a reason");
        let metadata: BTreeMap<_, _> = info.metadata.iter().collect();
        let (bad, retry) = (details.bad_request(), details.retry_info());
        format!("{} {} {} {metadata:?} {bad:?} {retry:?}", status.code, status.message, info.reason)
    };
    let of_item = |item: &pb::EnqueueResult| match item.outcome.as_ref().expect("an outcome") {
        pb::enqueue_result::Outcome::Ok(enqueued) => Ok(enqueued.clone()),
        pb::enqueue_result::Outcome::Error(status) => Err(of_status(status)),
    };
    match answer {
        Ok(response) => Ok(response.results.iter().map(of_item).collect()),
        Err(status) => Err(of_status(status)),
    }
}

/// Calls of every outcome, in one order.
fn table() -> Vec<pb::EnqueueRequest> {
    let text = |length: usize| "x".repeat(length);
    let good = |id: &str| pb::NewMessage { payload: vec![1].into(), ..message(id) };
    let with = |key: &str, value: &str| pb::NewMessage {
        metadata: BTreeMap::from([(key.to_owned(), value.to_owned())]),
        ..message("metadata")
    };
    let mixed = vec![
        good("b"),
        pb::NewMessage { lease_ms: Some(1), ..message("short") },
        pb::NewMessage { payload: vec![0; 33 * 1024].into(), ..message("large") },
        pb::NewMessage { max_attempts: Some(0), ..message("never") },
        pb::NewMessage { invisibility_ms: Some(-1), ..message("early") },
        pb::NewMessage { priority: 1, priority_class: "c".to_owned(), ..message("both") },
        pb::NewMessage { priority_class: "unknown".to_owned(), ..message("class") },
        message("control\n"),
        message(&text(201)),
        with("", "v"),
        with("k", &text(256)),
        good("c"),
    ];
    let half = || pb::NewMessage { payload: vec![0; BATCH_BYTES_MAX / 2].into(), ..message("half") };
    vec![
        request("q", vec![good("a")]),
        request("q", vec![good("a")]),
        request("q", vec![message("a")]),
        request("q", vec![pb::NewMessage { coalesce: true, ..message("a") }]),
        request("q", mixed),
        request("q", vec![half(), half()]),
        request("q", Vec::new()),
        request("q", vec![message("many"); BATCH_ITEMS_MAX + 1]),
        request("", vec![good("a")]),
        request("bad name", vec![good("a")]),
        request(&text(129), vec![good("a")]),
        request("blocked", vec![good("a")]),
        request("full", vec![good("a"), good("b")]),
        request("exclusive", vec![good("a"), with("k", "v")]),
        request("new", vec![good("a")]),
        pb::EnqueueRequest::default(),
    ]
}

async fn filled() -> TestServer {
    let mut server = TestServer::start().await;
    let config = pb::QueueConfig::default;
    server.create("q", config()).await;
    server.create("blocked", pb::QueueConfig { enqueue_blocked: Some(true), ..config() }).await;
    server.create("full", pb::QueueConfig { max_depth: Some(1), ..config() }).await;
    let exclusive = pb::QueueType::Exclusive.into();
    server
        .create("exclusive", pb::QueueConfig { r#type: exclusive, exclusivity_key: "k".to_owned(), ..config() })
        .await;
    server
}

#[tokio::test]
async fn q27_a_stream_answers_every_call_as_the_unary_call_does() {
    let (mut unary, streamed) = (filled().await, filled().await);
    let mut stream = Calls::open(streamed.queue.clone()).await;
    let mut numbers = 1..;
    let (mut codes, mut reasons) = (Vec::new(), Vec::new());
    for is_away in [false, true] {
        for server in [&unary, &streamed] {
            server.store.away.store(is_away, Ordering::SeqCst);
        }
        let calls: Vec<_> = numbers.by_ref().zip(table()).map(|(number, request)| call(number, request)).collect();
        stream.send(calls.clone()).await;
        let answers: HashMap<u64, Answer> = stream.answers(calls.len()).await.into_iter().collect();
        for call in calls {
            let expected = unary.queue.enqueue(call.request.clone().unwrap()).await;
            let expected = expected.map(tonic::Response::into_inner).map_err(|status| from_call(&status));
            let queue = call.request.unwrap().queue;
            assert_eq!(in_full(&answers[&call.number]), in_full(&expected), "{queue:?}, away: {is_away}");
            codes.extend(expected.as_ref().err().map(|status| status.code));
            let items = expected.into_iter().flat_map(|response| response.results);
            reasons.extend(items.filter_map(|item| match item.outcome.unwrap() {
                pb::enqueue_result::Outcome::Ok(_) => None,
                pb::enqueue_result::Outcome::Error(status) => Some(status.code),
            }));
        }
    }
    for code in [Code::InvalidArgument, Code::FailedPrecondition, Code::Unavailable] {
        assert!(codes.contains(&(code as i32)), "no call was refused with {code:?}");
    }
    for code in [Code::InvalidArgument, Code::AlreadyExists, Code::ResourceExhausted] {
        assert!(reasons.contains(&(code as i32)), "no item was refused with {code:?}");
    }
    stream.end().await.unwrap();
}

#[tokio::test]
async fn q27_the_answers_of_a_flush_travel_together() {
    const CALLS: u64 = 400;
    let server = filled().await;
    let mut stream = Calls::open(server.queue.clone()).await;
    server.store.gate.send_replace(false);
    for number in 1..=CALLS {
        stream.send(vec![call(number, request("q", vec![message(&number.to_string())]))]).await;
    }
    // The last one shows that all were read.
    stream.send(vec![bad(CALLS + 1)]).await;
    assert_eq!(stream.answers(1).await[0].0, CALLS + 1);
    server.store.gate.send_replace(true);
    let (mut answers, mut responses) = (0, 0);
    while answers < CALLS as usize {
        answers += stream.next().await.unwrap().unwrap().answers.len();
        responses += 1;
    }
    assert!(responses <= CALLS / 8, "{responses} responses for {CALLS} answers");
}

#[tokio::test]
async fn q27_a_stream_begins_no_more_calls_than_the_limit_and_refuses_none() {
    let mut server = server_with(Limits { enqueue_stream_calls_max: 2, ..Limits::default() }).await;
    server.create("q", pb::QueueConfig::default()).await;
    let mut stream = Calls::open(server.queue.clone()).await;
    server.store.gate.send_replace(false);
    let good = |number: u64| call(number, request("q", vec![message(&number.to_string())]));
    stream.send(vec![good(1), good(2), bad(3), good(4), good(5)]).await;
    stream.send(vec![good(6)]).await;
    server.store.called("enqueue", 1).await;
    server.store.gate.send_replace(true);
    let answers = stream.answers(6).await;
    assert_ne!(answers[0].0, 3, "its answer needs no store, so the third call began while two had no answer");
    let answers: BTreeMap<u64, Answer> = answers.into_iter().collect();
    let refused: Vec<u64> = answers.iter().filter(|(_, answer)| answer.is_err()).map(|(number, _)| *number).collect();
    assert_eq!((answers.len(), refused), (6, vec![3]));
    assert_eq!(server.depth("q").await.pending, 5);
}

#[tokio::test]
async fn q27_a_stream_whose_answers_are_not_read_reads_no_calls() {
    const CALLS: u64 = 20_000;
    let mut server = filled().await;
    let endpoint = tonic::transport::Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let channel = endpoint.initial_stream_window_size(65_535).connect().await.unwrap();
    let mut stream = Calls::open(QueueClient::new(channel)).await;
    let mut requests = stream.requests.clone().unwrap();
    let sender = tokio::spawn(async move {
        for number in 1..=CALLS {
            // Ids that fill the window of the answers.
            let calls = vec![call(number, request("q", vec![message(&format!("{number:0>200}"))]))];
            requests.send(pb::EnqueueStreamRequest { calls, canceled: Vec::new() }).await.unwrap();
        }
    });
    server.until_depth("q", |counts| counts.pending >= 200).await;
    for _ in 0..1_000 {
        // If calls went on, these would give them the time.
        assert!(server.depth("q").await.pending < CALLS / 2, "calls go on though their answers are not read");
    }
    assert_eq!(stream.answers(CALLS as usize).await.len(), CALLS as usize);
    sender.await.unwrap();
    assert_eq!(server.depth("q").await.pending, CALLS);
}

#[tokio::test]
async fn o8_a_call_whose_caller_has_gone_is_dropped_and_not_answered() {
    let mut server = filled().await;
    let mut stream = Calls::open(server.queue.clone()).await;
    server.store.gate.send_replace(false);
    let good = |number: u64| call(number, request("q", vec![message(&number.to_string())]));
    // Two flushes are in the store; what comes later waits for them.
    for number in [1, 2] {
        stream.send(vec![good(number)]).await;
        server.store.called("enqueue", number).await;
    }
    stream.send(vec![good(3), good(4)]).await;
    let canceled = pb::EnqueueStreamRequest { calls: vec![bad(5)], canceled: vec![3, 99] };
    stream.send_request(canceled).await;
    assert_eq!(stream.answers(1).await[0].0, 5, "the request with the cancellation was read");
    server.store.gate.send_replace(true);
    let mut answered: Vec<u64> = stream.answers(3).await.into_iter().map(|(number, _)| number).collect();
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 4]);
    stream.end().await.unwrap();
    assert_eq!(server.depth("q").await.pending, 3, "the call that was dropped is not executed");
}

#[tokio::test]
async fn q27_each_call_has_its_deadline() {
    let mut server = filled().await;
    let mut stream = Calls::open(server.queue.clone()).await;
    server.store.gate.send_replace(false);
    let within = |number: u64, timeout_ms| pb::EnqueueCall {
        timeout_ms,
        ..call(number, request("q", vec![message(&number.to_string())]))
    };
    // Two flushes are in the store; what comes later waits for them.
    for number in [1, 2] {
        stream.send(vec![within(number, 0)]).await;
        server.store.called("enqueue", number).await;
    }
    stream.send(vec![within(3, 20), within(4, 600_000)]).await;
    let (number, answer) = stream.answers(1).await.remove(0);
    assert_eq!((number, answer.unwrap_err().code), (3, Code::Cancelled as i32));
    server.store.gate.send_replace(true);
    assert!(stream.answers(3).await.iter().all(|(_, answer)| answer.is_ok()));
    assert_eq!(server.depth("q").await.pending, 3, "the call whose deadline has passed is not executed");
}

#[tokio::test]
async fn o2_a_call_on_a_stream_carries_its_trace() {
    let mut server = filled().await;
    let mut stream = Calls::open(server.queue.clone()).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let traced = |number: u64, id: &str, traceparent: &str| pb::EnqueueCall {
        traceparent: traceparent.to_owned(),
        tracestate: "a=1".to_owned(),
        ..call(number, request("q", vec![message(id)]))
    };
    stream.send(vec![traced(1, "a", parent), traced(2, "b", "no\nheader"), traced(3, "c", "")]).await;
    stream.answers(3).await;
    for (id, expected) in [("a", Some(parent)), ("b", None), ("c", None)] {
        let request = pb::GetMessageRequest { queue: "q".to_owned(), id: id.to_owned() };
        let metadata = server.admin.get_message(request).await.unwrap().into_inner().message.unwrap().metadata;
        assert_eq!(metadata.get("traceparent").map(String::as_str), expected, "{id}");
    }
}

#[tokio::test]
async fn q27_a_wrong_request_ends_the_stream_after_the_answers_of_the_calls_before() {
    let server = filled().await;
    let good = |number: u64| call(number, request("q", vec![message(&number.to_string())]));
    let too_many = pb::EnqueueStreamRequest { calls: (3..=1_003).map(good).collect(), canceled: Vec::new() };
    let gone = pb::EnqueueStreamRequest { calls: Vec::new(), canceled: vec![9; 1_001] };
    let again = |number| pb::EnqueueStreamRequest { calls: vec![good(number)], canceled: Vec::new() };
    let twice = pb::EnqueueStreamRequest { calls: vec![good(3), good(3)], canceled: Vec::new() };
    for (wrong, field) in
        [(too_many, "calls"), (gone, "canceled"), (again(2), "number"), (again(0), "number"), (twice, "number")]
    {
        let mut stream = Calls::open(server.queue.clone()).await;
        stream.send(vec![good(1), good(2)]).await;
        stream.send_request(wrong).await;
        let mut answered = stream.answers(2).await.into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        answered.sort_unstable();
        assert_eq!(answered, [1, 2], "{field}");
        assert_eq!(refused(stream.next().await), invalid(field));
    }
}

#[tokio::test]
async fn o3_a_server_that_stops_answers_what_it_was_sent_and_then_ends_the_stream() {
    let mut server = filled().await;
    let mut stream = Calls::open(server.queue.clone()).await;
    server.store.gate.send_replace(false);
    let good = |number: u64| call(number, request("q", vec![message(&number.to_string())]));
    stream.send(vec![good(1)]).await;
    server.store.called("enqueue", 1).await;
    server.stop();
    let announced = stream.next().await.unwrap().unwrap();
    assert!(announced.closing && announced.answers.is_empty(), "{announced:?}");
    // Sent before the client knew.
    stream.send(vec![good(2)]).await;
    drop(stream.requests.take());
    server.store.gate.send_replace(true);
    let answers: BTreeMap<u64, Answer> = stream.answers(2).await.into_iter().collect();
    assert!(answers.values().all(Result::is_ok), "{answers:?}");
    assert!(stream.next().await.unwrap().is_none(), "it ends with OK");
    drop(stream);
    server.stopped().await.unwrap();
}

#[tokio::test]
async fn o3_a_stream_that_its_client_does_not_close_ends_with_the_server() {
    let mut server = filled().await;
    let mut stream = Calls::open(server.queue.clone()).await;
    stream.send(vec![bad(1)]).await;
    stream.answers(1).await;
    server.stop();
    assert!(stream.next().await.unwrap().unwrap().closing);
    assert_eq!(refused(stream.next().await), because(Code::Unavailable, "SERVER_STOPPING"));
    drop(stream);
    server.stopped().await.unwrap();
}

/// A thousand answers may have a thousand refusals each: they do not come in one response.
#[tokio::test]
async fn s1_a_response_on_a_stream_has_a_bounded_size() {
    use prost::Message as _;
    let server = TestServer::start().await;
    let mut calls = Calls::open(server.queue.clone()).await;
    let refused = pb::NewMessage { lease_ms: Some(1), ..pb::NewMessage::default() };
    let count = 50;
    calls.send((1..=count).map(|number| call(number, request("q", vec![refused.clone(); 1_000]))).collect()).await;
    let (mut answered, mut largest) = (0, 0);
    while answered < count {
        let response = calls.next().await.unwrap().expect("more answers");
        answered += response.answers.len() as u64;
        largest = largest.max(response.encoded_len());
    }
    assert!((100_000..2_500_000).contains(&largest), "{largest} bytes");
}
