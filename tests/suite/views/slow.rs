//! Counters that are slow or stand still while views of many videos come: what waits for them is bounded by the counters and not by
//! the time (V4), and each view counts once (V3).

use super::life;
use super::machines::Machines;
use super::{deltas, entry, view};
use crate::counting::house::until;
use futures::stream::{StreamExt, iter};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::join;

const VIDEOS: u64 = 5_000;
/// Views of a batch.
const BATCH: u64 = 1_000;
/// Each has a view of each video, and at least a commit in each partition.
const ROUNDS: u64 = 8;
/// Kinds of counts: views, page views and visitors of the day.
const KINDS: u64 = 3;
/// Videos that are read together.
const READS: usize = 64;
const LOG: &str = "tc:views:{0}:log";

/// Entries of both partitions that no owner has taken.
async fn entries(machines: &Machines) -> u64 {
    machines.entries_in(&["log"]).await
}

fn batch(round: u64, number: u64) -> Value {
    let videos = number * BATCH..(number + 1) * BATCH;
    json!({ "views": videos.map(|video| view(&format!("v{video}"), &round.to_string())).collect::<Vec<_>>() })
}

#[tokio::test(flavor = "multi_thread")]
async fn v4_while_counters_stand_still_about_one_add_of_each_counter_waits_and_all_views_count() {
    let machines = Machines::start(1).await;
    let http = machines.http(0);
    // The namespaces of the counters are there.
    http.accepted("/v1/views", &view("first", "u")).await;
    http.until_counts("/v1/videos/first/views", 1, 1, 1).await;
    machines.counters.signal(Signal::SIGSTOP);
    for round in 0..ROUNDS {
        for number in 0..VIDEOS / BATCH {
            let (status, answer) = http.post("/v1/views:batch", &batch(round, number)).await;
            assert_eq!(status, 202, "{answer}");
        }
        until(async || entries(&machines).await, |entries| *entries == 0).await;
    }
    let records = machines.waiting_records().await;
    let waiting: u64 = records.iter().map(|record| deltas(record).len() as u64).sum();
    println!("{waiting} adds wait in {} records", records.len());
    // Without the merging of records there are as many adds as rounds for each counter. One record of each partition is on its way,
    // and so are the last records, which are too small to be merged.
    assert!(waiting <= 3 * KINDS * VIDEOS, "{waiting} adds wait");
    machines.counters.signal(Signal::SIGCONT);
    let read = |video: u64| {
        let http = machines.http(0);
        async move { http.until_counts(&format!("/v1/videos/v{video}/views"), ROUNDS, ROUNDS, ROUNDS).await }
    };
    let read = iter(0..VIDEOS).map(read).buffer_unordered(READS).count().await;
    assert_eq!(read as u64, VIDEOS);
}

/// While the counters stand still, the first record is on its way, the second one waits, and the third one replaces it.
#[tokio::test(flavor = "multi_thread")]
async fn v3_an_owner_may_die_when_a_commit_has_replaced_a_record_that_waits() {
    const USERS: u64 = 40;
    let mut machines = Machines::start(1).await;
    machines.http(0).accepted("/v1/views", &view("first", "u")).await;
    machines.http(0).until_count("/v1/videos/first/views", 1).await;
    machines.views.pop().expect("a process").stop().await;
    machines.counters.signal(Signal::SIGSTOP);
    let step = "records are replaced";
    let life = life::start(&machines.redis.url(), &machines.counters.url(), Signal::SIGKILL, step);
    let has_died = AtomicBool::new(false);
    let dies = async {
        life.dies().await;
        has_died.store(true, Ordering::SeqCst);
    };
    let writes = async {
        let (mut redis, mut rounds) = (machines.redis.connection().await, 0);
        while !has_died.load(Ordering::SeqCst) {
            let mut log = redis::pipe();
            for user in 0..USERS {
                let user = (rounds * USERS + user).to_string();
                log.cmd("XADD").arg(LOG).arg("*").arg("v").arg(entry("default", "v", &user)).ignore();
            }
            let () = log.query_async(&mut redis).await.expect("entries");
            rounds += 1;
            let is_over = async || has_died.load(Ordering::SeqCst) || entries(&machines).await == 0;
            until(is_over, |is_over| *is_over).await;
        }
        rounds
    };
    let ((), rounds) = join!(dies, writes);
    println!("it died after {rounds} rounds");
    machines.counters.signal(Signal::SIGCONT);
    machines.add_views().await;
    let all = rounds * USERS;
    machines.http(0).until_counts("/v1/videos/v/views", all, all, all).await;
    until(async || machines.waiting_records().await.len(), |waiting| *waiting == 0).await;
    machines.http(0).until_counts("/v1/videos/v/views", all, all, all).await;
}
