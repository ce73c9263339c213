//! The clock of the log's Redis is wrong for a moment, or is set back while an owner dies (V3, X6).

use super::stage::{Stage, any_clock};
use super::view;
use crate::counting::house::{House, until};
use serde_json::json;
use std::time::Duration;
use tallystone_tests::{ClockShift, TestRedis};
use tallystone_views::ViewsConfig;
use tallystone_views::log::{Acquired, OwnerError, ViewLog};
use tokio::time::{Instant, sleep};

const HOUR_MS: i64 = 3_600_000;
/// How long the clock is wrong: longer than the interval at which an owner renews its lease.
const WRONG_FOR: Duration = Duration::from_secs(2);
/// Between two posts meanwhile.
const POST_EVERY: Duration = Duration::from_millis(50);
/// The lease of the owners.
const LEASE: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread")]
async fn v3_x6_a_clock_of_the_log_that_is_wrong_for_a_moment_delays_no_count_afterwards() {
    let shift = ClockShift::new();
    let (house, log) = (House::without_rollups().await, TestRedis::shifted(&shift).await);
    let views = ViewsConfig { partitions: 1, ..ViewsConfig::default() };
    let Stage { http, .. } = &Stage::start_on(house, &log.url(), views).await;
    let path = "/v1/videos/v/views";
    http.accepted("/v1/views", &view("v", "before")).await;
    http.until_counts(path, 1, 1, 1).await;
    for (number, wrong_ms) in (2_u64..).zip([HOUR_MS, -HOUR_MS]) {
        shift.set_ms(wrong_ms);
        let wrong_at = Instant::now();
        while wrong_at.elapsed() < WRONG_FOR {
            let (status, answer) = http.post("/v1/views", &view("v", "meanwhile")).await;
            let error = &answer["error"];
            let refused = (status, &error["reason"], &error["applied"]);
            assert_eq!(refused, (503, &json!("STORE_UNAVAILABLE"), &json!("no")), "{answer}");
            sleep(POST_EVERY).await;
        }
        // Reads go on, and nothing has counted.
        let (status, counts) = http.get(path).await;
        assert_eq!((status, &counts["viewCount"]), (200, &json!(number - 1)), "{counts}");
        shift.set_ms(0);
        http.accepted("/v1/views", &view("v", &format!("after-{number}"))).await;
        // Soon, and not when the clock has caught up. A page view is a record of the log: no refused view is one.
        http.until_counts(path, number, number, number).await;
    }
}

/// The clocks are not compared here, so nothing is refused. It is the same within the bound, and if all clocks were set
/// back.
#[tokio::test(flavor = "multi_thread")]
async fn v3_a_lease_of_a_clock_that_was_set_back_ends_in_time() {
    let shift = ClockShift::new();
    let redis = TestRedis::shifted(&shift).await;
    let log = ViewLog::connect(&any_clock(&redis.url()), 1).await.expect("a log");
    let partition = &log.partitions()[0];
    let Acquired::Owned(first) = partition.acquire("first", LEASE).await.expect("an answer") else {
        panic!("no process has its lease");
    };
    shift.set_ms(-HOUR_MS);
    let acquire = async || partition.acquire("second", LEASE).await.expect("an answer");
    let is_held = |acquired: &Acquired| matches!(acquired, Acquired::Held(left) if *left <= LEASE);
    // An owner that lives renews it, and keeps the partition.
    for _ in 0..3 {
        let acquired = acquire().await;
        assert!(is_held(&acquired), "{acquired:?}");
        partition.renew(&first).await.expect("it owns the partition");
    }
    // It dies.
    let second = until(acquire, |acquired| !is_held(acquired)).await;
    assert!(matches!(second, Acquired::Owned(_)), "{second:?}");
    let renewed = partition.renew(&first).await;
    assert!(matches!(renewed, Err(OwnerError::Fenced)), "{renewed:?}");
}
