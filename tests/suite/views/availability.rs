//! Two view counters: reads are answered, and rightly, although each component is killed in turn (V5).

use super::sites::{OnKafka, OnRedis, Site};
use super::stage::Http;
use super::view;
use reqwest::Method;
use serde_json::{Value, json};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

const READERS: usize = 2;
const VIDEOS: usize = 20;
/// How long a reader waits for one server before it tries the other one.
const READ_PATIENCE: Duration = Duration::from_secs(10);
/// A read that takes longer counts as slow. A quiet machine needs milliseconds, and a busy one may stop the whole test for a moment.
const SLOW: Duration = Duration::from_secs(2);
/// One in so many reads may be slow, and one in so many unanswered.
const READS_OF_ONE: u64 = 10_000;
/// How long a component is away. It is longer than a count is answered without a call of the counters.
const AWAY: Duration = Duration::from_millis(1_500);
const READS_MIN: u64 = 10_000;
/// Between two posts of views.
const POST_EVERY: Duration = Duration::from_millis(10);
/// How long a poster waits for one server before it tries the other one.
const POST_PATIENCE: Duration = Duration::from_secs(10);

/// What the readers and the poster share.
struct Shared {
    began_at: Instant,
    stopping: AtomicBool,
    /// The views of each video whose posts have begun: no count is higher.
    begun: [AtomicU64; VIDEOS],
    /// Those that were accepted.
    accepted: [AtomicU64; VIDEOS],
    /// Those that both servers have answered: no later count is lower.
    answered: [AtomicU64; VIDEOS],
    reads: AtomicU64,
    unanswered: AtomicU64,
    other_server: AtomicU64,
    slowest_us: AtomicU64,
    slow: AtomicU64,
    /// Answers that cannot be right.
    wrong: Mutex<Vec<String>>,
}

impl Shared {
    fn new() -> Shared {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Shared {
            began_at: Instant::now(),
            stopping: AtomicBool::new(false),
            begun: zeros(),
            accepted: zeros(),
            answered: zeros(),
            reads: AtomicU64::new(0),
            unanswered: AtomicU64::new(0),
            other_server: AtomicU64::new(0),
            slowest_us: AtomicU64::new(0),
            slow: AtomicU64::new(0),
            wrong: Mutex::default(),
        }
    }

    fn assert_right(&self) {
        let wrong = self.wrong.lock().expect("no panic");
        assert!(wrong.is_empty(), "{} wrong answers, the first ones: {:?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    }
}

fn load(number: &AtomicU64) -> u64 {
    number.load(Ordering::SeqCst)
}

fn add_one(number: &AtomicU64) {
    number.fetch_add(1, Ordering::SeqCst);
}

fn path(video: usize) -> String {
    format!("/v1/videos/v{video}/views")
}

/// The counts from one server; `None`: it does not answer with counts.
async fn read(http: &Http, path: &str) -> Option<Value> {
    match timeout(READ_PATIENCE, http.try_call(Method::GET, path, String::new())).await {
        Ok(Ok((200, counts))) => Some(counts),
        _ => None,
    }
}

/// Whether the video can have had this count, and its age is there, which is at most so long.
fn is_right(counts: &Value, possible: &RangeInclusive<u64>, age_max: Duration) -> bool {
    let has_count = counts["viewCount"].as_u64().is_some_and(|count| possible.contains(&count));
    let has_age = counts["ageMs"].as_u64().is_some_and(|age_ms| Duration::from_millis(age_ms) <= age_max);
    has_count && has_age
}

/// Reads until it is stopped, each time from one server and, if that does not answer, from the other one.
async fn reads(servers: [Http; 2], first: usize, shared: Arc<Shared>) {
    let mut number = first;
    while !shared.stopping.load(Ordering::Relaxed) {
        let video = number % VIDEOS;
        let (path, least, began) = (path(video), load(&shared.answered[video]), Instant::now());
        let mut counts = read(&servers[number % 2], &path).await;
        if counts.is_none() {
            add_one(&shared.other_server);
            counts = read(&servers[(number + 1) % 2], &path).await;
        }
        let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        shared.slowest_us.fetch_max(took_us, Ordering::Relaxed);
        if began.elapsed() >= SLOW {
            add_one(&shared.slow);
        }
        let possible = least..=load(&shared.begun[video]);
        match counts {
            None => add_one(&shared.unanswered),
            Some(counts) if !is_right(&counts, &possible, shared.began_at.elapsed()) => {
                shared.wrong.lock().expect("no panic").push(format!("{counts}, possible are {possible:?}"));
            }
            Some(_) => {}
        }
        add_one(&shared.reads);
        number += 1;
        sleep(Duration::from_millis(1)).await;
    }
}

/// Posts views of new users until it is stopped, each until one of the servers has accepted it.
async fn posts(servers: [Http; 2], shared: Arc<Shared>) {
    for number in VIDEOS.. {
        if shared.stopping.load(Ordering::Relaxed) {
            return;
        }
        let (video, mut server) = (number % VIDEOS, number);
        let body = view(&format!("v{video}"), &format!("u{number}")).to_string();
        add_one(&shared.begun[video]);
        loop {
            let post = servers[server % 2].try_call(Method::POST, "/v1/views", body.clone());
            if matches!(timeout(POST_PATIENCE, post).await, Ok(Ok((202, _)))) {
                break;
            }
            server += 1;
            sleep(POST_EVERY).await;
        }
        add_one(&shared.accepted[video]);
        sleep(POST_EVERY).await;
    }
}

/// Waits until both servers have read each video, with the views that were accepted before: a restarted one has no
/// counts to answer with.
async fn until_answered(site: &impl Site, shared: &Shared) {
    let accepted: Vec<u64> = shared.accepted.iter().map(load).collect();
    for number in 0..2 {
        let http = site.http(number);
        for (video, accepted) in accepted.iter().enumerate() {
            http.until(&path(video), |counts| counts["viewCount"].as_u64() >= Some(*accepted)).await;
        }
    }
    for (answered, accepted) in shared.answered.iter().zip(accepted) {
        answered.store(accepted, Ordering::SeqCst);
    }
}

/// Kills each component in turn, while two clients read and one posts.
async fn reads_are_answered(site: &mut impl Site) {
    let shared = Arc::new(Shared::new());
    for video in 0..VIDEOS {
        add_one(&shared.begun[video]);
        site.http(0).until_accepted(&view(&format!("v{video}"), "u")).await;
        add_one(&shared.accepted[video]);
    }
    until_answered(site, &shared).await;
    let servers = || [site.http(0), site.http(1)];
    let mut tasks: Vec<_> =
        (0..READERS).map(|reader| tokio::spawn(reads(servers(), reader * 7, shared.clone()))).collect();
    tasks.push(tokio::spawn(posts(servers(), shared.clone())));
    let components = site.components();
    let mut kills = components.iter().cycle();
    let mut killed = 0;
    // Each component at least once, and until there are enough reads.
    while killed < components.len() as u64 || load(&shared.reads) < READS_MIN {
        let what = kills.next().expect("it repeats");
        site.kill(what).await;
        sleep(AWAY).await;
        site.restart(what).await;
        // The next component is killed when this one works again: one is away at a time.
        site.http(0).until_accepted(&view("after", &killed.to_string())).await;
        killed += 1;
        for number in 0..2 {
            site.http(number).until_count("/v1/videos/after/views", killed).await;
        }
        until_answered(site, &shared).await;
        shared.assert_right();
    }
    shared.stopping.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no panic");
    }
    until_answered(site, &shared).await;
    shared.assert_right();
    let (all, unanswered) = (load(&shared.reads), load(&shared.unanswered));
    let (slowest, posted) =
        (Duration::from_micros(load(&shared.slowest_us)), shared.accepted.iter().map(load).sum::<u64>());
    let other_server = load(&shared.other_server);
    println!(
        "{killed} kills, {posted} views, {all} reads, {unanswered} unanswered, {other_server} answered by the other \
         server, the slowest took {slowest:?}",
    );
    let slow = load(&shared.slow);
    let figures = json!({"reads": all, "unanswered": unanswered, "slow": slow});
    assert!(unanswered <= all / READS_OF_ONE && slow <= all / READS_OF_ONE, "{figures}, the slowest took {slowest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn v5_9_999_of_10_000_reads_are_answered_while_each_component_is_killed_in_turn() {
    reads_are_answered(&mut OnRedis::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v5_9_999_of_10_000_reads_are_answered_while_each_component_with_the_log_in_kafka_is_killed_in_turn() {
    reads_are_answered(&mut OnKafka::start().await).await;
}
