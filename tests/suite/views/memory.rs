//! What callers post does not decide how much memory the owner of a partition takes (V2).

use super::stage::Stage;
use super::{entry, view};
use crate::counting::house::{House, until};
use serde_json::json;
use tallystone_link::wall_ms;
use tallystone_tests::{ClockShift, TestRedis};
use tallystone_views::{ViewNamespace, ViewsConfig};

const HOUR_MS: u64 = 3_600_000;
/// Their pairs take more than 1 MiB.
const USERS: usize = 70_000;

#[tokio::test(flavor = "multi_thread")]
async fn v2_views_are_refused_while_pairs_take_too_much_memory_and_accepted_when_their_windows_have_ended() {
    let house = House::without_rollups().await;
    let redis_url = house.redis.url();
    let redis = house.redis.connection().await;
    let namespaces = vec![ViewNamespace { daily_visitors: false, ..ViewNamespace::default() }];
    let views = ViewsConfig { partitions: 1, pairs_bytes_max: 1_048_576, namespaces, ..ViewsConfig::default() };
    let Stage { http, .. } = &Stage::start_on(house, &redis_url, views).await;
    let add = async |at: String, users: usize| {
        let views: Vec<u8> = (0..users).flat_map(|user| entry("default", "v", &user.to_string())).collect();
        let mut command = redis::cmd("XADD");
        command.arg("tc:views:{0}:log").arg(at).arg("v").arg(views);
        let _: String = command.query_async(&mut redis.clone()).await.expect("an entry");
    };
    add("*".to_owned(), USERS).await;
    http.until_count("/v1/videos/v/views", USERS as u64).await;
    let (one, batch) = (view("w", "u"), json!({"views": [view("w", "u"), view("v", "0")]}));
    for (path, body) in [("/v1/views", &one), ("/v1/views:batch", &batch)] {
        let (status, answer) = http.post(path, body).await;
        assert_eq!((status, &answer["error"]["reason"]), (429, &json!("OVERLOADED")), "{answer}");
        assert_eq!(answer["error"]["applied"], "no");
    }
    // No view comes, and the time of the log advances.
    let position = async || {
        let mut command = redis::cmd("HGET");
        command.arg("tc:views:{0}:state").arg("position");
        let position: String = command.query_async(&mut redis.clone()).await.expect("a state");
        position
    };
    let before = position().await;
    until(position, |position| *position != before).await;
    // Behind the windows of all pairs.
    add(format!("{}-*", wall_ms() + 2 * HOUR_MS), 1).await;
    until(async || http.post("/v1/views", &one).await.0, |status| *status == 202).await;
    http.until_count("/v1/videos/w/views", 1).await;
    http.until_count("/v1/videos/v/views", USERS as u64 + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn v2_a_redis_at_maxmemory_drops_the_pairs_of_ended_windows_and_accepts_views_again() {
    let shift = ClockShift::new();
    let (house, log) = (House::without_rollups().await, TestRedis::shifted(&shift).await);
    let mut redis = log.connection().await;
    let namespaces = vec![ViewNamespace { daily_visitors: false, ..ViewNamespace::default() }];
    let views = ViewsConfig { partitions: 1, namespaces, ..ViewsConfig::default() };
    let Stage { http, .. } = &Stage::start_on_any_clock(house, &log.url(), views).await;
    let views: Vec<u8> = (0..USERS).flat_map(|user| entry("default", "v", &user.to_string())).collect();
    let mut command = redis::cmd("XADD");
    command.arg("tc:views:{0}:log").arg("*").arg("v").arg(views);
    let _: String = command.query_async(&mut redis).await.expect("an entry");
    http.until_count("/v1/videos/v/views", USERS as u64).await;
    let info: String = redis::cmd("INFO").arg("memory").query_async(&mut redis).await.expect("an answer");
    let used = info.lines().find_map(|line| line.strip_prefix("used_memory:")).expect("used memory");
    // The pairs take 840,000 bytes.
    let bytes_max = used.parse::<u64>().expect("a number") - 400_000;
    let mut command = redis::cmd("CONFIG");
    command.arg("SET").arg("maxmemory").arg(bytes_max);
    let _: String = command.query_async(&mut redis).await.expect("a limit");
    let view = view("w", "u");
    let (status, answer) = until(async || http.post("/v1/views", &view).await, |(status, _)| *status != 202).await;
    assert_eq!((status, &answer["error"]["applied"]), (503, &json!("no")), "{answer}");
    shift.set_ms(2 * HOUR_MS.cast_signed());
    // The counters' clock is not shifted, so they count it later.
    until(async || http.post("/v1/views", &view).await.0, |status| *status == 202).await;
}
