//! Records that come too late for their time: nothing is lost, nothing counts twice, and a replay changes nothing.

use super::kills::{mixed, rng};
use super::stage::Stage;
use super::topics::{Written, header, now_ms};
use crate::crash::proxy::Proxy;
use crate::system::program::until;
use rdkafka::Message;
use std::collections::{BTreeMap, BTreeSet};
use tallystone_client::NamespaceConfig;

/// The least that a namespace may have.
const CLOSE_AFTER_MS: u64 = 60_000;

/// Written while no process runs, so that all of them are late when one starts.
#[tokio::test(flavor = "multi_thread")]
async fn n17_a_lag_beyond_the_accept_limit_loses_nothing() {
    let mut random = rng();
    let mut stage = Stage::start("lag", 3, 1_000).await;
    let records: Vec<Written> = (0..9_000).map(|number| Written::late(number % 3, "late", 1)).collect();
    stage.write(&records).await;
    stage.ingest(Some("a")).await;
    // In the middle of writing again and of reading back.
    for round in 0..5_u64 {
        let give_up_at = tokio::time::Instant::now() + crate::system::program::SOON;
        while stage.topics.records(&stage.topics.late(), 3).await.len() < 1_500 * round as usize {
            assert!(tokio::time::Instant::now() < give_up_at, "no more records are written again");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        stage.ingests[0].kill().await;
        stage.ingests[0].restart().await;
    }
    stage.assert_exact().await;
    stage.write(&mixed(&mut random, 500)).await;
    stage.assert_exact().await;
    let origins = stage.topics.records(&stage.topics.late(), 3).await.into_iter().map(|record| {
        let of = |name: &str| header(&record, name).expect("a header");
        (of("tallystone-source-partition"), of("tallystone-source-offset"), of("tallystone-source-topic"))
    });
    let mut copies: BTreeMap<_, usize> = BTreeMap::new();
    origins.for_each(|origin| *copies.entry(origin).or_default() += 1);
    assert!(copies.len() >= 9_000 && copies.keys().all(|(_, _, topic)| *topic == stage.topics.source));
}

#[tokio::test(flavor = "multi_thread")]
async fn n17_a_replay_from_the_beginning_changes_nothing() {
    let mut random = rng();
    let mut stage = Stage::start("replay", 3, 1_500).await;
    stage.ingest(None).await;
    for round in 0..2 {
        stage.write(&mixed(&mut random, 1_000)).await;
        stage.assert_exact().await;
        let last_counter = format!("last-{round}");
        let late_before = late_by_counter(&stage, &last_counter).await;
        stage.ingests[0].stop().await;
        stage.topics.reset_group().await;
        stage.ingests[0].restart().await;
        // It has worked when it has counted these.
        let last: Vec<Written> = (0..3).map(|partition| Written::add(partition, now_ms(), &last_counter, 1)).collect();
        stage.write(&last).await;
        stage.assert_exact().await;
        assert_eq!(late_by_counter(&stage, &last_counter).await, late_before, "records were written again");
    }
}

/// How many late records there are of each counter but one, whose records may have been late meanwhile.
async fn late_by_counter(stage: &Stage, without: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for record in stage.topics.records(&stage.topics.late(), 3).await {
        let counter = String::from_utf8_lossy(record.key().unwrap_or_default()).into_owned();
        *found.entry(counter).or_default() += 1;
    }
    found.remove(without);
    found
}

/// The counters forget tokens after `close_after_ms`. What was certainly never sent before is still not lost; what perhaps was
/// becomes a dead letter.
#[tokio::test(flavor = "multi_thread")]
async fn n17_records_whose_tokens_are_forgotten_are_written_again_only_if_they_were_never_sent() {
    let mut stage = Stage::start("forgotten", 1, 1_000).await;
    let short = NamespaceConfig { close_after_ms: Some(CLOSE_AFTER_MS), ..NamespaceConfig::default() };
    stage.namespace(short).await;
    stage.ingest(Some("a")).await;
    // Too old to be recognized, but sent: the namespace might accept them.
    let records: Vec<Written> =
        (0..300).map(|_| Written::add(0, now_ms() - CLOSE_AFTER_MS.cast_signed() - 30_000, "never-sent", 1)).collect();
    stage.write(&records).await;
    stage.assert_exact().await;
    assert!(stage.topics.dead_letters().await.is_empty());

    // These are claimed and sent, but no answer comes before the process dies.
    stage.redis.kill().await;
    let records: Vec<Written> = (0..300).map(|_| Written::add(0, now_ms(), "sent", 1)).collect();
    stage.topics.write(&records).await;
    let written_at_ms = now_ms();
    let claimed = async || stage.topics.claimed_to().await;
    crate::counting::house::until(claimed, |claimed| *claimed > 300).await;
    stage.ingests[0].kill().await;
    // A batch is claimed as a whole, and the rest was certainly never sent.
    let claimed = usize::try_from(stage.topics.claimed_to().await).expect("an offset") - 300;
    stage.expect(&records[claimed..]);
    stage.redis.restart().await;
    while now_ms() <= written_at_ms + CLOSE_AFTER_MS.cast_signed() + 1_500 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    stage.ingests[0].restart().await;
    stage.assert_exact().await;
    assert_eq!(stage.topics.dead_letters().await, BTreeMap::from([("UNRESOLVED".to_owned(), claimed)]));
    let origins = stage.topics.records(&stage.topics.late(), 1).await.into_iter();
    let origins: BTreeSet<_> = origins.map(|record| header(&record, "tallystone-source-offset")).collect();
    assert_eq!(origins.len(), 600 - claimed, "only those that were never sent");
}

/// How many adds the process has sent again, because it had no definite answer.
async fn sent_again(stage: &Stage) -> u64 {
    let page = stage.ingests[0].metrics().await;
    let total = page.lines().find_map(|line| line.strip_prefix("tallystone_ingest_sent_again_total "));
    total.and_then(|total| total.parse().ok()).unwrap_or_default()
}

/// Their first call has no answer, but the counters could not count them by it.
#[tokio::test(flavor = "multi_thread")]
async fn n17_records_that_were_too_old_when_they_were_sent_are_written_again_although_no_answer_came() {
    const COUNTER: &str = "unanswered";
    let mut stage = Stage::start(COUNTER, 1, 1_000).await;
    stage.namespace(NamespaceConfig { close_after_ms: Some(CLOSE_AFTER_MS), ..NamespaceConfig::default() }).await;
    let counters = stage.counters.url();
    let port = counters.rsplit(':').next().and_then(|port| port.parse().ok());
    let proxy = Proxy::start(port.expect("a port")).await;
    proxy.hold(COUNTER, 0);
    stage.ingest_to(&proxy.url().replace("redis:", "http:"), None).await;
    let add = |_| Written::add(0, now_ms() - CLOSE_AFTER_MS.cast_signed() - 30_000, COUNTER, 1);
    let records: Vec<Written> = (0..10).map(add).collect();
    stage.write(&records).await;
    proxy.held().await;
    let before = sent_again(&stage).await;
    until("the call has no answer", async || sent_again(&stage).await > before).await;
    proxy.open();
    stage.assert_exact().await;
    assert!(stage.topics.dead_letters().await.is_empty());
}
