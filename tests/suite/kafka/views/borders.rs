//! Borders of windows, and the oracle. The test writes the records itself, with the times that it needs.

use super::record_in;
use super::stage::Stage;
use crate::ingest::topics::Written;
use crate::views::borders::{AT_BORDERS, BEGIN_MS, until_counted_at_borders};
use crate::views::oracle::{self, Oracle};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tallystone_tests::TestKafka;

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

#[tokio::test(flavor = "multi_thread")]
async fn v2_v3_counts_equal_those_of_an_oracle_also_if_the_state_is_read_back() {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let (mut random, mut oracle) = (StdRng::seed_from_u64(seed), Oracle::default());
    let mut stage = Stage::start(TestKafka::shared().await, "oracle", 2, NAMESPACES).await;
    for round in 0..oracle::ROUNDS {
        for step in 0..oracle::STEPS {
            let views = oracle.views(&mut random, oracle::from_ms(round, step));
            let records: Vec<Written> = views
                .iter()
                .flat_map(|one| oracle::NAMESPACES.map(|namespace| (one, namespace)))
                .map(|(one, namespace)| {
                    record_in(namespace, one.partition.into(), one.at_ms.cast_signed(), &one.video, &one.user)
                })
                .collect();
            stage.topics.write(&records).await;
        }
        // The next process reads the state back, and decides with it.
        stage.add_views().await;
        oracle.until_counted(&stage.http(stage.views.len() - 1)).await;
        stage.views.last_mut().expect("a process").kill().await;
    }
}
