//! Borders of windows, and an oracle that knows nothing of Kafka. The test writes the records itself, with the times that it needs.

use super::super::borders::{AT_BORDERS, BEGIN_MS, until_counted_at_borders};
use super::record_in;
use super::stage::Stage;
use crate::ingest::topics::Written;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use tallystone_tests::TestKafka;

const HOUR_MS: i64 = 3_600_000;
/// 2100-01-01T00:00:00Z. A member advances the time of an idle partition to that of its clock, which must not end these windows.
const FUTURE_MS: i64 = 4_102_444_800_000;
const NAMESPACES: &str = r#"
[[views.namespaces]]
name = "default"

[[views.namespaces]]
name = "ten"
window = "tumbling"
window_ms = 600000

[[views.namespaces]]
name = "berlin"
time_zone = "Europe/Berlin"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn v2_v6_windows_in_kafka_end_at_the_millisecond_of_the_record() {
    let mut stage = Stage::start(TestKafka::shared().await, "borders", 1, NAMESPACES).await;
    let records: Vec<Written> = AT_BORDERS
        .into_iter()
        .map(|(after_ms, namespace)| record_in(namespace, 0, (BEGIN_MS + after_ms).cast_signed(), "v", "u"))
        .collect();
    stage.topics.write(&records).await;
    stage.add_views().await;
    until_counted_at_borders(&stage.http(0)).await;
}

/// What a window means: when the window of each pair began, and the time of each partition, which does not go back.
#[derive(Default)]
struct Oracle {
    at_ms: BTreeMap<i32, i64>,
    began: BTreeMap<(String, String), i64>,
    tumbling: BTreeSet<(String, String, i64)>,
    /// Views in the sliding window, in the tumbling one, and page views, by video.
    counts: BTreeMap<String, [u64; 3]>,
}

impl Oracle {
    fn take(&mut self, partition: i32, record_ms: i64, video: &str, user: &str) {
        let at_ms = self.at_ms.entry(partition).or_default();
        *at_ms = record_ms.max(*at_ms);
        let (at_ms, pair) = (*at_ms, (video.to_owned(), user.to_owned()));
        let counts = self.counts.entry(video.to_owned()).or_default();
        if self.began.get(&pair).is_none_or(|began| at_ms >= began + HOUR_MS) {
            self.began.insert(pair.clone(), at_ms);
            counts[0] += 1;
        }
        counts[1] += u64::from(self.tumbling.insert((pair.0, pair.1, at_ms / (HOUR_MS / 6))));
        counts[2] += 1;
    }
}

/// Views whose times are near the borders of windows of earlier ones; some are before those of the record before them.
fn views(random: &mut StdRng, oracle: &mut Oracle, from_ms: i64, number: usize) -> Vec<Written> {
    let mut records = Vec::new();
    let border_ms = [0, HOUR_MS / 6];
    for _ in 0..number {
        let partition = random.random_range(0..2);
        let (video, user) =
            (format!("p{partition}-{}", random.random_range(0..3)), format!("u{}", random.random_range(0..9)));
        let at_ms = from_ms + border_ms[random.random_range(0..2)] + random.random_range(-1..=1);
        oracle.take(partition, at_ms, &video, &user);
        oracle.take(partition, at_ms, &video, &user);
        // In each namespace, and in each twice.
        for namespace in ["default", "ten", "default", "ten"] {
            records.push(record_in(namespace, partition, at_ms, &video, &user));
        }
    }
    records
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_v3_counts_equal_those_of_an_oracle_also_if_the_state_is_read_back() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let (mut random, mut oracle) = (StdRng::seed_from_u64(seed), Oracle::default());
    let mut stage = Stage::start(TestKafka::shared().await, "oracle", 2, NAMESPACES).await;
    for round in 0..4 {
        for step in 0..10 {
            // Borders of the tumbling window; six of them later a sliding one ends.
            let from_ms = FUTURE_MS + (10 * round + step) * HOUR_MS / 6;
            let records = views(&mut random, &mut oracle, from_ms, 40);
            stage.topics.write(&records).await;
        }
        // The next process reads the state back, and decides with it.
        stage.add_views().await;
        let http = stage.http(usize::try_from(round).expect("a few"));
        for (video, [sliding, tumbling, page_views]) in &oracle.counts {
            for (namespace, expected) in [("default", sliding), ("ten", tumbling)] {
                let is_expected =
                    |counts: &serde_json::Value| counts["viewCount"] == *expected && counts["pageViews"] == *page_views;
                http.until(&format!("/{namespace}/v1/videos/{video}/views"), is_expected).await;
            }
        }
        stage.views.last_mut().expect("a process").kill().await;
    }
}
