//! The metric that shows how wrong Redis's clock is, before and after calls are refused for it (X6).

use crate::crash::machines::Server;
use crate::system::program::SOON;
use std::time::Duration;
use tallystone_tests::{ClockShift, TestRedis, http_client, lasting_port};
use tokio::time::{Instant, sleep};

const METRIC: &str = "tallystone_store_clock_offset_seconds{store=\"queues\"} ";

/// Waits until the page shows an offset in this range, in seconds.
async fn until_offset(metrics_url: &str, expected: std::ops::Range<f64>) {
    let http = http_client();
    let give_up_at = Instant::now() + SOON;
    let mut seen = None;
    while !seen.is_some_and(|offset| expected.contains(&offset)) {
        assert!(Instant::now() < give_up_at, "{seen:?} is not in {expected:?}");
        sleep(Duration::from_millis(50)).await;
        let Ok(page) = http.get(metrics_url).send().await else { continue };
        let page = page.text().await.expect("a page");
        seen = page.lines().find_map(|line| line.strip_prefix(METRIC)?.parse::<f64>().ok());
    }
}

#[tokio::test]
async fn x6_a_metric_shows_by_how_much_the_clock_is_wrong() {
    let shift = ClockShift::new();
    let redis = TestRedis::shifted(&shift).await;
    let metrics = format!("127.0.0.1:{}", lasting_port());
    let url = redis.url();
    let args = ["server", "--redis-url", &url, "--allow-volatile", "--metrics-listen", &metrics];
    let _server = Server::start_as(&args).await;
    let metrics_url = format!("http://{metrics}/metrics");
    until_offset(&metrics_url, -0.5..0.5).await;
    for ahead_ms in [3_000, -60_000] {
        shift.set_ms(ahead_ms);
        let ahead = ahead_ms as f64 / 1_000.0;
        until_offset(&metrics_url, ahead - 0.5..ahead + 0.5).await;
    }
}
