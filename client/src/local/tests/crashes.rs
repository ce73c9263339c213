//! A process that dies at any step loses no add and doubles none (L2).

use super::episode::{Totals, live_until, sum};
use super::fake::{Answer, Fake};
use super::{folder, open};

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
        let mut last_steps = 0;
        // Two processes die: one in the middle of a push, and the next one in the middle of what it takes over.
        for step in 0.. {
            let mut was_reached = false;
            for next in [step, 0, 3, 7] {
                let (folder, fake) = (folder(), Fake::answering(&answers));
                let mut totals = Totals::new();
                for (process, step) in [step, next].into_iter().enumerate() {
                    let (added, died) = live_until(folder.path(), &fake, step).await;
                    sum(&mut totals, &added);
                    was_reached |= died && process == 0;
                    deaths += usize::from(died);
                }
                let counters = open(folder.path(), &fake).await;
                // The first push may still meet the answers that no process before has got.
                while counters.push().await.is_err() {}
                counters.close().await.expect("a service that answers");
                assert_eq!(fake.counts(), totals, "{answers:?}, died at {step}, then at {next}");
            }
            if !was_reached {
                break;
            }
            last_steps = step;
        }
        assert!(last_steps > 30, "only {last_steps} steps with {answers:?}");
    }
    assert!(deaths > 1_000, "{deaths} deaths");
}
