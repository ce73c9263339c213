//! A process that adds by handles until it is killed: this test binary, started again with the one test that is ignored.

use super::POLL;
use super::ledger::{Ledger, THREADS, keys, planned};
use crate::ingest::topics::Topics;
use crate::system::program::SOON;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_client::local::{Handle, LocalCounters, LocalOptions, Steps, TopicOptions};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

const ARGUMENTS: &str = "TALLYSTONE_TEST_ADDER";
/// The file that says that the counters are open.
const OPEN: &str = "is-open";
/// Adds of a thread before another one takes its place.
const ADDS_OF_A_THREAD: u64 = 400;
/// A process whose test has gone ends by itself.
const LIFE_MAX: Duration = Duration::from_secs(60);

/// Short intervals, so that a short life has several pushes.
pub(super) fn options() -> LocalOptions {
    let mut options = LocalOptions::default();
    (options.push_interval_ms, options.pull_interval_ms, options.sync_interval_ms) = (4, 20, 10);
    // More threads than stripes: one of them has its own, the other one shares.
    (options.slots_max, options.stripes_max) = (64, 2);
    options
}

/// Starts one. `die_at`: it kills itself with SIGKILL at the step of this number.
pub(super) fn start(url: &str, dir: &Path, prefix: &str, life: u64, die_at: Option<usize>) -> Child {
    spawn(url, dir, prefix, life, &die_at.map_or(String::new(), |step| step.to_string()), ["", ""])
}

/// Starts one that pushes to a topic. `die_at`: the name of its last step, and how often it reaches it.
pub(super) fn start_with_topic(
    url: &str,
    dir: &Path,
    prefix: &str,
    life: u64,
    die_at: Option<(&str, usize)>,
    topics: &Topics,
) -> Child {
    let die_at = die_at.map_or(String::new(), |(step, times)| format!("{times} {step}"));
    spawn(url, dir, prefix, life, &die_at, [&topics.brokers, &topics.source])
}

fn spawn(url: &str, dir: &Path, prefix: &str, life: u64, die_at: &str, [brokers, topic]: [&str; 2]) -> Child {
    let dir = dir.to_str().expect("a plain path");
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", "local::adder::adds_until_it_is_killed", "--ignored", "--nocapture"]);
    command.env(ARGUMENTS, [url, dir, prefix, &life.to_string(), die_at, brokers, topic].join("\n"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("this test starts again")
}

/// Whether the counters of this life are open, which removes the sign of it.
pub(super) fn has_opened(dir: &Path) -> bool {
    std::fs::remove_file(dir.join(OPEN)).is_ok()
}

/// Waits until the counters of a life are open.
pub(super) async fn until_open(process: &mut Child, dir: &Path) {
    let give_up_at = Instant::now() + SOON;
    while !has_opened(dir) {
        assert!(process.try_wait().expect("a child").is_none(), "it has ended, see above");
        assert!(Instant::now() < give_up_at, "it does not open its folder");
        sleep(POLL).await;
    }
}

#[tokio::test]
#[ignore = "it is the process that other tests start and kill"]
async fn adds_until_it_is_killed() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments: Vec<&str> = arguments.split('\n').collect();
    let &[url, dir, prefix, life, die_at, brokers, topic] = &arguments[..] else {
        panic!("seven arguments: {arguments:?}")
    };
    let (dir, life) = (Path::new(dir), life.parse().expect("a number"));
    let client = CounterClient::builder(url).call_timeout(Duration::from_secs(1)).connect_lazy().expect("an address");
    let mut options = options();
    // `12`: at the step of this number; `2 a push is removed`: at the second of these.
    let (number, name) = die_at.split_once(' ').map_or((die_at, None), |(times, name)| (times, Some(name.to_owned())));
    if let Ok(number) = number.parse::<usize>() {
        let last = if name.is_some() { number - 1 } else { number };
        let reached = AtomicUsize::new(0);
        options.steps = Steps::observed_by(move |step| {
            let is_counted = name.as_ref().is_none_or(|name| *name == step);
            if is_counted && reached.fetch_add(1, Ordering::SeqCst) == last {
                kill(Pid::this(), Signal::SIGKILL).expect("a signal to this process");
            }
        });
    }
    let path = dir.join("counters");
    let counters = if topic.is_empty() {
        LocalCounters::open(path, client, options).await
    } else {
        LocalCounters::open_with_topic(path, client, TopicOptions::new(brokers, topic), options).await
    };
    let counters = counters.expect("a sound folder");
    let handle = |(namespace, counter): &(&str, String)| counters.counter(namespace, counter).expect("room");
    let handles: Vec<Handle> = keys(prefix).iter().map(handle).collect();
    std::fs::write(dir.join(OPEN), "").expect("room");
    for thread in 0..THREADS {
        let (handles, ledger) = (handles.clone(), Ledger::create(dir, life, thread));
        std::thread::spawn(move || {
            for begin in (0..).step_by(ADDS_OF_A_THREAD as usize) {
                // A thread that ends leaves its cells to the next one.
                std::thread::scope(|scope| scope.spawn(|| add(&handles, &ledger, life, thread, begin)).join())
                    .expect("no panic");
            }
        });
    }
    let give_up_at = Instant::now() + LIFE_MAX;
    for handle in handles.iter().cycle().take_while(|_| Instant::now() < give_up_at) {
        // What is read is pulled.
        handle.get();
        sleep(Duration::from_millis(1)).await;
    }
    // Not by a kill, so the test fails.
}

fn add(handles: &[Handle], ledger: &Ledger, life: u64, thread: u64, begin: u64) {
    for number in begin..begin + ADDS_OF_A_THREAD {
        let (counter, delta) = planned(life, thread, number);
        ledger.begun(number + 1);
        handles[counter].add(delta);
        ledger.ended(number + 1);
        if number % 50 == 49 {
            // The two cores are also the service's.
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}
