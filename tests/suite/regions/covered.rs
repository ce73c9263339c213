//! Namespaces of which records pass by: their regions are removed for a while, or they fail.

use super::stage::{NAMESPACE, REGIONS, Stage};
use crate::system::program::until;
use redis::AsyncCommands;
use tallystone_client::{CounterType, NewAdd};

/// Another namespace: while it is merged, the positions in the topics move.
const OTHER: &str = "other";
const POSITIONS: &str = "tc:regions";

async fn put_other(stage: &Stage) {
    for region in 0..REGIONS.len() {
        stage.put(region, OTHER, CounterType::Eventual, &REGIONS).await;
    }
}

/// Waits until the first region knows that it leaves out records of the namespace.
async fn uncovered(stage: &Stage) {
    let mut redis = stage.regions[0].redis.connection().await;
    until("the namespace is covered no longer", async || {
        let stands: Option<String> = redis.hget(POSITIONS, NAMESPACE).await.expect("an answer");
        stands.is_none_or(|stands| stands == "!")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn n12_regions_that_are_removed_and_set_again_miss_nothing_of_what_came_meanwhile() {
    let stage = Stage::start(3).await;
    stage.namespace(CounterType::Eventual).await;
    put_other(&stage).await;
    let adder = stage.adder();
    for (region, delta) in [(0, 1), (1, 20), (2, 300)] {
        adder.add(region, "c", delta).await;
        adder.add(region, "d", delta).await;
    }
    adder.clear(0, "d").await;
    stage.assert_exact().await;
    // The first region leaves, and comes back with the same list.
    stage.put(0, NAMESPACE, CounterType::Eventual, &[]).await;
    uncovered(&stage).await;
    for (region, delta) in [(0, 4_000), (1, 50_000), (2, 600_000)] {
        adder.add(region, "c", delta).await;
        adder.add(region, "d", delta).await;
    }
    adder.clear(1, "c").await;
    adder.add(1, "c", 7_000_000).await;
    stage.passes(1, 2, NAMESPACE, "e").await;
    stage.passes(1, 0, OTHER, "f").await;
    stage.put(0, NAMESPACE, CounterType::Eventual, &REGIONS).await;
    stage.assert_exact().await;
    until("what was not in the ledger", async || stage.global(0, "e").await.count == 1).await;
}

/// A namespace that cannot be merged, and then not even opened.
#[tokio::test(flavor = "multi_thread")]
async fn n12_a_namespace_that_fails_keeps_no_other_one_waiting_and_misses_nothing() {
    let mut stage = Stage::start(4).await;
    stage.namespace(CounterType::Eventual).await;
    put_other(&stage).await;
    stage.passes(1, 0, OTHER, "before").await;
    let keys = |name: &str| (0..8).map(|shard| format!("tc:{{{NAMESPACE}/{shard}}}:{name}")).collect::<Vec<String>>();
    let mut redis = stage.regions[0].redis.connection().await;
    for key in keys("regions") {
        let _: () = redis.set(key, "no hash").await.expect("set");
    }
    let adder = stage.adder();
    adder.add(1, "c", 1).await;
    uncovered(&stage).await;
    stage.passes(1, 0, OTHER, "while it is not merged").await;
    // Its shards have no state that can be read, when another process takes over.
    for number in 0..2 {
        stage.regions[0].kill_worker(number).await;
    }
    for key in keys("state") {
        let _: () = redis.rename(&key, format!("{key}:kept")).await.expect("renamed");
        let _: () = redis.set(&key, "no state").await.expect("set");
    }
    for key in keys("regions") {
        let _: () = redis.del(key).await.expect("deleted");
    }
    stage.regions[0].start_missing_workers();
    adder.add(2, "d", 1).await;
    stage.passes(1, 0, OTHER, "while it is not open").await;
    for key in keys("state") {
        let _: () = redis.rename(format!("{key}:kept"), &key).await.expect("renamed");
    }
    adder.add(0, "c", 1).await;
    stage.assert_exact().await;
}

/// A clear of a time to come would remove what is added until then, in every region.
#[tokio::test(flavor = "multi_thread")]
async fn n12_a_record_that_is_ahead_of_the_clock_is_left_out() {
    let stage = Stage::start(6).await;
    stage.namespace(CounterType::Eventual).await;
    let adder = stage.adder();
    adder.add(0, "c", 5).await;
    adder.add(1, "c", 70).await;
    stage.assert_exact().await;
    let ahead_ms = stage.global(0, "c").await.exact_to_ms + 3_600_000;
    let record = serde_json::json!({
        "incarnation": 0, "cleared_ms": ahead_ms, "epoch": 0, "exact_to_ms": ahead_ms + 1, "last_write_ms": ahead_ms, "count": 0,
    });
    stage.send(1, 0, "c", &record).await;
    uncovered(&stage).await;
    adder.add(1, "c", 600).await;
    stage.assert_exact().await;
}

/// Its counters share the shards, and so the batches, of others.
#[tokio::test(flavor = "multi_thread")]
async fn n12_a_checkpoint_that_cannot_be_read_keeps_no_other_one_from_being_published() {
    let stage = Stage::start(5).await;
    stage.namespace(CounterType::Eventual).await;
    let region = &stage.regions[0];
    region.client.add(NAMESPACE, NewAdd::new("bad", 1)).await.expect("an add");
    until("it is rolled up", async || stage.global(0, "bad").await.regions[0].count == 1).await;
    let mut redis = region.redis.connection().await;
    for shard in 0..8 {
        let (counts, behind) =
            (format!("tc:{{{NAMESPACE}/{shard}}}:counts"), format!("tc:{{{NAMESPACE}/{shard}}}:behind"));
        if redis.hexists(&counts, "bad").await.expect("an answer") {
            let _: () = redis.hset(&counts, "bad", "no checkpoint").await.expect("set");
            let _: () = redis.zadd(&behind, "bad", 0).await.expect("added");
        }
    }
    // A record of another region does not stop the merging, either.
    let exact_to_ms = stage.global(1, "bad").await.regions[1].exact_to_ms + 1;
    let record = serde_json::json!({
        "incarnation": 0, "cleared_ms": 0, "epoch": 0, "exact_to_ms": exact_to_ms, "last_write_ms": 1, "count": 0,
    });
    stage.send(1, 0, "bad", &record).await;
    let adder = stage.adder();
    for number in 0..40 {
        adder.add(0, &format!("c{number}"), 1).await;
    }
    stage.assert_exact().await;
}
