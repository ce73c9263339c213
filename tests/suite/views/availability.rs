//! Two view counters: reads are answered although each component is killed in turn (V5).

use super::machines::Machines;
use super::stage::Http;
use super::view;
use crate::crash::machines::{Redis, Server};
use crate::system::program::{Running, command};
use reqwest::Method;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const READERS: usize = 6;
const VIDEOS: usize = 20;
/// How long a reader waits for one server before it tries the other one.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a component is away. It is longer than a count is answered without a call of the counters.
const AWAY: Duration = Duration::from_millis(1_500);
const READS_MIN: u64 = 20_000;

/// What the readers have seen.
#[derive(Default)]
struct Seen {
    reads: AtomicU64,
    unanswered: AtomicU64,
    other_server: AtomicU64,
    slowest_us: AtomicU64,
}

/// A count from one server.
async fn read(http: &Http, path: &str) -> bool {
    let answer = timeout(PATIENCE, http.try_call(Method::GET, path, String::new())).await;
    matches!(answer, Ok(Ok((200, counts))) if counts["viewCount"].is_u64())
}

/// Reads until it is stopped, each time from one server and, if that does not answer, from the other one.
async fn reads(servers: [Http; 2], first: usize, seen: Arc<Seen>, stopping: Arc<AtomicBool>) {
    let mut number = first;
    while !stopping.load(Ordering::Relaxed) {
        let path = format!("/v1/videos/v{}/views", number % VIDEOS);
        let began = Instant::now();
        let mut is_answered = read(&servers[number % 2], &path).await;
        if !is_answered {
            seen.other_server.fetch_add(1, Ordering::Relaxed);
            is_answered = read(&servers[(number + 1) % 2], &path).await;
        }
        seen.reads.fetch_add(1, Ordering::Relaxed);
        seen.unanswered.fetch_add(u64::from(!is_answered), Ordering::Relaxed);
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        seen.slowest_us.fetch_max(took_us, Ordering::Relaxed);
        number += 1;
        sleep(Duration::from_millis(1)).await;
    }
}

/// A server that has read each video: a restarted one has no counts to answer with.
async fn has_read(http: &Http, videos: usize) {
    for video in 0..videos {
        http.until_count(&format!("/v1/videos/v{video}/views"), 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn v5_9_999_of_10_000_reads_are_answered_while_each_component_is_killed_in_turn() {
    let mut counts = Redis::start().await;
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let config = dir.path().join("tallystone.toml");
    std::fs::write(&config, "").expect("a file");
    let mut queue = Server::start(counts.url(), &config).await;
    let mut machines = Machines::start_on(&counts.url(), &["--server", &queue.url()], 2).await;
    let start_worker = |counts: &str, queue: &str| {
        Running::start(command(&["rollup-worker", "--redis-url", counts, "--server", queue, "--log", "error"]))
    };
    let mut worker = Some(start_worker(&counts.url(), &queue.url()));
    for video in 0..VIDEOS {
        machines.http(0).accepted("/v1/views", &view(&format!("v{video}"), "u")).await;
    }
    for number in 0..2 {
        has_read(&machines.http(number), VIDEOS).await;
    }
    let (seen, stopping) = (Arc::<Seen>::default(), Arc::new(AtomicBool::new(false)));
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let servers = [machines.http(0), machines.http(1)];
            tokio::spawn(reads(servers, reader * 7, seen.clone(), stopping.clone()))
        })
        .collect();
    let kills = ["the log's Redis", "the counters' Redis", "counters", "queue", "rollup worker", "views 0", "views 1"];
    let mut kills = kills.into_iter().cycle();
    let mut killed = 0;
    // Each component at least once, and until there are enough reads.
    while killed < 7 || seen.reads.load(Ordering::Relaxed) < READS_MIN {
        let what = kills.next().expect("it repeats");
        match what {
            "the log's Redis" => machines.redis.kill().await,
            "the counters' Redis" => counts.kill().await,
            "counters" => machines.counters.kill().await,
            "queue" => queue.kill().await,
            "rollup worker" => worker.take().expect("it runs").kill().await,
            "views 0" => machines.views[0].kill().await,
            _ => machines.views[1].kill().await,
        }
        sleep(AWAY).await;
        match what {
            "the log's Redis" => machines.redis.restart().await,
            "the counters' Redis" => counts.restart().await,
            "counters" => machines.counters.restart().await,
            "queue" => queue.restart().await,
            "rollup worker" => worker = Some(start_worker(&counts.url(), &queue.url())),
            "views 0" => machines.views[0].restart().await,
            _ => machines.views[1].restart().await,
        }
        // The next component is killed when this one works again: one is away at a time.
        machines.http(0).until_accepted(&view("after", &killed.to_string())).await;
        killed += 1;
        for number in 0..2 {
            has_read(&machines.http(number), VIDEOS).await;
            machines.http(number).until_count("/v1/videos/after/views", killed).await;
        }
    }
    stopping.store(true, Ordering::Relaxed);
    for reader in readers {
        reader.await.expect("no panic");
    }
    let number = |number: &AtomicU64| number.load(Ordering::Relaxed);
    let (all, unanswered) = (number(&seen.reads), number(&seen.unanswered));
    println!(
        "{killed} kills, {all} reads, {unanswered} unanswered, {} answered by the other server, the slowest took {} ms",
        number(&seen.other_server),
        number(&seen.slowest_us) / 1_000,
    );
    assert!(unanswered <= all / 10_000, "{}", json!({"reads": all, "unanswered": unanswered}));
}
