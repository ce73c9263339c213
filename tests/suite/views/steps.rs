//! At each step of its work an owner dies, or stops and loses its partitions, or a store that it uses dies (V3).

use super::entry;
use super::life::{self, PARTITIONS, STEPS};
use super::machines::Machines;
use super::stage::Http;
use super::view;
use nix::sys::signal::Signal;
use std::ops::Range;

const USERS: u64 = 40;
/// Videos with these names are in both partitions.
const ENDS: usize = 8;

/// Writes each pair twice, and other pairs for each video, of which one is in each partition.
async fn write(machines: &Machines, video: &str, users: Range<u64>) {
    let (mut redis, mut log) = (machines.redis.connection().await, redis::pipe());
    for user in users.clone().chain(users) {
        for partition in 0..PARTITIONS {
            let entry = entry("default", &format!("{video}-{partition}"), &user.to_string());
            log.cmd("XADD").arg(format!("tc:views:{{{partition}}}:log")).arg("*").arg("v").arg(entry).ignore();
        }
    }
    let () = log.query_async(&mut redis).await.expect("entries");
}

async fn assert_exact(http: &Http, video: &str, page_views: u64) {
    for partition in 0..PARTITIONS {
        http.until_counts(&format!("/v1/videos/{video}-{partition}/views"), USERS, page_views, USERS).await;
    }
}

/// Everything that was written before is counted when this returns. `name` is used once.
async fn has_counted_all(machines: &Machines, http: &Http, name: &str) {
    for end in 0..ENDS {
        http.until_accepted(&view(&format!("{name}-{end}"), "u")).await;
    }
    machines.until_nothing_waits().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_an_owner_may_die_at_any_step_of_its_work() {
    let mut machines = Machines::start(0).await;
    for (number, step) in STEPS.into_iter().enumerate() {
        write(&machines, &format!("life-{number}"), 0..USERS).await;
        life::start(&machines.redis.url(), &machines.counters.url(), Signal::SIGKILL, step).dies().await;
        // The pairs of this life again: they have counted, or will with these.
        write(&machines, &format!("life-{number}"), 0..USERS).await;
    }
    machines.add_views().await;
    let http = machines.http(0);
    has_counted_all(&machines, &http, "end").await;
    for number in 0..STEPS.len() {
        assert_exact(&http, &format!("life-{number}"), 4 * USERS).await;
    }
}

/// It stops at the step, and another process does everything meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn v3_an_owner_that_has_lost_its_partitions_counts_and_drops_nothing() {
    let mut machines = Machines::start(0).await;
    for (number, step) in STEPS.into_iter().enumerate() {
        let (video, later) = (format!("stopped-{number}"), format!("later-{number}"));
        write(&machines, &video, 0..USERS).await;
        let stopped = life::start(&machines.redis.url(), &machines.counters.url(), Signal::SIGSTOP, step);
        stopped.has_come().await;
        machines.add_views().await;
        assert_exact(&machines.http(0), &video, 2 * USERS).await;
        machines.views.pop().expect("a process").stop().await;
        // What it was about to do comes before it can own a partition again, and only it can deduplicate these.
        write(&machines, &later, 0..USERS).await;
        stopped.goes_on();
        machines.until_nothing_waits().await;
        drop(stopped);
        machines.add_views().await;
        has_counted_all(&machines, &machines.http(0), &format!("end-{number}")).await;
        assert_exact(&machines.http(0), &video, 2 * USERS).await;
        assert_exact(&machines.http(0), &later, 2 * USERS).await;
        machines.views.pop().expect("a process").stop().await;
    }
}

/// It stops at each step, and meanwhile what `kill_and_restart` names dies (SIGKILL) and comes back.
async fn a_store_dies_at_each_step(kill_and_restart: impl AsyncFn(&mut Machines)) {
    let mut machines = Machines::start(0).await;
    for (number, step) in STEPS.into_iter().enumerate() {
        write(&machines, &format!("store-{number}"), 0..USERS).await;
        let owner = life::start(&machines.redis.url(), &machines.counters.url(), Signal::SIGSTOP, step);
        owner.has_come().await;
        kill_and_restart(&mut machines).await;
        owner.goes_on();
        machines.until_nothing_waits().await;
        drop(owner);
    }
    machines.add_views().await;
    for number in 0..STEPS.len() {
        assert_exact(&machines.http(0), &format!("store-{number}"), 2 * USERS).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_the_redis_of_log_and_counters_may_die_at_any_step_of_an_owner() {
    let redis_dies = async |machines: &mut Machines| {
        machines.redis.kill().await;
        machines.redis.restart().await;
    };
    a_store_dies_at_each_step(redis_dies).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_the_counters_may_die_at_any_step_of_an_owner() {
    let counters_die = async |machines: &mut Machines| {
        machines.counters.kill().await;
        machines.counters.restart().await;
    };
    a_store_dies_at_each_step(counters_die).await;
}
