//! Sums by minute, hour and day (N16), through servers: gRPC, HTTP and the command line.

use super::house::House;
use super::http::Http;
use super::now_ms;
use crate::system::program::{command, run};
use serde_json::{Value, json};
use std::time::Duration;
use tallystone_client::{
    CounterClient, CounterType, ExactTo, IdempotencyToken, NamespaceConfig, NewAdd, NewClear, Period, PeriodSum, Sums,
};

const NS: &str = "sums";
const MINUTE_MS: u64 = 60_000;

async fn sums(client: &CounterClient, counter: &str, period: Period, from_ms: u64, to_ms: u64) -> Sums {
    let found = client.sums(NS, counter, period, from_ms, to_ms, "").await.expect("sums");
    assert_eq!(found.page.next_page_token, "", "one page");
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_each_acknowledged_add_is_in_the_sums_once_through_every_server() {
    let house = House::with_rollups().await;
    // An add may be a quarter of an hour late, so there are several minutes.
    let config = NamespaceConfig { accept_limit_ms: Some(900_000), ..NamespaceConfig::default() };
    house.put(NS, config).await;
    let now_ms = now_ms();
    let mut expected: Vec<PeriodSum> = Vec::new();
    for minute in (0..10).rev() {
        let time_ms = now_ms - minute * MINUTE_MS;
        for number in 0..3 {
            let token = IdempotencyToken::new(format!("{minute}-{number}"), time_ms);
            let add = NewAdd::new("c", number - 1 - minute as i64).token(token);
            for via in 0..2 {
                let added = house.clients[via].add(NS, add.clone()).await.expect("an add");
                assert_eq!(added.duplicate, via == 1);
            }
        }
        expected.push(PeriodSum { from_ms: time_ms / MINUTE_MS * MINUTE_MS, sum: -3 * minute as i64, adds: 3 });
    }
    // It removes all from the count, and nothing from the sums.
    house.clients[0].clear(NS, NewClear::new("c")).await.expect("a clear");
    for client in &house.clients {
        let found = sums(client, "c", Period::Minute, 0, 0).await;
        assert_eq!(found.page.items, expected);
        assert!(found.exact_to_ms < now_ms && found.kept_from_ms < now_ms - 6 * 86_400_000, "{found:?}");
        // From the middle of a minute to the middle of another.
        let some = sums(client, "c", Period::Minute, now_ms - 5 * MINUTE_MS, now_ms - 2 * MINUTE_MS + 1).await;
        assert_eq!(some.page.items, expected[4..8]);
        let of_days: i64 = sums(client, "c", Period::Day, 0, 0).await.page.items.iter().map(|sum| sum.sum).sum();
        assert_eq!(of_days, expected.iter().map(|sum| sum.sum).sum::<i64>());
        assert_eq!(sums(client, "never written", Period::Hour, 1, 0).await.page.items, []);
    }
    let deleted = house.clients[1].delete(NS, NewClear::new("c")).await.expect("a deletion");
    let later = NewAdd::new("c", 5).token(IdempotencyToken::new("later", deleted.event_time_ms + 1));
    house.clients[0].add(NS, later).await.expect("an add");
    let found = sums(&house.clients[1], "c", Period::Minute, 0, 0).await.page.items;
    assert_eq!(found.iter().map(|sum| (sum.sum, sum.adds)).collect::<Vec<_>>(), [(5, 1)], "what was before is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_sums_are_exact_as_far_as_the_count() {
    let house = House::with_rollups().await;
    let config = NamespaceConfig { accept_limit_ms: Some(1_000), coalesce_ms: Some(0), ..NamespaceConfig::default() };
    house.put(NS, config).await;
    let added = house.clients[0].add(NS, NewAdd::new("c", 5)).await.expect("an add");
    let to = ExactTo::after(added.event_time_ms).wait(Duration::from_secs(30));
    let counted = house.clients[1].get_exact(NS, "c", to).await.expect("a count");
    let found = sums(&house.clients[0], "c", Period::Hour, 0, 0).await;
    assert!(found.exact_to_ms >= counted.exact_to_ms && found.exact_to_ms > added.event_time_ms, "{found:?}");
}

#[tokio::test]
async fn n16_best_effort_counters_have_no_sums() {
    let house = House::without_rollups().await;
    let config = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    house.put(NS, config).await;
    let refused = house.clients[0].sums(NS, "c", Period::Hour, 0, 0, "").await.expect_err("it has no events");
    assert_eq!(refused.refused().expect("an answer").reason, "INVALID_ARGUMENT");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n16_http_and_the_command_line_show_the_same() {
    let http = Http::start().await;
    let url = http.house.urls[0].clone();
    for (delta, name) in [(1_204, "a"), (-4, "b")] {
        let token = IdempotencyToken::new(name, now_ms());
        let add = NewAdd::new("a/b c", delta).token(token);
        http.house.clients[1].add("my_dataset", add).await.expect("an add");
    }
    let body = json!({"namespace": "my_dataset", "counter": "a/b c", "period": "HOUR"});
    let answer = http.ok("/v1/get_sums", body).await;
    let sums = answer["sums"].as_array().expect("sums");
    // An hour may have ended in between.
    let total = |field: &str| sums.iter().map(|sum| sum[field].as_i64().expect("a number")).sum::<i64>();
    assert_eq!((total("sum"), total("adds")), (1_200, 2), "{answer}");
    assert_eq!(answer["next_page_token"], "");
    for (field, value) in [("period", json!("hour")), ("period", Value::Null), ("from", json!("noon"))] {
        let mut body = json!({"namespace": "my_dataset", "counter": "c", "period": "DAY"});
        body[field] = value;
        let (status, answer) = http.post("/v1/get_sums", &body).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("INVALID_ARGUMENT")), "{field}: {answer}");
    }
    let get = ["counter", "get", "--counters", &url, "--namespace", "my_dataset", "a/b c", "--by"];
    let text = run(command(&[&get[..], &["hour", "--since", "2h"]].concat()), "").await;
    assert!(text.stdout.contains("HOUR (UTC)") && text.stdout.contains('█'), "{text:?}");
    assert!(text.stdout.contains("1,200 in 2 adds"), "{text:?}");
    let lines = run(command(&[&get[..], &["day", "--json"]].concat()), "").await.json();
    assert!(lines.iter().all(|line| line["is_final"] == false), "today is not over: {lines:?}");
    assert_eq!(lines.iter().map(|line| line["sum"].as_i64().expect("a number")).sum::<i64>(), 1_200, "{lines:?}");
    let two = run(command(&[&get[..], &["day", "d"]].concat()), "").await;
    assert!(two.code == Some(2) && two.stderr.contains("--by takes one counter"), "{two:?}");
}
