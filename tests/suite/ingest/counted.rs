//! Records count once, at their time, while members come and go.

use super::stage::{NAMESPACE, Stage};
use super::topics::{Written, now_ms};
use crate::system::program::SOON;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Adds of now to some counters, in all partitions.
fn burst(round: i64, records: i32) -> Vec<Written> {
    let add = |number: i32| {
        let at_ms = now_ms() - i64::from(number % 50);
        Written::add(number % 4, at_ms, &format!("c{}", number % 3), 1 + round * 1_000 + i64::from(number))
    };
    (0..records).map(add).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_records_count_once_at_their_time_while_members_come_and_go() {
    let mut stage = Stage::start("counted", 4, 600_000).await;
    let mut written = Vec::new();
    let write = async |stage: &mut Stage, written: &mut Vec<Written>, round| {
        let records = burst(round, 600);
        stage.write(&records).await;
        written.extend(records);
    };
    write(&mut stage, &mut written, 1).await;
    stage.ingest(None).await;
    write(&mut stage, &mut written, 2).await;
    stage.ingest(None).await;
    write(&mut stage, &mut written, 3).await;
    stage.assert_exact().await;
    write(&mut stage, &mut written, 4).await;
    stage.ingests[0].stop().await;
    write(&mut stage, &mut written, 5).await;
    stage.ingest(None).await;
    write(&mut stage, &mut written, 6).await;
    stage.assert_exact().await;

    // Each is one event, at the time of its record.
    for counter in ["c0", "c1", "c2"] {
        let mut expected: BTreeMap<(u64, i64), usize> = BTreeMap::new();
        for record in written.iter().filter(|record| record.key == counter) {
            let add: serde_json::Value = serde_json::from_str(&record.value).expect("an add");
            let delta = add["delta"].as_i64().expect("a number");
            *expected.entry((record.at_ms.unsigned_abs(), delta)).or_default() += 1;
        }
        let (mut found, mut page_token) = (BTreeMap::new(), String::new());
        loop {
            let to_ms = now_ms().unsigned_abs() + 10_000;
            let page = stage.client.list_events(NAMESPACE, counter, to_ms - 900_000, to_ms, 1_000, &page_token).await;
            let page = page.expect("events");
            for event in page.items {
                *found.entry((event.event_time_ms, event.delta)).or_default() += 1;
            }
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        assert_eq!(found, expected, "{counter}");
    }
    assert!(stage.topics.records(&stage.topics.late(), 4).await.is_empty(), "none was late");
    assert!(stage.topics.dead_letters().await.is_empty());
}

/// How many records wait, as the metrics of the newest ingest process say. `None`: it does not say.
async fn lag(stage: &Stage) -> Option<u64> {
    let page = stage.ingests.last()?.metrics().await;
    let series = page.lines().filter(|line| line.starts_with("tallystone_ingest_lag_records{"));
    let values: Vec<u64> = series.filter_map(|line| line.rsplit_once(' ')?.1.parse().ok()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

async fn until_lag(stage: &Stage, expected: u64) {
    let give_up_at = Instant::now() + SOON;
    loop {
        let found = lag(stage).await;
        if found == Some(expected) {
            return;
        }
        assert!(Instant::now() < give_up_at, "a lag of {found:?}, not of {expected}");
        sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_the_lag_is_known_while_nothing_can_be_counted() {
    let mut stage = Stage::start("lag", 2, 600_000).await;
    let records: Vec<Written> = (0..7).map(|number| Written::add(number % 2, now_ms(), "c", 1)).collect();
    // At first the group has never decided anything, then only this process has not.
    for _ in 0..2 {
        stage.counters.kill().await;
        stage.write(&records).await;
        stage.ingest(None).await;
        until_lag(&stage, 7).await;
        stage.counters.restart().await;
        stage.assert_exact().await;
        stage.ingests.last_mut().expect("a process").stop().await;
    }
}
