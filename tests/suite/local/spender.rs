//! A process that takes from a budget until it is killed: this test binary, started again with the one test that is ignored.

use super::ledger::{Ledger, numbers};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_client::budget::{Budget, BudgetOptions};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const ARGUMENTS: &str = "TALLYSTONE_TEST_SPENDER";
/// The namespace of the budgets.
pub(super) const NS: &str = "budgets";
/// Tasks of a process that take at the same time.
const TASKS: u64 = 2;
/// The most units of one grant here.
pub(super) const GRANT_MAX: i64 = 300;
/// A process whose test has gone ends by itself.
const LIFE_MAX: Duration = Duration::from_secs(60);

/// Grants for a short time, so that a short life has several.
pub(super) fn options() -> BudgetOptions {
    let mut options = BudgetOptions::default();
    (options.grant_interval_ms, options.grant_max, options.retry_ms) = (20, GRANT_MAX, 50);
    options
}

pub(super) fn client(url: &str) -> CounterClient {
    CounterClient::builder(url).call_timeout(Duration::from_millis(500)).connect_lazy().expect("an address")
}

/// How many units the take of this number needs.
pub(super) fn units(number: u64) -> i64 {
    (number % 7 / 2 + 1).cast_signed()
}

/// Starts one.
pub(super) fn start(url: &str, dir: &Path, counter: &str, limit: i64, life: u64) -> Child {
    let dir = dir.to_str().expect("a plain path");
    let mut command = Command::new(std::env::current_exe().expect("this test has a path"));
    command.args(["--exact", "local::spender::takes_until_it_is_killed", "--ignored", "--nocapture"]);
    command.env(ARGUMENTS, [url, dir, counter, &limit.to_string(), &life.to_string()].join("\n"));
    command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
    command.spawn().expect("this test starts again")
}

/// The units that a life has certainly taken, and those that it may have taken.
pub(super) fn taken(dir: &Path, life: u64) -> (u64, u64) {
    let ledgers = (0..TASKS).filter_map(|task| numbers(dir, life, task));
    ledgers.fold((0, 0), |(certain, possible), (begun, ended)| (certain + ended, possible + begun))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is the process that other tests start and kill"]
async fn takes_until_it_is_killed() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let arguments: Vec<&str> = arguments.split('\n').collect();
    let &[url, dir, counter, limit, life] = &arguments[..] else { panic!("five arguments: {arguments:?}") };
    let (dir, limit, life) = (Path::new(dir), limit.parse().expect("a number"), life.parse().expect("a number"));
    let budget = Arc::new(Budget::open(&client(url), NS, counter, limit, options()).expect("good options"));
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(take(budget.clone(), Ledger::create(dir, life, task)));
    }
    tasks.join_all().await;
    // Not by a kill, so the test fails.
}

async fn take(budget: Arc<Budget>, ledger: Ledger) {
    let (mut taken, give_up_at) = (0, Instant::now() + LIFE_MAX);
    for number in 0.. {
        let units = units(number);
        ledger.begun(taken + units.cast_unsigned());
        if budget.take(units, Duration::from_millis(100)).await.is_ok() {
            taken += units.cast_unsigned();
            ledger.ended(taken);
        } else {
            ledger.begun(taken);
            sleep(Duration::from_millis(5)).await;
        }
        if number % 100 == 99 {
            // The two cores are also the service's.
            sleep(Duration::from_millis(1)).await;
        }
        if Instant::now() > give_up_at {
            return;
        }
    }
}
