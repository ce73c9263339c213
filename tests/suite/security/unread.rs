//! S1: answers that are not read take bounded memory, for a bounded time.

use super::bounds::{FILES, GROWTH_KIB_MAX};
use super::victim::{Victim, works};
use crate::system::program::SOON;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use prost::Message;
use tallystone_client::{Client, NewMessage};
use tallystone_proto::queue::v1::{ListMessagesRequest, State, WorkRequest, WorkStart};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const MESSAGES: usize = 95;
const PAYLOAD_BYTES: usize = 32 * 1024;
const UNREAD: &str = "tallystone_unread_answer_bytes";
const CLOSED: &str = "tallystone_connections_closed_total";

/// A connection that leaves each answer so much room. Its task ends with it.
struct Unreading {
    calls: SendRequest<Bytes>,
    task: JoinHandle<Result<(), h2::Error>>,
}

impl Unreading {
    async fn new(victim: &Victim, window: u32) -> Unreading {
        let tcp = TcpStream::connect(victim.address).await.expect("a connection");
        let builder = h2::client::Builder::new().initial_window_size(window).handshake(tcp);
        let (calls, connection) = builder.await.expect("HTTP/2");
        Unreading { calls, task: tokio::spawn(connection) }
    }

    /// Sends one request; the stream of requests stays open if it is not `whole`.
    async fn call(
        &self,
        victim: &Victim,
        method: &str,
        request: &impl Message,
        whole: bool,
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let path = format!("http://{}/tallystone.queue.v1.{method}", victim.address);
        let head = Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        let mut calls = self.calls.clone().ready().await.expect("room for a stream");
        let (response, mut body) = calls.send_request(head.body(()).expect("a request"), false).expect("a stream");
        let request = request.encode_to_vec();
        let message = [&[0, 0, 0, 0, request.len() as u8], &request[..]].concat();
        body.send_data(message.into(), whole).expect("a request");
        (response, body)
    }

    async fn list(&self, victim: &Victim) -> ResponseFuture {
        let request = ListMessagesRequest {
            queue: "large".to_owned(),
            state: State::Pending.into(),
            page_size: 1_000,
            ..ListMessagesRequest::default()
        };
        self.call(victim, "QueueAdmin/ListMessages", &request, true).await.0
    }

    /// Waits until the server has ended it.
    async fn ends(self) {
        // With an error or without one: it depends on what the server could still send.
        drop(timeout(SOON, self.task).await.expect("an end").expect("no panic"));
    }
}

/// The head of an answer, whose body is not read.
async fn head(response: ResponseFuture) -> Response<RecvStream> {
    timeout(SOON, response).await.expect("a head in time").expect("a head")
}

/// The code and the reason at the end of an answer without messages.
async fn end(answer: Response<RecvStream>) -> (Code, String) {
    let trailers = timeout(SOON, answer.into_body().trailers()).await.expect("an end in time").expect("an end");
    let status = Status::from_header_map(&trailers.expect("trailers")).expect("a status");
    (status.code(), status.get_details_error_info().expect("details").reason)
}

/// A call with an empty message; `None`: the connection has ended.
async fn call_empty(victim: &Victim, unreading: &Unreading, path: &str) -> Option<ResponseFuture> {
    const EMPTY_MESSAGE: &[u8] = &[0; 5];
    let head = Request::post(format!("http://{}/{path}", victim.address)).header("content-type", "application/grpc");
    let head = head.header("te", "trailers").body(()).expect("a request");
    let mut calls = unreading.calls.clone().ready().await.ok()?;
    let (response, mut body) = calls.send_request(head, false).ok()?;
    // A refusal may come before it.
    let _ = body.send_data(Bytes::from_static(EMPTY_MESSAGE), true);
    Some(response)
}

/// A queue of three MiB, which one answer lists.
async fn fill(client: &Client) {
    let payload = "x".repeat(PAYLOAD_BYTES);
    let messages = (0..MESSAGES).map(|number| NewMessage::new(format!("m{number}"), payload.clone()));
    let enqueued = client.enqueue("large", messages.collect()).await.expect("an Enqueue");
    assert!(enqueued.iter().all(Result::is_ok), "{enqueued:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_answers_that_are_not_read_are_bounded() {
    let victim = Victim::start("answer_ms = 600000", FILES).await;
    let innocent = victim.innocent();
    fill(&innocent).await;
    let before = victim.memory_kib();
    // Without any room the frame waits in the answer; with a little, HTTP/2 takes all of it.
    for window in [0, 1] {
        let unreading = Unreading::new(&victim, window).await;
        let mut kept = Vec::new();
        for _ in 0..50 {
            kept.push(head(unreading.list(&victim).await).await);
        }
        let refused = head(unreading.list(&victim).await).await;
        assert_eq!(end(refused).await, (Code::Unavailable, "TOO_MANY_UNREAD_BYTES".to_owned()));
        works(&innocent, &format!("meanwhile-{window}")).await;
        let grown = victim.memory_kib().saturating_sub(before);
        println!("window {window}: {grown} KiB for {} answers", kept.len());
        assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for {} answers", kept.len());
        // Its end gives all of it back.
        unreading.task.abort();
        drop(kept);
        victim.until(UNREAD, 0.0).await;
    }
    works(&innocent, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_work_stream_that_is_not_read_ends_and_a_silent_one_does_not() {
    let victim = Victim::start("answer_ms = 500", FILES).await;
    let (silent, unreading) = (Unreading::new(&victim, 65_535).await, Unreading::new(&victim, 0).await);
    let start = |queue: &str| WorkRequest {
        start: Some(WorkStart { queue: queue.to_owned(), ..WorkStart::default() }),
        credits: 10,
        ..WorkRequest::default()
    };
    fill(&victim.innocent()).await;
    let _open = silent.call(&victim, "Queue/Work", &start("nowhere"), false).await;
    let _unread = unreading.call(&victim, "Queue/Work", &start("large"), false).await;
    unreading.ends().await;
    assert!(!silent.task.is_finished());
    assert!(victim.metric(CLOSED).await >= 1.0);
    works(&victim.innocent(), "after").await;
}

/// A health check is answered with seven bytes. While they wait, the server keeps the call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_many_small_answers_that_are_not_read_end_their_connection() {
    const CALLS: usize = 4_000;
    // Room for half of them.
    let victim = Victim::start("answer_ms = 600000\nunread_bytes_max = 8388608", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let (unreading, mut kept) = (Unreading::new(&victim, 0).await, Vec::new());
    for _ in 0..CALLS {
        let path = "grpc.health.v1.Health/Check";
        let Some(response) = call_empty(&victim, &unreading, path).await else { break };
        kept.push(response);
    }
    unreading.ends().await;
    let grown = victim.peak_memory_kib().saturating_sub(before);
    println!("{} calls: {grown} KiB", kept.len());
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    assert_eq!(victim.metric(&format!("{CLOSED}{{reason=\"unread_too_much\"}}")).await, 1.0);
    victim.until(UNREAD, 0.0).await;
    works(&innocent, "after").await;
}

/// Their headers count until they are written, and no longer: HTTP/2 keeps none of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_answers_without_a_body_that_are_read_leave_nothing() {
    const CALLS: usize = 100;
    let victim = Victim::start("", FILES).await;
    let reading = Unreading::new(&victim, 65_535).await;
    for _ in 0..CALLS {
        let response = call_empty(&victim, &reading, "unknown.Service/Method").await.expect("an open connection");
        assert!(head(response).await.headers().contains_key("grpc-status"));
    }
    victim.until(UNREAD, 0.0).await;
    assert!(!reading.task.is_finished());
}

/// HTTP/2 keeps something of each call that is reset while its connection has no room for the answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_calls_that_are_reset_without_room_for_answers_end_their_connection() {
    const CALLS: usize = 20_000;
    const WINDOW: u32 = 65_535;
    // Room for 5,000 to 8,000 of them: the answer that takes the room of the connection has the rest.
    let victim = Victim::start("answer_ms = 600000\nunread_bytes_max = 8388608", FILES).await;
    let innocent = victim.innocent();
    fill(&innocent).await;
    let before = victim.memory_kib();
    let resetting = Unreading::new(&victim, WINDOW).await;
    let _unread = head(resetting.list(&victim).await).await;
    let mut calls = 0;
    while calls < CALLS
        && let Some(response) = call_empty(&victim, &resetting, "grpc.health.v1.Health/Check").await
        // To drop what comes is a reset, because the end of the answer has no room.
        && timeout(SOON, response).await.expect("a head in time").is_ok()
    {
        calls += 1;
    }
    resetting.ends().await;
    let grown = victim.peak_memory_kib().saturating_sub(before);
    println!("{calls} calls: {grown} KiB");
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    assert_eq!(victim.metric(&format!("{CLOSED}{{reason=\"unread_too_much\"}}")).await, 1.0);
    victim.until(UNREAD, 0.0).await;
    works(&innocent, "after").await;
}
