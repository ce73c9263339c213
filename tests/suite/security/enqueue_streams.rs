//! S3 to S5 on a stream of Enqueues: each call has the rights, the quotas and the line of the audit log of a unary one.

use super::secured::{Listening, Principals, Secured, refused};
use crate::system::program::SOON;
use std::path::Path;
use tallystone_client::{Client, Code, NewMessage};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::enqueue_answer::Outcome;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_tests::http_client;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use tonic_types::{RpcStatusExt as _, StatusExt as _};

/// A stream with a token.
struct Stream {
    requests: mpsc::Sender<pb::EnqueueStreamRequest>,
    responses: tonic::Streaming<pb::EnqueueStreamResponse>,
    last: u64,
}

impl Stream {
    async fn open(server: &Listening, token: &str) -> Result<Stream, tonic::Status> {
        let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
        let mut queue = QueueClient::new(endpoint.connect().await.expect("a connection"));
        let (requests, receiver) = mpsc::channel(16);
        requests.send(pb::EnqueueStreamRequest::default()).await.expect("room");
        let mut request = tonic::Request::new(ReceiverStream::new(receiver));
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
        let responses = queue.enqueue_stream(request).await?.into_inner();
        Ok(Stream { requests, responses, last: 0 })
    }

    async fn next(&mut self) -> Result<Vec<pb::EnqueueAnswer>, tonic::Status> {
        let response = timeout(SOON, self.responses.message()).await.expect("in time")?;
        Ok(response.expect("no end without a status").answers)
    }

    /// Enqueues a message to each of these queues, all in one request; returns the reason of each refusal, "" for none.
    async fn enqueue(&mut self, queues: &[&str]) -> Vec<String> {
        let first = self.last + 1;
        let call = |(number, queue): (u64, &&str)| {
            let message = pb::NewMessage { id: number.to_string(), ..pb::NewMessage::default() };
            let request = pb::EnqueueRequest { queue: queue.to_string(), messages: vec![message] };
            pb::EnqueueCall { number, request: Some(request), ..pb::EnqueueCall::default() }
        };
        let calls: Vec<_> = (first..).zip(queues).map(call).collect();
        self.last += calls.len() as u64;
        let request = pb::EnqueueStreamRequest { calls, canceled: Vec::new() };
        self.requests.send(request).await.expect("an open stream");
        let mut reasons = vec![None; queues.len()];
        while reasons.contains(&None) {
            for answer in self.next().await.expect("an answer") {
                let reason = match answer.outcome.expect("an outcome") {
                    Outcome::Ok(_) => String::new(),
                    Outcome::Error(status) => status.get_details_error_info().expect("a reason").reason,
                };
                reasons[(answer.number - first) as usize] = Some(reason);
            }
        }
        reasons.into_iter().flatten().collect()
    }
}

#[tokio::test]
async fn s4_each_call_on_a_stream_needs_the_right_on_its_queue() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let producer = principals.add("producer", &["produce:own/*", "create:own/new*"], ["", ""]);
    let admin = principals.add("admin", &["admin:*"], ["", ""]);
    let path = place.path("principals.toml");
    let audit = place.path("audit.log");
    principals.write(Path::new(&path));
    let config = place.path("t.toml");
    std::fs::write(&config, "[audit]\nall_calls = true\n[limits]\nenqueue_stream_calls_max = 2\n").expect("a file");
    let flags = ["--principals", &path, "--audit-file", &audit, "--config", &config];
    let server = place.start("server", &flags).await;
    server.client(&admin).enqueue("own/q", vec![NewMessage::new("a", "")]).await.expect("a queue");
    server.client(&admin).enqueue("other", vec![NewMessage::new("a", "")]).await.expect("a queue");
    let refused = Stream::open(&server, "ts_a_b").await.err().expect("a refusal");
    assert_eq!(refused.get_details_error_info().expect("a reason").reason, "BAD_CREDENTIAL");
    let mut stream = Stream::open(&server, &producer).await.expect("a stream");
    let reasons = stream.enqueue(&["own/q", "other", "own/absent", "own/new", "own/q"]).await;
    assert_eq!(reasons, ["", "NO_RIGHT", "QUEUE_NOT_FOUND", "", ""]);
    let depth = async |queue: &str| server.client(&admin).depth(queue, None).await.expect("a depth").pending;
    assert_eq!((depth("own/q").await, depth("other").await, depth("own/new").await), (3, 1, 1));
    let lines = std::fs::read_to_string(&audit).expect("the audit log");
    let of = |code: &str| {
        let is_one =
            |line: &&str| line.contains("\"producer\"") && line.contains("\"call\":\"Enqueue\"") && line.contains(code);
        lines.lines().filter(is_one).count()
    };
    assert_eq!((of("\"OK\""), of("PERMISSION_DENIED"), of("NOT_FOUND")), (3, 1, 1), "{lines}");
    // Each call counts as an Enqueue; the two of the administrator were unary.
    let page = metrics_page_of(&server, &admin).await;
    assert!(page.contains("tallystone_rpc_calls_total{rpc=\"Enqueue\",code=\"OK\"} 5"), "{page}");
    assert!(page.contains("tallystone_rpc_calls_total{rpc=\"Enqueue\",code=\"PERMISSION_DENIED\"} 1"), "{page}");
    assert!(page.contains("tallystone_enqueue_streams 1"), "{page}");
    let pauses = page.lines().find_map(|line| line.strip_prefix("tallystone_enqueue_stream_pauses_total "));
    assert!(pauses.is_some_and(|pauses| pauses != "0"), "{page}");
}

async fn metrics_page_of(server: &Listening, token: &str) -> String {
    let http = http_client();
    let page = http.get(format!("http://{}/metrics", server.metrics)).bearer_auth(token).send().await;
    page.expect("an answer").text().await.expect("a page")
}

#[tokio::test]
async fn s3_a_withdrawn_token_ends_its_stream_of_enqueues() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let stays = principals.add("stays", &["admin:*"], ["", ""]);
    let without = Principals::clone(&principals);
    let goes = principals.add("goes", &["admin:*"], ["", ""]);
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    let server = place.start("server", &["--principals", &path]).await;
    let mut goes_stream = Stream::open(&server, &goes).await.expect("a stream");
    let mut stays_stream = Stream::open(&server, &stays).await.expect("a stream");
    assert_eq!(goes_stream.enqueue(&["q"]).await, [""]);
    assert_eq!(stays_stream.enqueue(&["q"]).await, [""]);
    // A client whose callers are many, on a stream too.
    let client = server.client(&goes);
    let crowd = async |client: &Client| {
        let calls = (0..16).map(async |n| client.enqueue("q", vec![NewMessage::new(n.to_string(), "")]).await);
        futures::future::join_all(calls).await
    };
    assert!(crowd(&client).await.iter().all(Result::is_ok));
    without.write(Path::new(&path));
    let at = tokio::time::Instant::now();
    let status = goes_stream.next().await.expect_err("the end of the stream");
    let reason = status.get_details_error_info().expect("a reason").reason;
    assert_eq!((status.code(), reason.as_str()), (Code::Unauthenticated, "WITHDRAWN"));
    // The files are compared twice a second; a busy machine may take longer to read them.
    assert!(at.elapsed() < std::time::Duration::from_secs(5), "{:?}", at.elapsed());
    for answer in crowd(&client).await {
        let (code, reason) = refused(answer);
        assert_eq!(code, Code::Unauthenticated, "{reason}");
    }
    assert_eq!(stays_stream.enqueue(&["q"]).await, [""], "the other one goes on");
}

#[tokio::test]
async fn s5_calls_on_a_stream_count_against_the_quota_of_their_tenant() {
    let place = Secured::new().await;
    let config = place.path("t.toml");
    std::fs::write(&config, "[[tenants]]\nname = 't'\nprefix = 't/'\nmessages_max = 3\n").expect("a file");
    let server = place.start("server", &["--config", &config]).await;
    let mut stream = Stream::open(&server, "unused").await.expect("a stream");
    let mut accepted = 0;
    for _ in 0..4 {
        let request = pb::EnqueueRequest {
            queue: "t/a".to_owned(),
            messages: (0..2)
                .map(|n| pb::NewMessage { id: format!("{}-{n}", stream.last), ..Default::default() })
                .collect(),
        };
        stream.last += 1;
        let call = pb::EnqueueCall { number: stream.last, request: Some(request), ..Default::default() };
        let request = pb::EnqueueStreamRequest { calls: vec![call], canceled: Vec::new() };
        stream.requests.send(request).await.expect("an open stream");
        let answer = stream.next().await.expect("an answer").remove(0);
        let Some(Outcome::Ok(response)) = &answer.outcome else { panic!("{answer:?}") };
        let is_ok = |result: &&pb::EnqueueResult| matches!(result.outcome, Some(pb::enqueue_result::Outcome::Ok(_)));
        accepted += response.results.iter().filter(is_ok).count();
    }
    assert_eq!(accepted, 3);
}
