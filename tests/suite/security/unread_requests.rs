//! S1: requests that no call reads take bounded memory, however many connections they come over.

use super::bounds::{FILES, GROWTH_KIB_MAX, connection, request};
use super::victim::{Victim, works};
use bytes::Bytes;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use prost::Message as _;
use tallystone_client::NewMessage;
use tallystone_proto::queue::v1::{WorkRequest, WorkStart};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

const MIB: usize = 1024 * 1024;
const CONNECTIONS: usize = 1_000;
/// As much as the window of a connection admits.
const WINDOW_BYTES: usize = 2 * MIB;
const UNREAD: &str = "tallystone_unread_request_bytes";

/// A connection that leaves the server no room for answers, and whose streams the server therefore does not read.
struct Unanswered {
    _calls: SendRequest<Bytes>,
    _streams: Vec<(ResponseFuture, SendStream<Bytes>)>,
    task: JoinHandle<Result<(), h2::Error>>,
}

impl Unanswered {
    /// Sends so many bytes in frames of this size, on two streams: each of them has half of the window.
    async fn new(victim: &Victim, bytes: usize, frame: &Bytes) -> Unanswered {
        let tcp = TcpStream::connect(victim.address).await.expect("a connection");
        let builder =
            h2::client::Builder::new().initial_window_size(0).max_send_buffer_size(WINDOW_BYTES).handshake(tcp);
        let (calls, connection) = builder.await.expect("HTTP/2");
        let task = tokio::spawn(connection);
        // The queue has no name, so the subscription ends: the server has something to say, and reads no further request.
        let start = Some(WorkStart::default());
        let first = WorkRequest { start, subscription: 1, ..WorkRequest::default() }.encode_to_vec();
        let answered = Bytes::from([&[0, 0, 0, 0, first.len() as u8], &first[..]].concat());
        let mut streams = Vec::new();
        for _ in 0..2 {
            let mut calls = calls.clone().ready().await.expect("room for a stream");
            let (response, mut body) = calls.send_request(request(victim, "Work"), false).expect("a stream");
            body.send_data(answered.clone(), false).expect("a stream");
            for _ in 0..(bytes / 2 - answered.len()) / frame.len() {
                // The server may have ended the connection.
                let _ = body.send_data(frame.clone(), false);
            }
            streams.push((response, body));
        }
        Unanswered { _calls: calls, _streams: streams, task }
    }
}

async fn attack(bytes: usize, frame_bytes: usize) {
    let victim = Victim::start("", FILES).await;
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let before = victim.memory_kib();
    let (frame, mut kept) = (Bytes::from(vec![0; frame_bytes]), Vec::new());
    for number in 0..CONNECTIONS {
        kept.push(Unanswered::new(&victim, bytes, &frame).await);
        if number % 100 == 99 {
            works(&innocent, &format!("meanwhile-{number}")).await;
        }
    }
    let grown = victim.peak_memory_kib().saturating_sub(before);
    // A large request of another caller passes meanwhile, piece by piece.
    let large = (0..95).map(|number| NewMessage::new(format!("large-{number}"), vec![7; 32 * 1024])).collect();
    let enqueued = innocent.enqueue("large", large).await.expect("an Enqueue");
    assert!(enqueued.iter().all(Result::is_ok), "{enqueued:?}");
    println!("{CONNECTIONS} connections, frames of {frame_bytes}: {grown} KiB, {} unread", victim.metric(UNREAD).await);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB for {CONNECTIONS} connections with frames of {frame_bytes} bytes");
    assert!(victim.metric("tallystone_unread_request_pauses_total").await > 0.0);
    works(&innocent, "after").await;
    kept.iter().for_each(|connection| connection.task.abort());
    drop(kept);
    victim.until(UNREAD, 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_requests_that_no_call_reads_take_less_than_100_mb() {
    attack(WINDOW_BYTES, 16 * 1024).await;
}

/// The transport keeps more of a small frame than its bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_small_frames_that_no_call_reads_take_less_than_100_mb() {
    attack(64 * 1024, 256).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_connections_whose_requests_no_call_reads_make_room_in_time() {
    let victim = Victim::start("unread_request_bytes_max = 1048576\nrequest_ms = 1000", FILES).await;
    let silent = connection(&victim).await;
    let (frame, mut kept) = (Bytes::from(vec![0; 16 * 1024]), Vec::new());
    for _ in 0..2 {
        kept.push(Unanswered::new(&victim, WINDOW_BYTES, &frame).await);
    }
    victim.until("tallystone_connections_closed_total{reason=\"requests_unread\"}", 2.0).await;
    victim.until(UNREAD, 0.0).await;
    assert!(silent.ready().await.is_ok(), "a silent connection stays");
    works(&victim.innocent(), "after").await;
}
