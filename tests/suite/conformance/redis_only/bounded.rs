//! One script call does a bounded amount of work, whatever it is called for (X5).

use super::{alone, raw};
use tallystone_model::limits::BATCH_ITEMS_MAX;
use tallystone_model::store::*;
use tallystone_model::*;
use tallystone_tests::*;

const REQUESTS: usize = 8;
/// What a call may give, and what the requests of a chunk may exceed it by.
const LEASES_MAX: u64 = 2_048 + BATCH_ITEMS_MAX as u64;

/// How often Redis has executed a command so far, in scripts and outside.
async fn executed(redis: &TestRedis, command: &str) -> u64 {
    let info: ::redis::InfoDict = raw(redis, "INFO commandstats").await;
    let stats = info.get::<String>(&format!("cmdstat_{command}")).unwrap_or_default();
    let calls = stats.split(',').find_map(|part| part.strip_prefix("calls="));
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

async fn most_for_each_script(redis: &TestRedis, before: (u64, u64), what: &str) {
    let (scripts, reads) = (executed(redis, "evalsha").await - before.0, executed(redis, "hget").await - before.1);
    let needed = (REQUESTS * BATCH_ITEMS_MAX) as u64 / LEASES_MAX;
    assert!(scripts > needed, "{what}: {scripts} scripts");
    // Each lease is looked up once, and its message read once.
    assert!(reads <= scripts * 2 * LEASES_MAX, "{what}: {reads} HGET in {scripts} scripts");
}

#[tokio::test]
async fn x5_thousands_of_leases_take_several_scripts_the_first_time_and_each_other_time() {
    let (redis, stage) = alone("thousands-of-leases").await;
    let queue = stage.queue(simple()).await;
    let all = REQUESTS * BATCH_ITEMS_MAX;
    for batch in (0..all).collect::<Vec<_>>().chunks(BATCH_ITEMS_MAX) {
        queue.put(batch.iter().map(|n| message(&format!("m{n:05}"), *n as i64))).await;
    }
    let requests: Vec<DequeueRequest> =
        (0..REQUESTS).map(|n| DequeueRequest { request_id: format!("r{n}"), ..request(BATCH_ITEMS_MAX) }).collect();
    let mut first = Vec::new();
    for what in ["leased", "replayed"] {
        let before = (executed(&redis, "evalsha").await, executed(&redis, "hget").await);
        let answers = queue.dequeue(requests.clone()).await.expect("an open queue").leases;
        let leases: Vec<Vec<Lease>> = answers.into_iter().map(|leases| leases.expect("leases")).collect();
        assert_eq!(leases.iter().map(Vec::len).collect::<Vec<_>>(), [BATCH_ITEMS_MAX; REQUESTS], "{what}");
        most_for_each_script(&redis, before, what).await;
        if first.is_empty() {
            first = leases;
        } else {
            assert_eq!(leases, first, "a repeat gets the same leases");
        }
    }
    stage.assert_sound().await;
}
