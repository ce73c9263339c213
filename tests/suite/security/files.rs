//! S1: a process that can open no more files. Silent connections make room, and one address leaves files to others. It
//! also leaves watches of the health.

use super::bounds::{FILES, OTHER, answer, connection_from, reason, request};
use super::victim::{Victim, works};
use crate::system::program::SOON;
use bytes::Bytes;
use http::Request;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

/// The most warnings about refused connections: of each of two ports one in 10 s.
fn warnings_max(since: Instant) -> usize {
    2 * (1 + since.elapsed().as_secs() as usize / 10)
}

/// The number of warnings about refused connections.
fn warnings(log: &str) -> usize {
    let is_one = |line: &&str| line.contains("WARN") && line.contains("new connections are closed at once");
    log.lines().filter(is_one).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_silent_connections_shut_no_caller_out() {
    // More than the process can open.
    let victim = Victim::start("first_bytes_ms = 60000", 200).await;
    let began = Instant::now();
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    let mut silent = Vec::new();
    // Those of one port make room for callers of the other.
    for port in [victim.address, victim.metrics] {
        for _ in 0..300 {
            silent.push(TcpStream::connect(port).await.expect("a connection"));
        }
        // A new caller is served, and the one that was there keeps its connection.
        for n in 0..20 {
            works(&victim.innocent(), &format!("new-{}-{n}", port.port())).await;
        }
        works(&innocent, &format!("after-{}", port.port())).await;
    }
    assert!(victim.metric("tallystone_connections_closed_total").await > 0.0);
    // And as many as before once they have gone.
    drop(silent);
    for n in 0..20 {
        works(&victim.innocent(), &format!("later-{n}")).await;
    }
    // Most silent connections made room for others, so it depends on the moment whether one was refused.
    let refused = victim.metric("tallystone_connections_refused_total").await;
    let (log, warned_max) = (victim.log().await, warnings_max(began));
    let warned = warnings(&log);
    println!("{refused} refused connections, {warned} warnings");
    assert!((warned > 0) == (refused > 0.0) && warned <= warned_max, "{refused} refused connections: {log}");
}

/// The system may have no file left for a process that is below its own bound: then the accept itself fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_an_accept_that_finds_no_free_file_waits_and_makes_room() {
    const SPARE: usize = 10;
    const SILENT: usize = 300;
    /// What closing one connection in each pause of 100 ms would take.
    const ONE_BY_ONE: Duration = Duration::from_millis(100 * (SILENT - SPARE) as u64);
    // What the calls and the connections may take in addition to half of a processor.
    const BUSY: Duration = Duration::from_millis(200);
    let victim = Victim::start("first_bytes_ms = 60000", 1_000).await;
    let began = Instant::now();
    let innocent = victim.innocent();
    works(&innocent, "before").await;
    victim.limit_files(victim.open_files() + SPARE).await;
    let (attacked, cpu_before) = (Instant::now(), victim.cpu());
    let mut silent = Vec::new();
    for _ in 0..SILENT {
        silent.push(TcpStream::connect(victim.address).await.expect("a place among those that wait"));
    }
    // The system holds the connections that the process cannot accept. The server closes silent ones, accepts those,
    // and so comes to the caller behind them. It waits between two attempts, and closes several each time.
    works(&victim.innocent(), "new").await;
    works(&innocent, "meanwhile").await;
    let (lasted, cpu) = (attacked.elapsed(), victim.cpu() - cpu_before);
    println!("{SILENT} silent connections and {SPARE} files: {lasted:?}, {cpu:?} of a processor");
    assert!(lasted < ONE_BY_ONE, "it closed one connection in each pause: {lasted:?}");
    assert!(cpu < lasted / 2 + BUSY, "the accept repeats without a pause: {cpu:?} of a processor in {lasted:?}");
    drop(silent);
    let refused = victim.metric("tallystone_connections_refused_total{reason=\"open_files\"}").await;
    assert!(refused > 0.0, "the accept found a free file each time");
    let (log, warned_max) = (victim.log().await, warnings_max(began));
    assert!((1..=warned_max).contains(&warnings(&log)) && log.contains("open_files"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_callers_of_one_address_on_both_ports_leave_files_to_others() {
    const PLACES: usize = 160;
    let victim = Victim::start("", 200).await;
    let began = Instant::now();
    works(&victim.innocent(), "before").await;
    // Each makes a call, which is no probe, so none of them makes room.
    let mut kept = Vec::new();
    for address in [victim.address, victim.metrics] {
        for _ in 0..PLACES {
            let mut tcp = TcpStream::connect(address).await.expect("a connection");
            let _ = tcp.write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
            let mut answer = [0; 12];
            let is_served = timeout(SOON, tcp.read_exact(&mut answer)).await.expect("an end").is_ok();
            if is_served {
                kept.push(tcp);
            }
        }
    }
    assert!(kept.len() < PLACES * 3 / 4, "{} connections of one address", kept.len());
    let mut calls = connection_from(&victim, OTHER).await.ready().await.expect("a connection of another address");
    let (response, mut body) = calls.send_request(request(&victim, "Dequeue"), false).expect("a stream");
    body.send_data(Bytes::from_static(&[0; 5]), true).expect("a request");
    assert_eq!(answer(response).await.status(), 200);
    // Each port has refused many of them, and has warned, at most once in 10 s.
    let (log, warned_max) = (victim.log().await, warnings_max(began));
    assert!((2..=warned_max).contains(&warnings(&log)), "{log}");
    assert!(log.contains("peer_connections_max"), "the warning names the limit: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_one_address_leaves_watches_of_the_health_to_others() {
    const MAX: usize = 40;
    let victim = Victim::start(&format!("health_streams_max = {MAX}"), FILES).await;
    let watch = async |from: &str| {
        let mut calls = connection_from(&victim, from).await.ready().await.expect("room for a stream");
        let path = format!("http://{}/grpc.health.v1.Health/Watch", victim.address);
        let request = Request::post(path).header("content-type", "application/grpc").header("te", "trailers");
        let (response, mut body) = calls.send_request(request.body(()).expect("a request"), false).expect("a stream");
        // A refusal may come before it.
        let _ = body.send_data(Bytes::from_static(&[0; 5]), true);
        (answer(response).await, calls)
    };
    let mut kept = Vec::new();
    for _ in 0..MAX {
        kept.push(watch("127.0.0.1").await);
    }
    assert!(reason(&kept[MAX - 1].0).contains("TOO_MANY_STREAMS"));
    let (other, _calls) = watch(OTHER).await;
    assert!(!other.headers().contains_key("grpc-status"), "another address still watches: {other:?}");
}
