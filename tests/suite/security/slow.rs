//! S1: callers that send a part of what they owe, byte by byte or no more of it, over HTTP/1 and TLS. Each is closed at its limit
//! and counted, and other callers go on.

use super::secured::Secured;
use super::tls::metric;
use super::victim::{Victim, works};
use crate::system::program::{SOON, metrics_page};
use futures::future::join_all;
use std::net::SocketAddr;
use std::time::Duration;
use tallystone_client::{Client, CounterClient, NamespaceConfig, NewAdd, NewMessage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::time::{Instant, sleep, timeout};

/// As many callers do it at once.
const CALLERS: usize = 50;
/// Between two bytes of a caller.
const PACE: Duration = Duration::from_millis(100);
const CLOSED: &str = "tallystone_connections_closed_total";
/// The limit that is tested; the others have their defaults.
const LIMIT: Duration = Duration::from_secs(3);

/// How a connection has ended.
struct End {
    answer: Vec<u8>,
    after: Duration,
}

/// Sends the begin at once and then the rest, a byte at a time, until the server closes the connection.
async fn drip(address: SocketAddr, begin: &[u8], rest: impl Iterator<Item = u8>) -> End {
    let at = Instant::now();
    let tcp = TcpStream::connect(address).await.expect("a connection");
    let (mut from, mut to) = tcp.into_split();
    to.write_all(begin).await.expect("room in a new connection");
    let send = async |mut to: OwnedWriteHalf| {
        for byte in rest {
            sleep(PACE).await;
            if to.write_all(&[byte]).await.is_err() {
                return;
            }
        }
        // All of it was sent; what follows never comes, and the connection stays open on this side.
        std::future::pending::<()>().await;
    };
    let read = async {
        let mut answer = Vec::new();
        // It may end with a reset, because some bytes were not read.
        while from.read_buf(&mut answer).await.is_ok_and(|bytes| bytes > 0) {}
        answer
    };
    let mut read = std::pin::pin!(read);
    let answer = timeout(SOON, async {
        tokio::select! {
            answer = &mut read => answer,
            () = send(to) => read.await,
        }
    });
    End { answer: answer.await.expect("the server closes the connection"), after: at.elapsed() }
}

/// Calls of another caller until all of these have ended; each of them finds the server working.
async fn meanwhile<T>(attack: impl Future<Output = T>, call: impl AsyncFn(usize)) -> T {
    let mut attack = std::pin::pin!(attack);
    let mut calls = 0;
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut attack => break ended,
            () = call(calls) => calls += 1,
        }
    };
    println!("{calls} calls of another caller meanwhile");
    assert!(calls > 0, "the innocent caller is served");
    ended
}

fn assert_at_limit(ends: &[End]) {
    let (first, last) = (ends.iter().map(|end| end.after).min(), ends.iter().map(|end| end.after).max());
    println!("the first after {first:?}, the last after {last:?}");
    assert!(first.is_some_and(|first| first >= LIMIT), "none is closed before its limit: {first:?}");
}

/// The lines of `[limits]` for the limit of this key.
fn limit(key: &str) -> String {
    format!("{key} = {}\n", LIMIT.as_millis())
}

async fn heads(key: &str, reason: &str, begin: &[u8], rest: &[u8]) {
    let victim = Victim::start(&limit(key), super::bounds::FILES).await;
    let innocent = victim.innocent();
    let attack = join_all((0..CALLERS).map(|_| drip(victim.address, begin, rest.iter().copied())));
    let ends = meanwhile(attack, async |number| works(&innocent, &format!("meanwhile-{number}")).await).await;
    assert_at_limit(&ends);
    assert!(ends.iter().all(|end| end.answer.is_empty()), "none gets an answer");
    victim.until(&format!("{CLOSED}{{reason=\"{reason}\"}}"), CALLERS as f64).await;
    assert_eq!(victim.metric(CLOSED).await, CALLERS as f64, "for that reason only");
    works(&innocent, "after").await;
}

/// The begin of a head, longer than what says that it is not one of HTTP/2.
const HEAD: &[u8] = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nx-slow: ";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_first_line_byte_by_byte_ends_at_its_limit() {
    // They are fewer than say which version of HTTP follows.
    heads("first_bytes_ms", "silent", b"G", b"ET /livez HTTP/1.").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_head_over_http_1_byte_by_byte_ends_at_its_limit() {
    heads("request_ms", "head_too_slow", HEAD, &[b'x'; 10_000]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_later_head_of_a_connection_ends_at_its_limit_and_an_idle_connection_does_not() {
    let victim = Victim::start(&limit("request_ms"), super::bounds::FILES).await;
    let whole = [HEAD, b"no\r\n\r\n"].concat();
    let mut idle = TcpStream::connect(victim.address).await.expect("a connection");
    let answer = async |tcp: &mut TcpStream| {
        tcp.write_all(&whole).await.expect("an open connection");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\"SERVING\"}") {
            let bytes = timeout(SOON, tcp.read_buf(&mut answer)).await.expect("an answer in time").expect("an answer");
            assert!(bytes > 0, "closed after {}", String::from_utf8_lossy(&answer));
        }
    };
    answer(&mut idle).await;
    let begin = [&whole[..], HEAD].concat();
    let ends = (0..CALLERS).map(|_| drip(victim.address, &begin, std::iter::repeat_n(b'x', 10_000)));
    let ends = join_all(ends).await;
    assert_at_limit(&ends);
    assert!(ends.iter().all(|end| end.answer.starts_with(b"HTTP/1.1 200")), "the first request of each is answered");
    victim.until(&format!("{CLOSED}{{reason=\"head_too_slow\"}}"), CALLERS as f64).await;
    // It was silent for as long.
    answer(&mut idle).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_half_a_tls_handshake_ends_at_its_limit() {
    // The begin of a record of 512 bytes with a ClientHello of TLS 1.2 or 1.3, and half of its bytes.
    let mut hello = vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    hello.resize(256, 0x5a);
    let place = Secured::new().await;
    let config = place.path("t.toml");
    std::fs::write(&config, format!("[limits]\n{}", limit("first_bytes_ms"))).expect("a file");
    let server = place.start("server", &[&place.tls()[..], &["--config", &config]].concat()).await;
    let innocent = Client::builder(server.https()).retry_for(Duration::ZERO).ca_file(&place.ca.file);
    let innocent = innocent.connect().await.expect("TLS");
    let attack = (0..CALLERS).map(|number| {
        // Some send no more, and some go on.
        let more = if number % 2 == 0 { 0 } else { 100 };
        drip(server.address, &hello, std::iter::repeat_n(0x5a, more))
    });
    let call = async |number: usize| {
        let message = NewMessage::new(format!("meanwhile-{number}"), "");
        assert!(innocent.enqueue("q", vec![message]).await.expect("an Enqueue")[0].is_ok());
        // On a new connection, too.
        let client = Client::builder(server.https()).retry_for(Duration::ZERO).ca_file(&place.ca.file);
        client.connect().await.expect("TLS").get_queue("q").await.expect("a queue");
    };
    let ends = meanwhile(join_all(attack), call).await;
    assert_at_limit(&ends);
    let silent = metric(&server, &place.ca, &format!("{CLOSED}{{reason=\"silent\"}}")).await;
    assert_eq!(silent, CALLERS as f64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_a_body_over_http_1_byte_by_byte_ends_at_its_limit() {
    const REFUSED: &str = "tallystone_unfinished_requests_refused_total{reason=\"too_slow\"} ";
    let place = Secured::new().await;
    let config = place.path("t.toml");
    std::fs::write(&config, format!("[limits]\n{}", limit("request_ms"))).expect("a file");
    let server = place.start("counters", &["--config", &config]).await;
    let innocent = CounterClient::builder(format!("http://{}", server.address)).retry_for(Duration::ZERO);
    let innocent = innocent.connect().await.expect("the counters");
    innocent.put_namespace("own", NamespaceConfig::default()).await.expect("a namespace");
    let head = |more: &str| {
        let head = "POST /v1/add_count HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        format!("{head}{more}\r\n\r\n")
    };
    let begins = [
        head("content-length: 100000") + "{",
        // A chunk that never ends.
        head("transfer-encoding: chunked") + "10000\r\n{",
    ];
    let attack = (0..CALLERS).map(|number| {
        let begin = begins[number % begins.len()].as_bytes();
        drip(server.address, begin, std::iter::repeat_n(b' ', 10_000))
    });
    let call = async |_| {
        innocent.add("own", NewAdd::new("cats", 1)).await.expect("an add");
    };
    let ends = meanwhile(join_all(attack), call).await;
    assert_at_limit(&ends);
    for end in &ends {
        let answer = String::from_utf8_lossy(&end.answer);
        assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("\"BODY_TOO_SLOW\""), "{answer}");
    }
    let page = metrics_page(&server.metrics.to_string()).await;
    let refused = page.lines().find_map(|line| line.strip_prefix(REFUSED)).expect("the metric");
    assert_eq!(refused, CALLERS.to_string());
}
