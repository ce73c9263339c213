//! The limit changes, others give back, and a process that is idle.

use super::fake::{Fake, Fate};
use super::{LONG, open, settle, take_all};
use crate::budget::{BudgetError, TakeError};
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn l4_a_raised_limit_is_used_at_once() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 100);
    assert_eq!(take_all(&budget).await, 100);
    budget.set_limit(150).expect("a limit");
    assert_eq!(budget.limit(), 150);
    assert_eq!(take_all(&budget).await, 50);
    assert_eq!(fake.count(), 150);
    assert!(matches!(budget.set_limit(-1), Err(BudgetError::Invalid { .. })));
}

#[tokio::test(start_paused = true)]
async fn l4_after_a_lower_limit_no_take_uses_a_grant_of_the_higher_one() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 10_000);
    for _ in 0..100 {
        budget.take(1, LONG).await.expect("a grant");
    }
    settle().await;
    assert!(budget.stats().left > 0);
    budget.set_limit(100).expect("a limit");
    assert_eq!(budget.try_take(1), Err(TakeError::NotGranted));
    assert_eq!(budget.take(1, LONG).await, Err(TakeError::Exhausted));
    assert_eq!((fake.count(), budget.stats().taken), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn l4_a_grant_under_the_higher_limit_that_arrives_after_the_change_is_given_back() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::AnswerLost]);
    let budget = open(&fake, 10_000);
    settle().await;
    assert!(fake.count() > 5);
    budget.set_limit(5).expect("a limit");
    assert_eq!(take_all(&budget).await, 5);
    assert_eq!(fake.count(), 5);
}

#[tokio::test(start_paused = true)]
async fn l4_what_others_give_back_is_found_after_the_retry_time() {
    let fake = Fake::with_count(100);
    let budget = open(&fake, 100);
    assert_eq!(budget.take(1, LONG).await, Err(TakeError::Exhausted));
    let reads = fake.reads();
    for _ in 0..100 {
        assert_eq!(budget.try_take(1), Err(TakeError::Exhausted));
        sleep(Duration::from_millis(100)).await;
    }
    assert!((8..=11).contains(&(fake.reads() - reads)), "one read a second: {}", fake.reads() - reads);
    fake.set_count(90);
    let mut waited = 0;
    while budget.try_take(1).is_err() {
        sleep(Duration::from_millis(100)).await;
        waited += 100;
    }
    assert!(waited <= 1_300, "{waited} ms");
    assert_eq!(take_all(&budget).await, 9);
    // Without takes, there are no calls.
    sleep(LONG).await;
    let calls = fake.calls();
    sleep(LONG).await;
    assert_eq!(fake.calls(), calls);
    // The memory is over, too: what was given back meanwhile is taken by the first call.
    fake.set_count(90);
    assert_eq!(budget.take(1, LONG).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn l4_what_is_given_back_is_there_for_others_and_a_later_take_is_granted_again() {
    let fake = Fake::with_count(0);
    let (first, second) = (open(&fake, 16), open(&fake, 16));
    first.take(14, LONG).await.expect("a grant");
    second.take(1, LONG).await.expect("a grant");
    settle().await;
    first.give_back(LONG).await.expect("an answer");
    second.give_back(LONG).await.expect("an answer");
    assert_eq!(fake.count(), 15, "no grant is requested before a take needs it");
    assert_eq!(first.take(1, LONG).await, Ok(()));
    assert_eq!(second.take(1, LONG).await, Err(TakeError::Exhausted));
}

#[tokio::test(start_paused = true)]
async fn l4_a_process_that_stops_taking_gives_back_what_it_holds() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 1_000);
    budget.take(2, LONG).await.expect("a grant");
    settle().await;
    assert!(fake.count() > 2);
    sleep(Duration::from_secs(125)).await;
    assert_eq!(fake.count(), 2);
    assert_eq!(take_all(&budget).await, 998);
}

#[tokio::test(start_paused = true)]
async fn l4_a_dropped_budget_and_a_dropped_take_spend_nothing_more() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 1_000);
    budget.take(2, LONG).await.expect("a grant");
    settle().await;
    let (count, left) = (fake.count(), budget.stats().left);
    assert_eq!(count, 2 + left);
    fake.plan(&[Fate::CallLost; 50]);
    assert_eq!(budget.take(900, Duration::from_secs(1)).await, Err(TakeError::NotGranted));
    assert_eq!(budget.stats().taken, 2);
    drop(budget);
    sleep(LONG).await;
    assert_eq!((fake.count(), fake.count_max()), (count, count), "what was granted is spent, and not more");
}
