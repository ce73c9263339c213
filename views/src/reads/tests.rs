//! What readers get, under virtual time.

use super::queue::{NEW_WAITING_MAX, WAITING_MAX};
use super::*;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::time::{advance, sleep};

fn key(counter: &str) -> CounterKey {
    ("n".into(), counter.to_owned())
}

fn namespaces() -> impl Iterator<Item = Arc<str>> {
    ["n", "other"].into_iter().map(Into::into)
}

/// Counts that are as high as the number of the call, which takes so long.
fn slow(call_time: Duration) -> (Reads, Arc<AtomicI64>) {
    let calls = Arc::new(AtomicI64::new(0));
    let called = calls.clone();
    let call = move |_, names: Vec<String>| {
        let count = called.fetch_add(1, Ordering::Relaxed) + 1;
        async move {
            sleep(call_time).await;
            Ok(names.into_iter().map(|name| (name, Ok(count))).collect())
        }
    };
    (Reads::start_with(call, namespaces(), 1_000), calls)
}

#[tokio::test(start_paused = true)]
async fn v5_a_count_of_up_to_a_second_is_answered_at_once_and_read_again_in_the_background() {
    let (reads, calls) = slow(Duration::from_millis(300));
    assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
    advance(Duration::from_millis(200)).await;
    let began = Instant::now();
    for _ in 0..100 {
        assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
        tokio::task::yield_now().await;
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(Duration::from_millis(400)).await;
    assert_eq!(calls.load(Ordering::Relaxed), 2, "one request at a time");
    assert!(reads.get(key("v")).await.unwrap().count >= 2, "it was read again");
}

#[tokio::test(start_paused = true)]
async fn v5_an_older_count_is_read_again_first_and_answered_if_the_counters_are_slow() {
    for (age_s, call_ms, expected, waits_ms) in [(2, 2, 2, 2), (2, 80, 1, 3), (20, 80, 2, 80), (20, 300, 1, 100)] {
        let (reads, _) = slow(Duration::from_millis(call_ms));
        assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
        advance(Duration::from_secs(age_s)).await;
        let began = Instant::now();
        assert_eq!(reads.get(key("v")).await.unwrap().count, expected, "a call of {call_ms} ms");
        assert_eq!(began.elapsed(), Duration::from_millis(waits_ms));
        sleep(Duration::from_millis(call_ms)).await;
        assert_eq!(reads.get(key("v")).await.unwrap().count, 2, "it was read meanwhile");
    }
}

#[tokio::test(start_paused = true)]
async fn v5_a_count_that_is_not_known_holds_up_no_reader_for_long() {
    let (reads, _) = slow(Duration::from_secs(60));
    let began = Instant::now();
    assert_eq!(reads.get(key("v")).await.unwrap_err(), Refusal::NoCount);
    assert_eq!(began.elapsed(), LONG_PATIENCE);
    let began = Instant::now();
    assert!(reads.get_soon(key("v")).await.is_none());
    assert_eq!(began.elapsed(), SOON);
    reads.queues["n"].fail();
    let began = Instant::now();
    assert_eq!(reads.get(key("v")).await.unwrap_err(), Refusal::NoCount);
    assert_eq!(began.elapsed(), PATIENCE);
}

#[tokio::test(start_paused = true)]
async fn v5_a_refused_counter_is_no_failure_of_the_others() {
    let call = |_, names: Vec<String>| {
        let result = |name: &str| if name == "bad" { Err("refused".to_owned()) } else { Ok(7) };
        let results = names.into_iter().map(|name| (name.clone(), result(&name))).collect();
        async { Ok(results) }
    };
    let reads = Reads::start_with(call, namespaces(), 1_000);
    for round in 0..2 {
        let (good, bad) = tokio::join!(reads.get(key("good")), reads.get(key("bad")));
        let good = good.unwrap();
        assert_eq!((good.count, good.read_at.elapsed()), (7, Duration::ZERO), "round {round}");
        assert_eq!(bad.unwrap_err(), Refusal::NoCount);
        assert!(!reads.queues["n"].is_away());
        advance(Duration::from_secs(2)).await;
    }
    // Nothing was read at all.
    assert_eq!(reads.get(key("bad")).await.unwrap_err(), Refusal::NoCount);
    tokio::task::yield_now().await;
    assert!(reads.queues["n"].is_away());
}
#[tokio::test(start_paused = true)]
async fn v5_a_namespace_that_is_refused_or_slow_is_no_failure_of_the_others() {
    for other_ms in [0, 5_000] {
        let call = move |namespace: Arc<str>, names: Vec<String>| async move {
            if &*namespace == "other" {
                sleep(Duration::from_millis(other_ms)).await;
                return Err("the right is missing".to_owned());
            }
            // As long as the failed call of the other one is under way.
            sleep(Duration::from_millis(1)).await;
            Ok(names.into_iter().map(|name| (name, Ok(7))).collect())
        };
        let reads = Reads::start_with(call, namespaces(), 1_000);
        let of_other = |video: &str| (Arc::from("other"), video.to_owned());
        for round in 0..10 {
            let (cold, known, other) = tokio::join!(
                reads.get(key(&format!("cold-{round}"))),
                reads.get(key("known")),
                timeout(SOON, reads.get(of_other("v"))),
            );
            assert_eq!(cold.unwrap().count, 7, "{other_ms} ms, round {round}");
            // Older than 1 s before, so it was read again, and that takes less than 3 ms.
            let known = known.unwrap();
            assert!(known.read_at.elapsed() <= SOON + Duration::from_millis(1), "{:?}", known.read_at.elapsed());
            assert!(other.is_err() || other.is_ok_and(|other| other == Err(Refusal::NoCount)));
            advance(SERVED).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn v5_a_counter_waits_once_however_often_it_is_requested() {
    let (reads, calls) = slow(Duration::from_millis(50));
    let all = (0..10_000).map(|_| timeout(BRIEF_PATIENCE, reads.get(key("v"))));
    assert!(futures::future::join_all(all).await.iter().all(Result::is_err), "they do not wait for so long");
    // The one that is being read, for readers that have gone.
    assert_eq!(reads.queues["n"].len(), 1);
    assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
    assert_eq!((reads.queues["n"].len(), calls.load(Ordering::Relaxed)), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn v5_readers_of_random_names_hold_up_no_known_count() {
    let (reads, _) = slow(Duration::from_millis(5));
    assert_eq!(reads.get(key("v")).await.unwrap().count, 1);
    advance(Duration::from_secs(20)).await;
    // Random names, much faster than they can be read.
    let random = (0..10_000).map(|name| key(&name.to_string()));
    let random: Vec<_> = random.map(|key| Box::pin(timeout(Duration::ZERO, reads.get(key)))).collect();
    let refused = futures::future::join_all(random).await.into_iter().flatten();
    assert_eq!(refused.filter(|count| *count == Err(Refusal::Overloaded)).count(), 10_000 - NEW_WAITING_MAX);
    assert_eq!(reads.queues["n"].len(), NEW_WAITING_MAX);
    let count = reads.get(key("v")).await.unwrap();
    assert!(count.count > 1 && count.read_at.elapsed() < PATIENCE, "{count:?}");
    // Known counts have a bound, too. Beyond it, readers get the earlier one.
    let queue = &reads.queues["n"];
    (0..2 * WAITING_MAX).for_each(|name| drop(queue.request(&format!("known-{name}"), true)));
    assert_eq!(queue.len(), WAITING_MAX);
    advance(Duration::from_secs(20)).await;
    let began = Instant::now();
    assert_eq!(reads.get(key("v")).await.unwrap().count, count.count);
    assert_eq!(began.elapsed(), Duration::ZERO);
}
