//! A process dies, or stops and loses its partitions, at each step around its transactions.

use super::life::{self, BEGUN, ENDS};
use super::stage::Stage;
use super::topics::{Written, now_ms};
use nix::sys::signal::Signal;

const DAY_MS: i64 = 86_400_000;

/// Late ones, and some that count at their time.
fn records(counter: &str) -> Vec<Written> {
    let add = |number: i32| match number % 5 {
        0 => Written::add(number % 2, now_ms(), counter, 1),
        1 => Written::add(number % 2, now_ms() - 30 * DAY_MS, counter, 1),
        _ => Written::late(number % 2, counter, 1),
    };
    (0..40).map(add).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_a_process_may_die_at_any_step() {
    let mut stage = Stage::start("steps", 2, 2_000).await;
    for (number, end) in ENDS.into_iter().enumerate() {
        // Each life has late records, so it comes to every step; one record too many or too few is seen by its counter.
        stage.write(&records(&format!("life-{number}"))).await;
        life::start(&stage, Signal::SIGKILL, end).dies().await;
    }
    stage.ingest(Some("a")).await;
    stage.assert_exact().await;
    assert!(stage.topics.dead_letters().await.is_empty());
}

/// It stops when it has sent its adds and begins to write the late ones again. Another process does all of that meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn n17_a_process_that_has_lost_its_partitions_writes_nothing() {
    let mut stage = Stage::start("fenced", 2, 2_000).await;
    let late: Vec<Written> = (0..40).map(|number| Written::late(number % 2, "late", 1)).collect();
    stage.write(&late).await;
    // The first transaction is the claim of these records. Kafka knows of the second one only once something is written.
    let stopped = life::start(&stage, Signal::SIGSTOP, (BEGUN, 2));
    stopped.has_come().await;
    stage.ingest(None).await;
    stage.assert_exact().await;
    stage.ingests[0].stop().await;
    stopped.goes_on();
    // Only that process can decide these, after its attempt to write.
    stage.write(&records("later")).await;
    stage.assert_exact().await;
    assert!(stage.topics.dead_letters().await.is_empty());
}
