//! Every view that was accepted counts once, whatever is killed (V3).

use super::load::{Posters, assert_exact, post_all, until_all_counted};
use super::machines::Machines;
use super::view;
use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// What is killed, how often.
const KILLS: usize = 9;

#[tokio::test(flavor = "multi_thread")]
async fn v3_accepted_views_count_once_although_everything_is_killed() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut machines = Machines::start(1).await;
    let posters = Posters::start(seed, |_| machines.http(0));
    for round in 0..KILLS {
        // A random point under load.
        posters.until_posted(random.random_range(100..2_000)).await;
        match round % 3 {
            0 => {
                machines.views[0].kill().await;
                machines.views[0].restart().await;
            }
            1 => {
                machines.redis.kill().await;
                machines.redis.restart().await;
            }
            _ => {
                machines.counters.kill().await;
                machines.counters.restart().await;
            }
        }
    }
    posters.until_posted(100).await;
    let accepted = posters.stop().await;
    assert_exact(&machines.http(0), &accepted).await;
    // Once more in new processes: what they read back is what was counted.
    machines.views[0].kill().await;
    machines.views[0].restart().await;
    let http = machines.http(0);
    for (video, user) in accepted.iter().step_by(97) {
        http.accepted("/v1/views", &view(&format!("v{video}"), &format!("u{user}"))).await;
    }
    http.accepted("/v1/views", &view("last", "u")).await;
    http.until_count("/v1/videos/last/views", 1).await;
    assert_exact(&http, &accepted).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v3_an_owner_that_was_paused_counts_nothing_twice() {
    let mut machines = Machines::start(1).await;
    let http = machines.http(0);
    post_all(&http, 0..30).await;
    until_all_counted(&http, 30).await;
    machines.add_views().await;
    let second = machines.http(1);
    for round in 1..=2_u64 {
        post_all(&http, 0..(30 * round + 10)).await;
        machines.views[0].signal(Signal::SIGSTOP);
        post_all(&second, 0..30 * (round + 1)).await;
        // The lease of the paused owner ends, and the other process takes over.
        until_all_counted(&second, 30 * (round + 1)).await;
        machines.views[0].signal(Signal::SIGCONT);
        post_all(&http, 0..30 * (round + 1)).await;
        machines.views[1].kill().await;
        machines.views[1].restart().await;
    }
    post_all(&http, 0..101).await;
    until_all_counted(&http, 101).await;
}
