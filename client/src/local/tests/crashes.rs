//! A process that dies at any step loses no add and doubles none (L2).

use super::episode::each_death;
use super::fake::{Answer, Fake};

/// Answers of the first calls, after which the service counts.
fn answers() -> Vec<Vec<Answer>> {
    use Answer::{Away, Count, Half, Lost, Refuse};
    vec![
        vec![],
        vec![Away],
        vec![Lost, Lost],
        vec![Count, Refuse("TOO_OLD")],
        vec![Half("TOO_OLD"), Refuse("TOO_OLD"), Lost],
        vec![Half("STORE_UNAVAILABLE"), Lost, Half("TOO_OLD")],
        vec![Lost, Refuse("TOO_OLD"), Refuse("TOO_OLD"), Lost],
    ]
}

#[tokio::test]
async fn l2_a_process_that_dies_at_any_step_loses_no_add_and_doubles_none() {
    let mut deaths = 0;
    for answers in answers() {
        let life = each_death([0, 3, 7], || Fake::answering(&answers), &format!("{answers:?}"), |_, _| ()).await;
        assert!(life.last_steps > 30, "only {} steps with {answers:?}", life.last_steps);
        deaths += life.deaths;
    }
    assert!(deaths > 1_000, "{deaths} deaths");
}
