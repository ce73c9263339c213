//! Reads as fresh as requested (N19): they bring a rollup forward and wait for it, together, and give up in time.

use super::house::{House, until};
use super::{POLL, now_ms};
use crate::system::program::SOON;
use futures::future::join_all;
use std::time::Duration;
use tallystone_client::{CounterClient, CounterType, Error, ExactTo, NamespaceConfig, NewAdd, NewClear, Refused};
use tallystone_counters::log::WINDOW_MS;
use tallystone_proto::counter::v1 as wire;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tonic::{Code, Request};
use tonic_types::StatusExt;

const NS: &str = "fresh";
/// The longest wait that a server allows.
const LONGEST: Duration = Duration::from_secs(30);
/// How far counts are behind at least. The adds of these tests are never later, also on a busy machine.
const ACCEPT_LIMIT_MS: u64 = 2_000;

/// Not rolled up within an hour, unless a client reads.
fn patient() -> NamespaceConfig {
    let (accept_limit_ms, coalesce_ms) = (Some(ACCEPT_LIMIT_MS), Some(3_600_000));
    NamespaceConfig { accept_limit_ms, coalesce_ms, ..NamespaceConfig::default() }
}

/// Adds, and returns the time to which a count with this add is exact at least.
async fn add(client: &CounterClient, counter: &str, delta: i64) -> ExactTo {
    let added = client.add(NS, NewAdd::new(counter, delta)).await.expect("an add");
    ExactTo::after(added.event_time_ms).wait(LONGEST)
}

/// Why a read was refused: it was not exact in time. Returns to what time the count is exact.
fn exact_to(refused: &Refused) -> u64 {
    assert_eq!((refused.code, refused.reason.as_str()), (Code::DeadlineExceeded, "NOT_EXACT_YET"), "{refused:?}");
    refused.metadata["exact_to_ms"].parse().expect("a time")
}

fn refused(error: &Error) -> &Refused {
    error.refused().unwrap_or_else(|| panic!("{error:?}"))
}

/// A read in the background.
fn reading(client: &CounterClient, counters: Vec<String>, to: ExactTo) -> JoinHandle<Result<usize, Error>> {
    let client = client.clone();
    tokio::spawn(async move {
        let results = client.get_many_exact(NS, counters, to).await?;
        Ok(results.into_iter().filter(Result::is_ok).count())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_a_read_brings_the_rollup_forward_that_has_its_add() {
    let house = House::with_rollups().await;
    house.put(NS, patient()).await;
    add(&house.clients[0], "not read", 1).await;
    // Within the ten seconds for which other reads hurry no second rollup.
    let begin = Instant::now();
    for round in 1..=2 {
        let to = add(&house.clients[0], "c", 5).await;
        let counted = house.clients[round % 2].get_exact(NS, "c", to).await.expect("a count");
        assert!(counted.count == 5 * round as i64 && counted.exact_to_ms >= to.min_exact_to_ms, "{counted:?}");
        assert!(counted.exact_to_ms <= now_ms() - ACCEPT_LIMIT_MS);
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "each took {:?}", begin.elapsed() / 2);
    // What stands is answered at once, and by all servers.
    assert_eq!(house.count(0, NS, "c").await, house.count(1, NS, "c").await);
    let other = house.entry(NS, "not read").await.expect("a counter");
    assert_eq!((other.count, other.exact_to_ms), (0, 0), "it waits for more to come, for an hour");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_without_rollups_a_read_ends_in_time_and_then_they_come() {
    let mut house = House::without_worker().await;
    house.put(NS, patient()).await;
    let to = add(&house.clients[0], "c", 5).await;
    for wait in [Duration::ZERO, Duration::from_secs(3)] {
        let begin = Instant::now();
        let error = house.clients[0].get_exact(NS, "c", to.wait(wait)).await.expect_err("no worker");
        assert!(exact_to(refused(&error)) < to.min_exact_to_ms);
        let took = begin.elapsed();
        assert!(took >= wait && took < wait + Duration::from_secs(3), "{took:?} of {wait:?}");
    }
    let waiting = reading(&house.clients[0], vec!["c".to_owned()], to);
    house.start_worker().await;
    assert_eq!(waiting.await.expect("it does not panic").expect("counts"), 1);
}

#[tokio::test]
async fn n19_a_time_that_no_rollup_can_reach_is_refused_at_once() {
    let house = House::without_rollups().await;
    house.put(NS, NamespaceConfig { accept_limit_ms: Some(60_000), ..patient() }).await;
    let begin = Instant::now();
    for to in [ExactTo::now(), ExactTo::new(now_ms() + 3_600_000), ExactTo::new(i64::MAX as u64)] {
        let error = house.clients[0].get_exact(NS, "c", to.wait(LONGEST)).await.expect_err("too late a time");
        assert_eq!(exact_to(refused(&error)), 0);
    }
    assert!(begin.elapsed() < LONGEST / 3, "{:?}", begin.elapsed());
    house.put("plain", NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..Default::default() }).await;
    let error = house.clients[0].get_exact("plain", "c", ExactTo::new(1)).await.expect_err("no times");
    let refused = refused(&error);
    assert_eq!((refused.code, refused.field.as_deref()), (Code::InvalidArgument, Some("min_exact_to_ms")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_each_counter_of_a_batch_waits_only_for_what_is_pending() {
    let house = House::without_worker().await;
    house.put(NS, patient()).await;
    let to = add(&house.clients[0], "written", 5).await;
    let names = ["never", "written", "", "never", "later"].map(str::to_owned).to_vec();
    // In a window after that of the read's time.
    until(async || now_ms(), |now_ms| *now_ms > to.min_exact_to_ms + WINDOW_MS).await;
    add(&house.clients[0], "later", 7).await;
    let results = house.clients[0].get_many_exact(NS, names, to.wait(Duration::from_secs(5))).await.expect("results");
    for number in [0, 3, 4] {
        let counted = results[number].as_ref().expect("nothing is pending before the time");
        assert!(counted.count == 0 && counted.exact_to_ms >= to.min_exact_to_ms, "{number}: {counted:?}");
    }
    assert!(exact_to(results[1].as_ref().expect_err("no worker")) < to.min_exact_to_ms);
    assert_eq!(results[2].as_ref().expect_err("no name").field.as_deref(), Some("counters[2].counter"));
    // To read a counter does not make it.
    assert!(house.entry(NS, "never").await.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_idle_and_deleted_counters_are_exact_without_a_rollup() {
    let house = House::with_rollups().await;
    house.put(NS, patient()).await;
    let to = add(&house.clients[0], "c", 5).await;
    house.clients[0].get_exact(NS, "c", to).await.expect("a count");
    for _ in 0..2 {
        let to = ExactTo::now().wait(LONGEST);
        let counted = house.clients[1].get_exact(NS, "c", to).await.expect("a count");
        assert!(counted.count == 5 && counted.exact_to_ms >= to.min_exact_to_ms, "{counted:?}");
        let rolled_up = house.entry(NS, "c").await.expect("a counter");
        assert!(rolled_up.exact_to_ms < to.min_exact_to_ms, "no rollup has made it exact: {rolled_up:?}");
    }
    let deleted = house.clients[0].delete(NS, NewClear::new("c")).await.expect("deleted");
    let to = ExactTo::after(deleted.event_time_ms).wait(LONGEST);
    let counted = house.clients[0].get_exact(NS, "c", to).await.expect("a count");
    assert!(counted.count == 0 && counted.exact_to_ms >= to.min_exact_to_ms, "{counted:?}");
    let to = add(&house.clients[1], "c", 2).await;
    assert_eq!(house.clients[0].get_exact(NS, "c", to).await.expect("a count").count, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_an_accurate_count_is_exact_without_a_rollup_and_has_later_adds_too() {
    let house = House::without_rollups().await;
    house.put(NS, NamespaceConfig { counter_type: Some(CounterType::Accurate), ..patient() }).await;
    let to = add(&house.clients[0], "c", 5).await;
    let read = async || house.clients[0].get_exact(NS, "c", to).await.expect("a count");
    let (counted, _) = tokio::join!(read(), add(&house.clients[1], "c", 2));
    assert!([5, 7].contains(&counted.count) && counted.exact_to_ms >= to.min_exact_to_ms, "{counted:?}");
    assert_eq!(read().await.count, 7);
}

/// The marks of dirty counters go, as in a store that has lost its last writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_a_request_for_a_rollup_that_was_lost_is_repeated() {
    let mut house = House::without_worker().await;
    house.put(NS, patient()).await;
    let queue = house.queue.clone().expect("a queue");
    let to = add(&house.clients[0], "c", 5).await;
    let waiting = reading(&house.clients[0], vec!["c".to_owned()], to);
    let jobs = async || {
        let mut jobs = Vec::new();
        for number in 0..8 {
            let name = format!("rollup/{NS}/{number}of8");
            if queue.depth(&name, None).await.is_ok_and(|depth| depth.pending > 0) {
                jobs.push(name);
            }
        }
        jobs
    };
    for _ in 0..2 {
        let found = until(jobs, |jobs| !jobs.is_empty()).await;
        let mut connection = house.redis.connection().await;
        for shard in 0..8 {
            let key = format!("tc:{{{NS}/{shard}}}:dirty");
            redis::cmd("DEL").arg(key).exec_async(&mut connection).await.expect("removed");
        }
        queue.purge_queue(&found[0], true).await.expect("its job goes, too");
    }
    house.start_worker().await;
    assert_eq!(waiting.await.expect("it does not panic").expect("counts"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_many_waiting_reads_cost_hardly_more_than_one() {
    const READS: usize = 300;
    let house = House::without_rollups().await;
    house.put(NS, patient()).await;
    let mut to = ExactTo::now();
    for number in 0..READS {
        to = add(&house.clients[0], &format!("c{number}"), 5).await.wait(Duration::from_secs(4));
    }
    let (scripts, hashes) = (house.calls("evalsha").await, house.calls("hmget").await);
    let read = async |number: usize| {
        let counter = format!("c{number}");
        let error = house.clients[number % 2].get_exact(NS, &counter, to).await.expect_err("no rollups");
        exact_to(refused(&error));
    };
    join_all((0..READS).map(read)).await;
    let (scripts, hashes) = (house.calls("evalsha").await - scripts, house.calls("hmget").await - hashes);
    // Two servers, 4 s: in each second 8 shards are sealed and 8 touched. The first read of each counter is its own.
    assert!((16..=400).contains(&scripts), "{scripts} scripts");
    assert!(hashes <= READS as u64 + 1_000, "{hashes} reads of hashes");
}

/// Waits until Redis has had nothing to do for a while.
async fn until_quiet(house: &House) {
    let (mut calls, mut since) = (0, Instant::now());
    let give_up_at = Instant::now() + SOON;
    while since.elapsed() < Duration::from_secs(3) {
        let now = house.calls("evalsha").await;
        if now != calls {
            (calls, since) = (now, Instant::now());
        }
        assert!(Instant::now() < give_up_at, "there is no end of scripts");
        sleep(POLL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_nothing_is_done_for_a_caller_that_has_gone() {
    let house = House::without_rollups().await;
    house.put(NS, patient()).await;
    let to = add(&house.clients[0], "c", 5).await;
    let before = house.calls("evalsha").await;
    let waiting = reading(&house.clients[0], vec!["c".to_owned()], to);
    until(async || house.calls("evalsha").await, |calls| *calls > before + 16).await;
    waiting.abort();
    until_quiet(&house).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_the_counters_that_reads_wait_for_are_bounded() {
    let house = House::without_rollups().await;
    house.put(NS, NamespaceConfig { accept_limit_ms: Some(20_000), ..patient() }).await;
    let names: Vec<String> = (0..1_000).map(|number| format!("c{number}")).collect();
    let to = ExactTo::now().wait(LONGEST);
    // One more than have room. When that is refused, the others wait.
    let waiting: Vec<_> = (0..51).map(|_| reading(&house.clients[0], names.clone(), to)).collect();
    until(async || waiting.iter().any(JoinHandle::is_finished), |is_refused| *is_refused).await;
    let one_more = async || house.clients[0].get_exact(NS, "c", to).await.map_err(|error| refused(&error).clone());
    let is_refused = async || match timeout(Duration::from_millis(200), one_more()).await {
        Err(_) => None,
        Ok(answer) => answer.err(),
    };
    let refused = until(is_refused, Option::is_some).await.expect("a refusal");
    assert_eq!((refused.code, refused.reason.as_str()), (Code::ResourceExhausted, "OVERLOADED"));
    assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
    house.count(0, NS, "c").await;
    waiting.iter().for_each(JoinHandle::abort);
    until(is_refused, Option::is_none).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_waiting_reads_end_when_their_server_stops() {
    let mut house = House::without_rollups().await;
    house.put(NS, patient()).await;
    let to = add(&house.clients[0], "c", 5).await;
    let before = house.calls("evalsha").await;
    let waiting = reading(&house.clients[0], vec!["c".to_owned()], to);
    until(async || house.calls("evalsha").await, |calls| *calls > before).await;
    let begin = Instant::now();
    house.stop(0).await;
    let error = waiting.await.expect("it does not panic").expect_err("the server stops");
    assert!(matches!(&error, Error::Unavailable { message, .. } if message.contains("stopping")), "{error:?}");
    assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_the_answer_comes_before_the_callers_deadline() {
    let house = House::without_rollups().await;
    house.put(NS, patient()).await;
    let to = add(&house.clients[0], "c", 5).await;
    let mut counters = house.wire(0).await.counters;
    let min_exact_to_ms = to.min_exact_to_ms as i64;
    let (namespace, counter) = (NS.to_owned(), "c".to_owned());
    let mut request =
        Request::new(wire::GetCountRequest { namespace, counter, min_exact_to_ms, wait_ms: 30_000, global: false });
    request.set_timeout(Duration::from_secs(5));
    let status = counters.get_count(request).await.expect_err("no rollups");
    let reason = status.get_error_details().error_info().map(|info| info.reason.clone());
    assert_eq!((status.code(), reason.as_deref()), (Code::DeadlineExceeded, Some("NOT_EXACT_YET")));
}

/// Four callers to a counter, each of which reads after each of its adds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n19_every_caller_reads_its_own_adds() {
    const COUNTERS: usize = 5;
    let house = House::with_rollups().await;
    house.put(NS, patient()).await;
    let caller = async |caller: usize| {
        let counter = format!("c{}", caller % COUNTERS);
        for round in 1..=4 {
            let to = add(&house.clients[caller % 2], &counter, 1).await;
            let counted = house.clients[(caller + 1) % 2].get_exact(NS, &counter, to).await.expect("a count");
            assert!(counted.exact_to_ms >= to.min_exact_to_ms && (round..=16).contains(&counted.count), "{counted:?}");
        }
    };
    join_all((0..20).map(caller)).await;
    for number in 0..COUNTERS {
        let to = ExactTo::now().wait(LONGEST);
        let counted = house.clients[0].get_exact(NS, &format!("c{number}"), to).await.expect("a count");
        assert_eq!(counted.count, 16);
    }
}
