//! Takes, grants and their sizes.

use super::fake::Fake;
use super::{LONG, open, open_as, settle, take_all};
use crate::budget::{BudgetError, BudgetOptions, TakeError};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn l4_takes_end_exactly_at_the_limit_and_the_service_has_as_much() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 1_000);
    assert_eq!(take_all(&budget).await, 1_000);
    assert_eq!(budget.try_take(1), Err(TakeError::Exhausted));
    assert_eq!((fake.count(), budget.stats().taken, budget.stats().left), (1_000, 1_000, 0));
    let grants = fake.grants();
    assert!(grants.len() < 60, "few calls for a thousand takes: {grants:?}");
    assert!(grants.iter().all(|units| *units <= 1_000 / 8), "no grant is more than its share: {grants:?}");
}

#[tokio::test(start_paused = true)]
async fn l4_many_tasks_of_a_process_take_no_unit_twice() {
    let fake = Fake::with_count(0);
    let (budget, mut tasks) = (Arc::new(open(&fake, 5_000)), JoinSet::new());
    for _ in 0..20 {
        let budget = budget.clone();
        tasks.spawn(async move { take_all(&budget).await });
    }
    let taken: i64 = tasks.join_all().await.into_iter().sum();
    assert_eq!((taken, fake.count()), (5_000, 5_000));
}

#[tokio::test(start_paused = true)]
async fn l4_a_take_out_of_range_is_refused_and_takes_nothing() {
    let fake = Fake::with_count(0);
    let budget = open_as(&fake, i64::from(u32::MAX), BudgetOptions { grant_max: 100, ..BudgetOptions::default() });
    for units in [0, -1, i64::MIN, 101, i64::MAX] {
        assert_eq!(budget.try_take(units), Err(TakeError::Invalid { grant_max: 100 }), "{units}");
        assert_eq!(budget.take(units, LONG).await, Err(TakeError::Invalid { grant_max: 100 }), "{units}");
    }
    assert_eq!(budget.stats().taken, 0);
    assert_eq!(budget.take(100, LONG).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn l4_limits_and_options_have_bounds() {
    let invalid = |limit: i64, options: BudgetOptions| {
        let opened = super::Budget::open_with(Fake::with_count(0), limit, options);
        matches!(opened, Err(BudgetError::Invalid { .. }))
    };
    let default = BudgetOptions::default;
    assert!(invalid(-1, default()) && invalid((1 << 62) + 1, default()));
    assert!(!invalid(0, default()) && !invalid(1 << 62, default()));
    for grant_max in [0, -5, (1 << 40) + 1] {
        assert!(invalid(1, BudgetOptions { grant_max, ..default() }), "{grant_max}");
    }
    assert!(invalid(1, BudgetOptions { retry_ms: 0, ..default() }));
}

#[tokio::test(start_paused = true)]
async fn l4_counts_at_the_ends_of_their_range_do_not_overflow() {
    let options = BudgetOptions { grant_max: 1 << 40, ..BudgetOptions::default() };
    let fake = Fake::with_count(-(1 << 62));
    let budget = open_as(&fake, 1 << 62, options.clone());
    assert_eq!(budget.take(1 << 40, LONG).await, Ok(()));
    assert!(fake.calls() < 10, "{} calls", fake.calls());
    let full = open_as(&Fake::with_count(1 << 62), 0, options);
    assert_eq!(full.take(1, LONG).await, Err(TakeError::Exhausted));
}

#[tokio::test(start_paused = true)]
async fn l4_a_large_take_waits_for_a_grant_of_its_size() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 1_000);
    settle().await;
    assert_eq!(budget.try_take(700), Err(TakeError::NotGranted));
    assert_eq!(budget.take(700, LONG).await, Ok(()));
    // What is left is less than that, but not nothing.
    assert_eq!(budget.take(700, LONG).await, Err(TakeError::Exhausted));
    assert_eq!(take_all(&budget).await, 300);
    assert_eq!(fake.count(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn l4_small_takes_get_the_rest_while_large_ones_are_refused() {
    let fake = Fake::with_count(0);
    let budget = Arc::new(open(&fake, 50));
    let large = budget.clone();
    let large = tokio::spawn(async move {
        loop {
            assert_ne!(large.try_take(1_000), Ok(()));
            sleep(Duration::from_millis(1)).await;
        }
    });
    for number in 0..50 {
        assert_eq!(budget.take(1, LONG).await, Ok(()), "take {number}");
    }
    large.abort();
}

#[tokio::test(start_paused = true)]
async fn l4_takes_that_the_grant_serves_make_no_call() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 1_000_000);
    settle().await;
    let calls = fake.calls();
    for _ in 0..7 {
        assert_eq!(budget.try_take(1), Ok(()));
    }
    settle().await;
    assert_eq!(fake.calls(), calls, "above the low water");
}

#[tokio::test(start_paused = true)]
async fn l4_grants_follow_the_rate() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 1_000_000);
    let mut taken = 0;
    for _ in 0..20_000 {
        sleep(Duration::from_millis(1)).await;
        taken += i64::from(budget.try_take(1).is_ok());
    }
    assert!(taken > 19_900, "{taken} of 20,000: the next grant comes before the end of the last one");
    let grants = fake.grants();
    // A thousand a second, and the next half of it when half of it is taken.
    assert!(grants.iter().rev().take(10).all(|units| (400..=700).contains(units)), "{grants:?}");
}
