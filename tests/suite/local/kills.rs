//! kill -9 of a process that adds, at the steps of its pushes and at random moments (L2). `TALLYSTONE_TEST_LONG`: a
//! thousand kills at steps, and about as many at random moments.

use super::adder;
use super::folder::Folder;
use super::service::Service;
use crate::crash::seed;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_client::local::{LocalCounters, LocalError};
use tallystone_tests::is_long;
use tokio::time::{sleep, timeout};

/// Kills, at steps or at random moments.
const KILLS: u64 = 100;
/// Kills at steps.
const AT_STEPS_LONG: u64 = 1_000;
/// Folders whose processes live at the same time.
const FOLDERS: u64 = 2;
/// Steps of the first pushes of a life. Later ones repeat them.
const STEPS: usize = 60;
/// A life that does not come to its step, since it had nothing to push, ends after this.
const STEP_WAIT: Duration = Duration::from_secs(2);
/// How many more lives may miss their step than reach it.
const MISSED_MAX: u64 = 20;

/// How the lives of a folder have ended.
#[derive(Default)]
struct Ends {
    at_steps: u64,
    at_random: u64,
    before_open: u64,
    /// How many of `at_random` were to die at a step, and did not reach it.
    missed: u64,
}

/// How many kills a folder gets.
#[derive(Clone, Copy)]
enum Kills {
    All(u64),
    AtSteps(u64),
}

impl Kills {
    fn are_done(self, ends: &Ends) -> bool {
        match self {
            Kills::All(kills) => ends.at_steps + ends.at_random >= kills,
            Kills::AtSteps(kills) => ends.at_steps >= kills,
        }
    }
}

async fn kill_again_and_again(
    client: &CounterClient,
    url: &str,
    number: u64,
    kills: Kills,
    seed: u64,
) -> (Folder, Ends) {
    let mut rng = StdRng::seed_from_u64(seed + number);
    let (mut folder, mut ends) = (Folder::new(&format!("f{number}")), Ends::default());
    let mut until_settled = 1;
    let mut life = 0;
    while !kills.are_done(&ends) {
        // Half of the lives are to die at a step. With 1,000 kills at steps, several lives end at each step; with 100
        // kills, one life at five of six steps.
        let die_at = (life % 2 == 0).then_some((life / 2) as usize * FOLDERS as usize % STEPS + number as usize);
        let mut process = adder::start(url, folder.dir.path(), &folder.prefix, life, die_at);
        let is_over = if die_at.is_some() {
            timeout(STEP_WAIT, process.wait()).await.is_ok()
        } else {
            let waits_for_open = rng.random_bool(0.8);
            if waits_for_open {
                adder::until_open(&mut process, folder.dir.path()).await;
            }
            // Some moment in the middle of something.
            sleep(Duration::from_micros(rng.random_range(0..60_000))).await;
            ends.before_open += u64::from(!waits_for_open);
            false
        };
        if is_over {
            let status = process.wait().await.expect("a child");
            assert!(!status.success() && status.code().is_none(), "it was not killed, but ended: {status}");
            ends.at_steps += 1;
        } else {
            process.kill().await.expect("a child");
            ends.at_random += 1;
            ends.missed += u64::from(die_at.is_some());
            assert!(ends.missed <= ends.at_steps + MISSED_MAX, "{} lives did not come to their steps", ends.missed);
        }
        adder::has_opened(folder.dir.path());
        folder.ended(life);
        // Otherwise the next life takes over what this one has left, and may die over it.
        until_settled -= 1;
        if until_settled == 0 || kills.are_done(&ends) {
            folder.settle(client).await;
            until_settled = rng.random_range(1..=4);
        }
        life += 1;
    }
    (folder, ends)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_kill_9_of_a_process_that_adds_loses_nothing_and_doubles_nothing() {
    let seed = seed();
    let kills = if is_long() { Kills::AtSteps(AT_STEPS_LONG / FOLDERS) } else { Kills::All(KILLS / FOLDERS) };
    let service = Service::start().await;
    let url = service.counters.url();
    let lives = (0..FOLDERS).map(|number| kill_again_and_again(&service.client, &url, number, kills, seed));
    let folders = futures::future::join_all(lives).await;
    let (mut adds, mut in_flight, mut at_steps, mut killed) = (0, 0, 0, 0);
    for (folder, ends) in &folders {
        folder.until_rolled_up(&service.client).await;
        let Ends { at_steps: at_step, at_random, before_open, missed } = ends;
        println!("{at_step} at steps, {at_random} at random: {before_open} early, {missed} that missed a step");
        at_steps += at_step;
        adds += folder.adds;
        in_flight += folder.in_flight;
        killed += ends.at_steps + ends.at_random;
    }
    println!("{killed} kills, {at_steps} at steps, {adds} adds, {in_flight} in the middle of an add");
    let is_enough = if is_long() { at_steps == AT_STEPS_LONG } else { killed == KILLS };
    assert!(is_enough && adds > killed * 100, "{killed} kills, {at_steps} at steps, {adds} adds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_two_processes_cannot_have_one_folder_and_a_killed_one_frees_it() {
    let service = Service::start().await;
    let mut folder = Folder::new("locked");
    let mut process = adder::start(&service.counters.url(), folder.dir.path(), &folder.prefix, 0, None);
    adder::until_open(&mut process, folder.dir.path()).await;
    let second = LocalCounters::open(folder.path(), service.client.clone(), adder::options()).await;
    assert!(matches!(second, Err(LocalError::Locked { .. })), "{second:?}");
    process.kill().await.expect("a child");
    folder.ended(0);
    folder.settle(&service.client).await;
}
