//! Borders of windows in the log: its times decide, and nothing else. The test writes the entries itself, with the times that
//! it needs.

use super::entry;
use super::oracle::{self, Oracle};
use super::stage::{Http, Stage, serve};
use crate::counting::house::House;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tallystone_views::{ViewNamespace, ViewsConfig, WindowKind};

const HOUR_MS: u64 = 3_600_000;
/// 2026-03-28T22:00:00Z, an hour before midnight in Berlin, and before the day on which its clocks change.
pub(crate) const BEGIN_MS: u64 = 1_774_735_200_000;
/// Views of one user at the borders of windows: their times after the begin, and their namespaces. `ten` has a tumbling window of ten
/// minutes, `berlin` the days of Berlin.
pub(crate) const AT_BORDERS: [(u64, &str); 10] = [
    (1, "default"),
    (1, "ten"),
    (HOUR_MS / 6 - 1, "ten"),
    (HOUR_MS / 6, "ten"),
    (HOUR_MS / 6, "ten"),
    (HOUR_MS - 1, "berlin"),
    (HOUR_MS, "default"),
    (HOUR_MS, "berlin"),
    (HOUR_MS + 1, "default"),
    (2 * HOUR_MS, "default"),
];

/// Waits until these views have counted, each window to the millisecond.
pub(crate) async fn until_counted_at_borders(http: &Http) {
    let of = |namespace: &str, day: &str| format!("/{namespace}/v1/videos/v/views?day={day}");
    http.until_counts(&of("default", "2026-03-28"), 2, 4, 1).await;
    http.until_counts(&of("ten", "2026-03-28"), 2, 4, 1).await;
    for (day, visitors) in [("2026-03-28", 1), ("2026-03-29", 1)] {
        http.until_counts(&of("berlin", day), 1, 2, visitors).await;
    }
}

/// A tumbling window of ten minutes.
fn ten() -> ViewNamespace {
    let (name, window) = ("ten".to_owned(), WindowKind::Tumbling);
    ViewNamespace { name, window, window_ms: HOUR_MS / 6, ..ViewNamespace::default() }
}

#[tokio::test]
async fn v2_v6_windows_end_at_the_millisecond_of_the_log() {
    let berlin =
        ViewNamespace { name: "berlin".to_owned(), time_zone: "Europe/Berlin".to_owned(), ..ViewNamespace::default() };
    let Stage { http, house, .. } = &Stage::start(vec![ViewNamespace::default(), ten(), berlin], 1).await;
    let mut redis = house.redis.connection().await;
    for (after_ms, namespace) in AT_BORDERS {
        let mut command = redis::cmd("XADD");
        command.arg("tc:views:{0}:log").arg(format!("{}-*", BEGIN_MS + after_ms)).arg("v");
        let _: String = command.arg(entry(namespace, "v", "u")).query_async(&mut redis).await.expect("an entry");
    }
    until_counted_at_borders(http).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_v3_counts_in_redis_equal_those_of_an_oracle_also_if_another_owner_reads_the_pairs() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let (mut random, mut oracle) = (StdRng::seed_from_u64(seed), Oracle::default());
    let house = House::without_rollups().await;
    let (mut redis, log) = (house.redis.connection().await, house.redis.url());
    let config =
        ViewsConfig { partitions: 2, namespaces: vec![ViewNamespace::default(), ten()], ..ViewsConfig::default() };
    for round in 0..oracle::ROUNDS {
        for step in 0..oracle::STEPS {
            let mut entries = redis::pipe();
            for one in oracle.views(&mut random, oracle::from_ms(round, step)) {
                for namespace in oracle::NAMESPACES {
                    let command = entries.cmd("XADD").arg(format!("tc:views:{{{}}}:log", one.partition));
                    command.arg(format!("{}-*", one.log_ms)).arg("v").arg(entry(namespace, &one.video, &one.user));
                }
            }
            let _: Vec<String> = entries.query_async(&mut redis).await.expect("entries");
        }
        // The next owner reads the pairs, and decides with them.
        let views = serve(&house.urls[0], &log, config.clone()).await;
        oracle.until_counted(&Http::new(views.url())).await;
        views.stop().await.expect("it stops in order");
    }
}
