//! S1: connections that are silent, and those that are open at one end only, or seem so. Over HTTP/2 the server sends
//! them pings, and closes those that do not answer, or leave it no room to send one.

use super::bounds::{FILES, answer, connection, request, unfinished};
use super::victim::{Victim, works};
use crate::system::program::SOON;
use bytes::Bytes;
use futures::future::join_all;
use h2::client::SendRequest;
use prost::Message as _;
use std::net::SocketAddr;
use std::time::Duration;
use tallystone_proto::queue::v1::{WorkRequest, WorkStart};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

const CONNECTIONS: usize = 50;
const STREAMS: usize = 20;
const OPEN: &str = "tallystone_request_streams";
/// What a client sends first, with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The head of a frame with a ping that is no answer.
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0];
/// `KEEPALIVE` of the transport: the silence before a ping, and then the time for its answer.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Begins a connection and then sends nothing. Returns what the server has sent until it closed the connection, and the
/// time until then.
async fn half_open(address: SocketAddr) -> (Vec<u8>, Duration) {
    let mut tcp = TcpStream::connect(address).await.expect("a connection");
    tcp.write_all(PREFACE).await.expect("room in a new connection");
    let (began, mut received) = (Instant::now(), Vec::new());
    let end = timeout(SOON, tcp.read_to_end(&mut received)).await;
    // The end may be a reset.
    let _ = end.expect("the server closes the connection");
    (received, began.elapsed())
}

/// A connection whose client stops reading and writing at the signal, and keeps the connection open.
async fn connection_that_stops(victim: &Victim) -> (SendRequest<Bytes>, oneshot::Sender<()>) {
    let tcp = TcpStream::connect(victim.address).await.expect("a connection");
    let (calls, connection) = h2::client::handshake(tcp).await.expect("HTTP/2");
    let (stop, stopped) = oneshot::channel();
    tokio::spawn(async move {
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            _ = &mut connection => {}
            _ = stopped => std::future::pending().await,
        }
    });
    (calls, stop)
}

/// Sends pings and reads no answer until the server closes the connection. Once there is no room for the answers, the server reads no
/// further frame, and the system of this end still acknowledges that it is there.
async fn flood(address: SocketAddr) {
    const PAYLOAD: &[u8] = &[0; 8];
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("a small window");
    let mut tcp = socket.connect(address).await.expect("a connection");
    tcp.write_all(PREFACE).await.expect("room in a new connection");
    let pings = [PING, PAYLOAD].concat().repeat(1_000);
    while tcp.write_all(&pings).await.is_ok() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_connection_that_takes_nothing_ends_in_time() {
    let victim = Victim::start("answer_ms = 500", FILES).await;
    timeout(SOON, flood(victim.address)).await.expect("the server closes the connection");
    assert_eq!(victim.metric("tallystone_connections_closed_total{reason=\"unread_too_long\"}").await, 1.0);
    works(&victim.innocent(), "after").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_silent_connections_end() {
    let victim = Victim::start("first_bytes_ms = 500", FILES).await;
    let open = victim.metric("tallystone_connections").await;
    let beginnings = [&b""[..], b"P", b"PRI * HTTP/2.0\r\n"];
    let silent = beginnings.map(async |bytes| {
        let mut tcp = TcpStream::connect(victim.address).await.expect("a connection");
        tcp.write_all(bytes).await.expect("some bytes");
        let mut answer = Vec::new();
        let end = timeout(SOON, tcp.read_to_end(&mut answer)).await.expect("an end");
        assert!(end.is_err() || answer.is_empty() || answer.len() < 100, "{answer:?}");
    });
    join_all(silent).await;
    // The metrics page is read over connections of the other port, which count too.
    assert!(victim.metric("tallystone_connections").await <= open + 2.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_connections_over_http_2_that_answer_no_ping_end_and_idle_ones_that_do_stay() {
    let victim = Victim::start("", FILES).await;
    works(&victim.innocent(), "before").await;
    let idle = connection(&victim).await;
    let (calls, stop) = connection_that_stops(&victim).await;
    let start = Some(WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..WorkStart::default() });
    let first = WorkRequest { start, ..WorkRequest::default() }.encode_to_vec();
    let first = [&[0, 0, 0, 0, first.len() as u8], &first[..]].concat();
    let streams = unfinished(&victim, &calls, STREAMS, "Work", &first).await;
    victim.until(OPEN, STREAMS as f64).await;
    stop.send(()).expect("an open connection");
    let stopped = Instant::now();
    for (received, after) in join_all((0..CONNECTIONS).map(async |_| half_open(victim.address).await)).await {
        assert!(received.windows(PING.len()).any(|head| head == PING), "closed without a ping: {received:?}");
        assert!(after >= KEEPALIVE, "closed after {after:?}, before a ping and its time");
    }
    // The streams of a client that reads nothing end with its connection.
    victim.until(OPEN, 0.0).await;
    assert!(stopped.elapsed() >= KEEPALIVE);
    println!("the last one has ended after {:?}", stopped.elapsed());
    drop(streams);
    // A client that makes no call, but answers pings, keeps its connection.
    let mut idle = idle.ready().await.expect("an open connection");
    let (response, mut body) = idle.send_request(request(&victim, "Dequeue"), false).expect("a stream");
    body.send_data(Bytes::from_static(&[0; 5]), true).expect("a request");
    assert_eq!(answer(response).await.status(), 200);
    works(&victim.innocent(), "after").await;
}
