//! How soon another process counts the views of one that was killed (V3).

use super::stage::Stage;
use crate::views::load::{post_all, until_all_counted};
use std::time::Duration;
use tallystone_tests::TestKafka;
use tokio::time::Instant;

/// Brokers allow no shorter one by default.
const SESSION: Duration = Duration::from_secs(6);
/// The heartbeat by which the others learn that the session has ended, and three seconds for a busy machine.
const LATE_MAX: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn v3_views_of_a_member_that_was_killed_count_when_its_session_has_ended() {
    let config = format!("[kafka]\nproperties = [\"session.timeout.ms={}\"]\n", SESSION.as_millis());
    let mut stage = Stage::start(TestKafka::shared().await, "takeover", 2, &config).await;
    for number in 0..2 {
        stage.add_views().await;
        stage.has_counted_all(number, &format!("first-{number}")).await;
    }
    post_all(&stage.http(0), 0..20).await;
    until_all_counted(&stage.http(0), 20).await;
    stage.views[0].kill().await;
    let killed_at = Instant::now();
    // Those that have counted already are among them.
    post_all(&stage.http(1), 0..40).await;
    until_all_counted(&stage.http(1), 40).await;
    let took = killed_at.elapsed();
    println!("session {SESSION:?}: counted {took:?} after the member was killed");
    assert!(took < SESSION + LATE_MAX, "{took:?} after a session of {SESSION:?}");
}
