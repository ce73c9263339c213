//! Events without a time are counted with one call of their shard, also where a window ends meanwhile (N5).

use super::*;
use tallystone_counters::log::WINDOW_MS;
use tallystone_tests::TestConnection;

const BUCKET_MS: u64 = 600_000;
const EVENTS: usize = 10;

async fn script_calls(redis: &mut TestConnection) -> u64 {
    let stats: String = ::redis::cmd("INFO").arg("commandstats").query_async(redis).await.expect("statistics");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split_once(',')).expect("calls of scripts").0.parse().expect("a number")
}

#[tokio::test]
async fn n5_the_border_of_a_window_costs_no_second_call() {
    let redis = Arc::new(TestRedis::start().await);
    let mut connection = redis.connection().await;
    let config = NamespaceConfig { buckets_per_id: 1, ..NamespaceConfig::default() };
    let mut ns = TestNamespace::on(redis, "border", config).await;
    // Reads the layout of slots.
    assert_eq!(ns.append_one(add_now("c", "first", 1)).await, counted(NOON_MS));
    for (later, calls) in [(0, 1), (1, 1), (2, 2)] {
        // The last window of a time bucket, so that the next one is under another key.
        let now_ms = (ns.latest_ms() / BUCKET_MS + 2) * BUCKET_MS - WINDOW_MS + 100;
        // The shard has shown a time some windows later: events happen there, as if their call had taken so long.
        let stamp_ms = now_ms + later * WINDOW_MS;
        ns.at(stamp_ms);
        assert_eq!(ns.store.tick(&[(counter("c"), 0)]).await, Ok(vec![0]));
        ns.set_back(later * WINDOW_MS);
        let before = script_calls(&mut connection).await;
        let events: Vec<NewEvent> = (0..EVENTS).map(|number| add_now("c", &format!("{later} {number}"), 1)).collect();
        assert_eq!(ns.store.append(&events).await, vec![counted(stamp_ms); EVENTS]);
        assert_eq!(script_calls(&mut connection).await - before, calls, "{later} windows later");
        assert_eq!(ns.events("c", stamp_ms / WINDOW_MS).await.len(), EVENTS);
    }
    ns.at(ns.latest_ms());
    assert_eq!(ns.settled("c").await, 1 + 3 * EVENTS as i64);
}
