//! Attacks by streams: those whose requests do not arrive in full, those that request nothing, and those that the server cannot read.

use anyhow::Result;
use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::Request;
use prost::Message as _;
use tallystone_proto::queue::v1::{WorkRequest, WorkStart};
use tokio::net::TcpStream;

/// The prefix of a gRPC message of 4 MiB.
const PREFIX: &[u8] = &[0, 0, 0x40, 0, 0];
/// The bytes that each of the two streams of a connection sends and that the server does not read. The transport keeps more of such small
/// frames than their bytes.
const UNREAD_BYTES: usize = 32 * 1024;
const FRAME_BYTES: usize = 256;

type Stream = (ResponseFuture, SendStream<Bytes>);

pub(super) async fn connect(url: &str) -> Result<SendRequest<Bytes>> {
    connect_by(&Builder::new(), url).await
}

async fn connect_by(builder: &Builder, url: &str) -> Result<SendRequest<Bytes>> {
    let tcp = TcpStream::connect(url.trim_start_matches("http://")).await?;
    let (calls, connection) = builder.handshake(tcp).await?;
    tokio::spawn(connection);
    Ok(calls)
}

/// Opens a stream that sends the prefix of a message; another one when the server has ended it.
pub(super) async fn unfinished(calls: SendRequest<Bytes>, url: String) {
    while let Ok((response, _body)) = open(&calls, &url, "Enqueue", Bytes::from_static(PREFIX)).await {
        let _ = response.await;
    }
}

/// Opens so many Work streams of the queue on one connection. They are open as long as the future that is returned.
pub(super) async fn silent(url: &str, queue: &str, streams: usize) -> Result<impl Future<Output = ()> + use<>> {
    let start = WorkStart { queue: queue.to_owned(), worker: "attacker".to_owned(), ..WorkStart::default() };
    let (calls, mut kept) = (connect(url).await?, Vec::new());
    for _ in 0..streams {
        kept.push(work(&calls, url, start.clone()).await?);
    }
    Ok(hold((calls, kept)))
}

/// A connection that takes no answers. The queue of its streams has no name, so the server has an answer, and reads no further request.
pub(super) async fn unread(url: &str) -> Result<impl Future<Output = ()> + use<>> {
    let calls = connect_by(Builder::new().initial_window_size(0), url).await?;
    let (frame, mut streams) = (Bytes::from_static(&[0; FRAME_BYTES]), Vec::new());
    for _ in 0..2 {
        let mut stream = work(&calls, url, WorkStart::default()).await?;
        for _ in 0..UNREAD_BYTES / FRAME_BYTES {
            // The server may have ended the connection.
            let _ = stream.1.send_data(frame.clone(), false);
        }
        streams.push(stream);
    }
    Ok(hold((calls, streams)))
}

/// Opens a Work stream with one subscription.
async fn work(calls: &SendRequest<Bytes>, url: &str, start: WorkStart) -> Result<Stream> {
    let request = WorkRequest { start: Some(start), subscription: 1, ..WorkRequest::default() }.encode_to_vec();
    let message = [&[0][..], &(request.len() as u32).to_be_bytes(), &request].concat();
    open(calls, url, "Work", message.into()).await
}

/// Calls a method of the queue, and sends the begin of its request.
async fn open(calls: &SendRequest<Bytes>, url: &str, method: &str, begin: Bytes) -> Result<Stream> {
    let path = format!("{url}/tallystone.queue.v1.Queue/{method}");
    let head = Request::post(path).header("content-type", "application/grpc").header("te", "trailers").body(())?;
    let mut calls = calls.clone().ready().await?;
    let (response, mut body) = calls.send_request(head, false)?;
    body.send_data(begin, false)?;
    Ok((response, body))
}

/// Keeps it until the future is dropped.
pub(super) async fn hold<T>(_open: T) {
    std::future::pending().await
}
