//! S1: connections, time and memory are bounded without any configuration.

use super::victim::{Victim, works};
use crate::system::program::SOON;
use bytes::Bytes;
use futures::future::{join_all, select_all};
use h2::client::SendRequest;
use http::{Request, Response};
use prost::Message as _;
use tallystone_proto::queue::v1::{WorkRequest, WorkStart};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

pub(super) const FILES: u32 = 4_096;
const STREAMS: usize = 1_000;
/// The prefix of a gRPC message of 4 MiB.
const PREFIX: &[u8] = &[0, 0, 0x40, 0, 0];
/// What an attack may cost in memory.
pub(super) const GROWTH_KIB_MAX: u64 = 100 * 1024;
const UNFINISHED: &str = "tallystone_unfinished_request_bytes";

pub(super) async fn connection(victim: &Victim) -> SendRequest<Bytes> {
    let tcp = TcpStream::connect(victim.address).await.expect("a connection");
    let (calls, connection) = h2::client::handshake(tcp).await.expect("HTTP/2");
    tokio::spawn(connection);
    calls
}

/// An address of this machine that is not the one of other connections.
pub(super) const OTHER: &str = "127.0.0.2";

pub(super) async fn connection_from(victim: &Victim, address: &str) -> SendRequest<Bytes> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(format!("{address}:0").parse().expect("an address")).expect("an address of this machine");
    let tcp = socket.connect(victim.address).await.expect("a connection");
    let (calls, connection) = h2::client::handshake(tcp).await.expect("HTTP/2");
    tokio::spawn(connection);
    calls
}

pub(super) fn request(victim: &Victim, method: &str) -> Request<()> {
    request_with(victim, method, Some("application/grpc"))
}

fn request_with(victim: &Victim, method: &str, content_type: Option<&str>) -> Request<()> {
    let path = format!("http://{}/tallystone.queue.v1.Queue/{method}", victim.address);
    let mut request = Request::post(path).header("te", "trailers");
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    request.body(()).expect("a request")
}

/// The answer to a request; an attack that succeeds gets none.
pub(super) async fn answer(response: h2::client::ResponseFuture) -> Response<h2::RecvStream> {
    timeout(SOON, response).await.expect("an answer in time").expect("an answer")
}

/// The details of a refusal, as text.
pub(super) fn reason<T>(response: &Response<T>) -> String {
    let status = tonic::Status::from_header_map(response.headers()).expect("a refusal");
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
    String::from_utf8_lossy(status.details()).into_owned()
}

/// The same, also of an answer that has begun.
async fn refusal(response: h2::client::ResponseFuture) -> String {
    let response = answer(response).await;
    if response.headers().contains_key("grpc-status") {
        return reason(&response);
    }
    let mut body = response.into_body();
    while body.data().await.is_some() {}
    let mut end = Response::new(());
    *end.headers_mut() = body.trailers().await.expect("an end").expect("trailers");
    reason(&end)
}

/// Opens streams that each send these bytes and no more; returns the answers to come.
pub(super) async fn unfinished(
    victim: &Victim,
    calls: &SendRequest<Bytes>,
    count: usize,
    method: &str,
    bytes: &[u8],
) -> Vec<(h2::client::ResponseFuture, h2::SendStream<Bytes>)> {
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut calls = calls.clone().ready().await.expect("room for a stream");
        let (response, mut body) = calls.send_request(request(victim, method), false).expect("a stream");
        // A refusal may come before them.
        let _ = body.send_data(Bytes::copy_from_slice(bytes), false);
        streams.push((response, body));
    }
    streams
}

#[tokio::test]
async fn s1_a_connection_that_holds_all_calls_that_it_may_is_counted() {
    const FULL: &str = "tallystone_connections_full_total";
    let victim = Victim::start("connection_streams_max = 3", FILES).await;
    let calls = connection(&victim).await;
    let mut streams = unfinished(&victim, &calls, 2, "Enqueue", PREFIX).await;
    victim.until(UNFINISHED, (2 * PREFIX.len()) as f64).await;
    assert_eq!(victim.metric(FULL).await, 0.0);
    streams.extend(unfinished(&victim, &calls, 1, "Enqueue", PREFIX).await);
    victim.until(FULL, 1.0).await;
    works(&victim.innocent(), "meanwhile").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_lengths_of_messages_cost_no_memory_and_unfinished_requests_end() {
    let victim = Victim::start("request_ms = 10000", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();

    let calls = connection(&victim).await;
    let streams = unfinished(&victim, &calls, STREAMS, "Enqueue", PREFIX).await;
    victim.until(UNFINISHED, (STREAMS * PREFIX.len()) as f64).await;
    works(&innocent, "meanwhile").await;
    let grown = victim.memory_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for {STREAMS} requests of five bytes");

    let (responses, bodies): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
    for response in join_all(responses.into_iter().map(answer)).await {
        let refused = reason(&response);
        assert!(refused.contains("BODY_TOO_SLOW"), "{refused}");
    }
    drop(bodies);
    victim.until(UNFINISHED, 0.0).await;
    works(&innocent, "after").await;
}

/// The services of gRPC decode whatever a request calls itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_lengths_of_messages_cost_no_memory_whatever_their_content_type() {
    const OF_EACH: usize = STREAMS / 2;
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let calls = connection(&victim).await;
    let mut kept = Vec::new();
    for content_type in [None, Some("application/json")] {
        for _ in 0..OF_EACH {
            let mut calls = calls.clone().ready().await.expect("room for a stream");
            let request = request_with(&victim, "Enqueue", content_type);
            let (response, mut body) = calls.send_request(request, false).expect("a stream");
            body.send_data(Bytes::from_static(PREFIX), false).expect("some bytes");
            kept.push((response, body));
        }
    }
    victim.until(UNFINISHED, (kept.len() * PREFIX.len()) as f64).await;
    works(&innocent, "meanwhile").await;
    let grown = victim.memory_kib().saturating_sub(before);
    println!("{} requests of five bytes: {grown} KiB", kept.len());
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
}

/// Millions of empty elements in a message of 8 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_empty_elements_of_a_message_cost_no_memory() {
    const ELEMENTS: usize = 4_000_000;
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let calls = connection(&victim).await;
    // The field of the messages in an EnqueueRequest, and that of the calls in an EnqueueStreamRequest.
    for (method, field) in [("Enqueue", 2_u8), ("EnqueueStream", 1)] {
        let elements = [field << 3 | 2, 0].repeat(ELEMENTS);
        let message = [&[0][..], &(elements.len() as u32).to_be_bytes(), &elements].concat();
        let mut calls = calls.clone().ready().await.expect("room for a stream");
        let (response, mut body) = calls.send_request(request(&victim, method), false).expect("a stream");
        send(&mut body, message.into()).await;
        let refused = refusal(response).await;
        assert!(refused.contains("TOO_MANY_ELEMENTS"), "{method}: {refused}");
        let grown = victim.peak_memory_kib().saturating_sub(before);
        println!("{method} with {ELEMENTS} empty elements: {grown} KiB");
        assert!(grown < GROWTH_KIB_MAX, "{method}: {grown} KiB");
    }
    works(&innocent, "after").await;
}

/// The decoder of a stream keeps the memory of its largest message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_silent_streams_after_a_large_message_are_bounded() {
    const MIB: usize = 1024 * 1024;
    const OF_EACH: usize = 5;
    let victim = Victim::start(&format!("unfinished_bytes_max = {}", 64 * MIB), FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let start = Some(WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..WorkStart::default() });
    let mut request = WorkRequest { start, ..WorkRequest::default() }.encode_to_vec();
    // A field that no version knows, with a length.
    prost::encoding::bytes::encode(1_000, &zeros(7 * MIB), &mut request);
    let message = Bytes::from([&[0][..], &(request.len() as u32).to_be_bytes(), &request].concat());
    let (mut kept, mut connections) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let calls = connection(&victim).await;
        for (response, mut body) in unfinished(&victim, &calls, OF_EACH, "Work", b"").await {
            send(&mut body, message.clone()).await;
            kept.push((response, body));
        }
        connections.push(calls);
    }
    // This address may keep 32 MiB: four streams. A refusal ends the others.
    victim.until("tallystone_request_streams", 4.0).await;
    let refused = victim.metric("tallystone_unfinished_requests_refused_total{reason=\"too_many_bytes\"}").await;
    assert_eq!(refused, (4 * OF_EACH - 4) as f64);
    let grown = victim.memory_kib().saturating_sub(before);
    println!("{} streams with a message of 7 MiB: {grown} KiB", kept.len());
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    works(&innocent, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_heads_over_http_1_are_bounded() {
    const CONNECTIONS: usize = 500;
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    // A head that does not end.
    let attack = (0..CONNECTIONS).map(async |_| {
        let mut tcp = TcpStream::connect(victim.address).await.expect("a connection");
        let mut begin = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx: ".to_vec();
        begin.resize(400 * 1024, b'x');
        let _ = tcp.write_all(&begin).await;
        tcp
    });
    let kept = join_all(attack).await;
    victim.until("tallystone_connections_closed_total{reason=\"head_too_large\"}", CONNECTIONS as f64).await;
    let grown = victim.memory_kib().saturating_sub(before);
    println!("{CONNECTIONS} heads: {grown} KiB");
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for {CONNECTIONS} heads");
    works(&innocent, "after").await;
    drop(kept);
}

/// Such calls are in no metric of an RPC.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_calls_that_no_service_reads_are_counted() {
    let victim = Victim::start("", FILES).await;
    let mut calls = connection(&victim).await;
    for (method, bytes, reason) in [
        // The prefix of a message of 16 MiB, a message that ends within a field, and a method that does not exist.
        ("Enqueue", &[0, 1, 0, 0, 0][..], "too_large"),
        ("Enqueue", &[0, 0, 0, 0, 2, 0x0a, 9], "unreadable"),
        ("Steal", &[0; 5], "method"),
    ] {
        calls = calls.ready().await.expect("room for a stream");
        let (response, mut body) = calls.send_request(request(&victim, method), false).expect("a stream");
        // A refusal may come before it.
        let _ = body.send_data(Bytes::copy_from_slice(bytes), true);
        let refused = answer(response).await;
        assert!(refused.headers().contains_key("grpc-status"), "{method}: {refused:?}");
        victim.until(&format!("tallystone_unread_calls_refused_total{{reason=\"{reason}\"}}"), 1.0).await;
    }
    works(&victim.innocent(), "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_request_without_a_body_ends_and_a_silent_stream_that_has_begun_does_not() {
    let victim = Victim::start("request_ms = 500", FILES).await;
    let calls = connection(&victim).await;
    let start = Some(WorkStart { queue: "nowhere".to_owned(), ..WorkStart::default() });
    let request = WorkRequest { start, subscription: 1, ..WorkRequest::default() }.encode_to_vec();
    let first = [&[0, 0, 0, 0, request.len() as u8], &request[..]].concat();
    let mut silent = unfinished(&victim, &calls, 1, "Work", &first).await;
    let mut never_sent = unfinished(&victim, &calls, 1, "Enqueue", b"").await;
    never_sent.extend(unfinished(&victim, &calls, 1, "Work", b"").await);
    for (response, _body) in never_sent {
        assert!(refusal(response).await.contains("BODY_TOO_SLOW"));
    }
    // The stream began earlier, and has not ended. One message that begins must end.
    let (response, mut body) = silent.remove(0);
    body.send_data(Bytes::from_static(PREFIX), false).expect("some bytes");
    assert!(refusal(response).await.contains("BODY_TOO_SLOW"));
}

/// Sends bytes as fast as the other end takes them; stops when it takes no more.
async fn send(body: &mut h2::SendStream<Bytes>, mut bytes: Bytes) {
    const CHUNK_BYTES: usize = 16 * 1024;
    while !bytes.is_empty() {
        body.reserve_capacity(CHUNK_BYTES.min(bytes.len()));
        let Some(Ok(room)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await else { return };
        let chunk = bytes.split_to(room.min(CHUNK_BYTES).min(bytes.len()));
        if body.send_data(chunk, false).is_err() {
            return;
        }
    }
}

fn zeros(bytes: usize) -> Bytes {
    vec![0; bytes].into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_large_requests_that_never_end_are_bounded() {
    const MIB: usize = 1024 * 1024;
    let victim = Victim::start("request_ms = 60000\nconnection_unfinished_bytes_max = 8388608", FILES).await;
    let calls = connection(&victim).await;
    // Each sends 3 MiB of 4. Two fit; a third one is too much.
    let mut kept = unfinished(&victim, &calls, 2, "Enqueue", PREFIX).await;
    for (_, body) in &mut kept {
        send(body, zeros(3 * MIB)).await;
    }
    victim.until(UNFINISHED, (2 * (3 * MIB + PREFIX.len())) as f64).await;
    for (response, mut body) in unfinished(&victim, &calls, 2, "Enqueue", PREFIX).await {
        let (response, ()) = tokio::join!(answer(response), send(&mut body, zeros(3 * MIB)));
        let why = reason(&response);
        assert!(why.contains("TOO_MANY_UNFINISHED_BYTES"), "{why}");
    }
    works(&victim.innocent(), "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_silent_streams_are_bounded() {
    let victim = Victim::start("unfinished_requests_max = 100\nrequest_ms = 60000", FILES).await;
    let calls = connection(&victim).await;
    let (responses, _bodies): (Vec<_>, Vec<_>) = unfinished(&victim, &calls, 51, "Work", b"").await.into_iter().unzip();
    let (refused, _, _) = select_all(responses.into_iter().map(|response| Box::pin(refusal(response)))).await;
    assert!(refused.contains("TOO_MANY_UNFINISHED_REQUESTS"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_empty_requests_of_work_streams_keep_no_caller_waiting() {
    const BYTES: usize = 20 * 1024 * 1024;
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let start = Some(WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..WorkStart::default() });
    let first = WorkRequest { start, ..WorkRequest::default() }.encode_to_vec();
    let first = [&[0, 0, 0, 0, first.len() as u8], &first[..]].concat();
    let mut streams = Vec::new();
    for _ in 0..2 {
        let calls = connection(&victim).await;
        streams.extend(unfinished(&victim, &calls, 1, "Work", &first).await);
    }
    // Five zeros are an empty request.
    let zeros = zeros(BYTES);
    let flood = streams.iter_mut().map(|(_, body)| send(body, zeros.clone()));
    let mut flood = std::pin::pin!(join_all(flood));
    let (mut meanwhile, mut grown) = (0, 0);
    loop {
        let id = format!("meanwhile-{meanwhile}");
        tokio::select! {
            biased;
            _ = &mut flood => break,
            () = works(&innocent, &id) => meanwhile += 1,
        }
        grown = grown.max(victim.memory_kib().saturating_sub(before));
    }
    println!("{meanwhile} calls of another caller meanwhile, {grown} KiB");
    assert!(meanwhile > 0, "the innocent caller is served");
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    works(&innocent, "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_streams_that_have_begun_are_bounded() {
    const MAX: usize = 2_000;
    let victim = Victim::start(&format!("streams_max = {MAX}"), FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let start = Some(WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..WorkStart::default() });
    let request = WorkRequest { start, ..WorkRequest::default() }.encode_to_vec();
    let first = [&[0, 0, 0, 0, request.len() as u8], &request[..]].concat();
    let calls = connection(&victim).await;
    let mut kept = unfinished(&victim, &calls, MAX / 2, "Work", &first).await;
    victim.until("tallystone_request_streams", (MAX / 2) as f64).await;
    // This address has its half, over each of its connections.
    for (response, _body) in unfinished(&victim, &connection(&victim).await, 3, "Work", &first).await {
        let refused = refusal(response).await;
        assert!(refused.contains("TOO_MANY_STREAMS"), "{refused}");
    }
    assert_eq!(victim.metric("tallystone_request_streams_refused_total").await, 3.0);
    let grown = victim.memory_kib().saturating_sub(before);
    println!("{} streams that have begun: {grown} KiB", MAX / 2);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    works(&innocent, "meanwhile").await;
    // Another address has its own half.
    let other = connection_from(&victim, OTHER).await;
    let of_other = unfinished(&victim, &other, 1, "Work", &first).await;
    victim.until("tallystone_request_streams", (MAX / 2 + 1) as f64).await;
    kept.clear();
    victim.until("tallystone_request_streams", 1.0).await;
    drop(of_other);
}
