//! Answers that are lost, late or refusals: no unit is taken that is not certainly granted, and none is lost without need.

use super::fake::{Fake, Fate};
use super::{LONG, open, settle, take_all};
use crate::budget::TakeError;
use std::time::Duration;
use tokio::time::sleep;

#[tokio::test(start_paused = true)]
async fn l4_a_lost_answer_is_repeated_with_its_token_and_granted_once() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::AnswerLost, Fate::CallLost, Fate::AnswerLost]);
    let budget = open(&fake, 100);
    assert_eq!(take_all(&budget).await, 100);
    assert_eq!((fake.count(), budget.stats().written_off), (100, 0));
}

#[tokio::test(start_paused = true)]
async fn l4_nothing_is_taken_before_the_answer() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::AnswerLost; 8]);
    let budget = open(&fake, 100);
    let wait = Duration::from_millis(300);
    assert_eq!(budget.take(1, wait).await, Err(TakeError::NotGranted));
    assert!(fake.count() > 0, "it has counted");
    assert_eq!(budget.stats().last_error.as_deref(), Some("unavailable (it may have been written): no answer"));
    assert_eq!(budget.take(1, LONG).await, Ok(()));
    assert_eq!(budget.stats().last_error, None);
}

#[tokio::test(start_paused = true)]
async fn l4_a_call_that_has_become_too_old_is_made_again_with_another_token() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::CallLost]);
    let budget = open(&fake, 100);
    settle().await;
    // Virtual time does not move the clock of tokens.
    fake.refuse_until_now();
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(take_all(&budget).await, 100);
    assert_eq!(fake.count(), 100);
}

#[tokio::test(start_paused = true)]
async fn l4_a_bound_does_not_settle_a_call_that_is_still_on_its_way() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::Delayed]);
    let budget = open(&fake, 100);
    settle().await;
    // Others take everything: the repetition is refused.
    fake.set_count(100);
    assert_eq!(budget.take(1, Duration::from_secs(3)).await, Err(TakeError::NotGranted));
    // They give back, and the first call arrives.
    fake.set_count(0);
    fake.arrive();
    assert!(fake.count() > 0);
    assert_eq!(take_all(&budget).await, 100, "what has counted is used");
}

#[tokio::test(start_paused = true)]
async fn l4_a_grant_that_the_service_has_forgotten_counts_as_spent() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::AnswerLost, Fate::Refused("TOKEN_EXPIRED")]);
    let budget = open(&fake, 100);
    let taken = take_all(&budget).await;
    let written_off = budget.stats().written_off.cast_signed();
    assert!(written_off > 0);
    assert_eq!((taken + written_off, fake.count()), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn l4_refusals_are_reported_and_tried_again() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::Refused("NAMESPACE_NOT_FOUND"), Fate::Refused("TOO_EARLY"), Fate::Refused("OVERFLOW")]);
    let budget = open(&fake, 100);
    settle().await;
    assert_eq!(budget.stats().last_error.as_deref(), Some("NAMESPACE_NOT_FOUND"));
    assert_eq!(take_all(&budget).await, 100);
    assert_eq!(budget.stats().written_off, 0);
}

#[tokio::test(start_paused = true)]
async fn l4_what_is_given_back_is_given_back_once_whatever_answers_are_lost() {
    for fates in [
        &[Fate::AnswerLost, Fate::CallLost, Fate::AnswerLost][..],
        &[Fate::Refused("NAMESPACE_NOT_FOUND"), Fate::Refused("TOO_EARLY")][..],
        &[Fate::CallLost, Fate::Refused("NAMESPACE_NOT_FOUND"), Fate::CallLost][..],
    ] {
        let fake = Fake::with_count(40);
        let budget = open(&fake, 1_000);
        budget.take(3, LONG).await.expect("a grant");
        settle().await;
        fake.plan(fates);
        budget.close(LONG).await.expect("an answer at last");
        assert_eq!(fake.count(), 43, "after {fates:?}");
        assert_eq!(budget.try_take(1), Err(TakeError::Closed));
        budget.close(LONG).await.expect("it is closed");
    }
}

#[tokio::test(start_paused = true)]
async fn l4_close_settles_a_grant_whose_answer_is_missing() {
    let fake = Fake::with_count(0);
    fake.plan(&[Fate::AnswerLost; 6]);
    let budget = open(&fake, 1_000);
    settle().await;
    assert!(fake.count() > 0);
    let error = budget.close(Duration::from_millis(100)).await.expect_err("no answer so far");
    assert!(error.to_string().contains("16 units"), "{error}");
    budget.close(LONG).await.expect("an answer at last");
    assert_eq!(fake.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn l4_what_a_clear_has_removed_is_not_given_back() {
    let fake = Fake::with_count(0);
    let budget = open(&fake, 1_000);
    budget.take(3, LONG).await.expect("a grant");
    settle().await;
    // A clear, and two units that another process was granted since.
    fake.set_count(2);
    budget.close(LONG).await.expect("an answer");
    assert_eq!(fake.count(), 2);
    assert!(budget.stats().written_off > 0);

    let budget = open(&fake, 1_000);
    budget.take(3, LONG).await.expect("a grant");
    settle().await;
    fake.set_count(0);
    // The next grant shows the clear, so the old one ends.
    let (held, taken) = (budget.stats().left, take_all(&budget).await);
    assert!(taken >= 1_000 && taken <= 1_000 + held, "{taken} after the clear, {held} held before");
    assert_eq!(fake.count(), 1_000);
    sleep(LONG).await;
}
