//! Audits and recounts (N12) through servers: gRPC, HTTP and the command line.

use super::house::House;
use super::http::Http;
use super::{POLL, now_ms};
use crate::system::program::{SOON, command, run};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_client::{
    Audit, CounterClient, CounterType, ExactTo, IdempotencyToken, NamespaceConfig, NewAdd, NewClear, NewRecount,
};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const NS: &str = "recounts";

fn config() -> NamespaceConfig {
    NamespaceConfig { accept_limit_ms: Some(1_000), coalesce_ms: Some(0), ..NamespaceConfig::default() }
}

/// The count of everything up to now.
async fn exact(client: &CounterClient, namespace: &str, counter: &str) -> i64 {
    let to = ExactTo::now().wait(Duration::from_secs(30));
    client.get_exact(namespace, counter, to).await.expect("a count").count
}

async fn audit(client: &CounterClient, counter: &str) -> Audit {
    let mut page_token = String::new();
    loop {
        let page = client.audit_page(NS, counter, &page_token).await.expect("a page");
        assert_eq!(page.audit_token.is_empty(), !page.next_page_token.is_empty());
        if page.next_page_token.is_empty() {
            return page;
        }
        page_token = page.next_page_token;
    }
}

/// Each adjustment and each add counts once, and a reader never sees a count that is neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_recounts_through_two_servers_under_live_adds_lose_nothing() {
    const ADDS: i64 = 400;
    let house = House::with_rollups().await;
    house.put(NS, config()).await;
    house.clients[0].add(NS, NewAdd::new("c", 1_000)).await.expect("an add");
    exact(&house.clients[0], NS, "c").await;
    let is_done = Arc::new(AtomicBool::new(false));
    let mut adders = JoinSet::new();
    for client in house.clients.clone() {
        adders.spawn(async move {
            for _ in 0..ADDS {
                client.add(NS, NewAdd::new("c", 1)).await.expect("an add");
            }
        });
    }
    let mut recounters = JoinSet::new();
    for (via, client) in house.clients.clone().into_iter().enumerate() {
        let is_done = is_done.clone();
        recounters.spawn(async move {
            let mut recounts = 0;
            while !is_done.load(Ordering::SeqCst) {
                let recount = match recounts % 2 == via {
                    true => NewRecount::of_count(1_000_000, "a test"),
                    false => NewRecount::from_events(&audit(&client, "c").await, 1_000_000, "a test"),
                };
                match client.recount(NS, "c", recount).await {
                    Ok(recounted) => {
                        assert_eq!(recounted.new_count, recounted.old_count + 1_000_000);
                        recounts += 1;
                    }
                    // The other one came between audit and recount.
                    Err(error) => assert_eq!(error.refused().expect("an answer").reason, "COUNTER_CHANGED"),
                }
            }
            recounts as i64
        });
    }
    adders.join_all().await;
    is_done.store(true, Ordering::SeqCst);
    let recounts: i64 = recounters.join_all().await.into_iter().sum();
    let expected = 1_000 + 2 * ADDS + recounts * 1_000_000;
    for client in &house.clients {
        assert_eq!(exact(client, NS, "c").await, expected, "{recounts} recounts");
    }
    let found = audit(&house.clients[1], "c").await;
    assert!(found.agrees && i64::from(found.epoch) == recounts, "{found:?}");
    assert_eq!((found.recounted, found.adjusted), (expected, recounts * 1_000_000));
    let kept = house.clients[0].recounts(NS, "c").await.expect("recounts");
    assert!(kept.len() as i64 == recounts.min(32) && kept.is_sorted_by_key(|recount| recount.epoch), "{kept:?}");
    assert!(
        kept.windows(2).all(|pair| pair[0].new_count <= pair[1].old_count),
        "no count is between two epochs: {kept:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_an_audit_says_what_it_has_read_and_what_may_be_gone() {
    let house = House::with_rollups().await;
    house.put(NS, config()).await;
    for delta in [5, -2] {
        house.clients[0].add(NS, NewAdd::new("c", delta)).await.expect("an add");
    }
    assert_eq!(exact(&house.clients[0], NS, "c").await, 3);
    let found = audit(&house.clients[1], "c").await;
    assert!(found.agrees && !found.complete && found.audited_to_ms == found.exact_to_ms, "{found:?}");
    assert_eq!((found.count, found.recounted, found.events, found.epoch), (3, 3, 2, 0));
    assert!(found.kept_from_ms < now_ms() - 6 * 86_400_000);
    // What was cleared need not be there.
    house.clients[0].clear(NS, NewClear::new("c")).await.expect("a clear");
    house.clients[0].add(NS, NewAdd::new("c", 4)).await.expect("an add");
    assert_eq!(exact(&house.clients[0], NS, "c").await, 4);
    let found = audit(&house.clients[1], "c").await;
    assert!(found.agrees && found.complete, "{found:?}");
    assert_eq!((found.recounted, found.events), (4, 4));
    let nothing = audit(&house.clients[1], "never written").await;
    assert!(nothing.agrees && nothing.events == 0 && nothing.exact_to_ms == 0, "{nothing:?}");
    let refusal = async |recount: NewRecount| {
        let refused = house.clients[0].recount(NS, "c", recount).await.expect_err("it is refused");
        refused.refused().expect("an answer").reason.clone()
    };
    assert_eq!(refusal(NewRecount::of_count(0, "nothing")).await, "INVALID_ARGUMENT");
    assert_eq!(refusal(NewRecount::of_count(1, "")).await, "INVALID_ARGUMENT");
    assert_eq!(refusal(NewRecount::of_count(1, "a reason").token("")).await, "INVALID_ARGUMENT");
    let of_another = audit(&house.clients[0], "another").await;
    assert_eq!(refusal(NewRecount::from_events(&of_another, 1, "a reason")).await, "INVALID_ARGUMENT");
    let refused = house.clients[0].recount(NS, "another", NewRecount::of_count(1, "a reason")).await;
    assert_eq!(refused.expect_err("no count").refused().expect("an answer").reason, "COUNTER_NOT_FOUND");
    house.clients[0].add(NS, NewAdd::new("never written", 1)).await.expect("an add");
    assert_eq!(exact(&house.clients[0], NS, "never written").await, 1);
    let refused = house.clients[0].recount(NS, "never written", NewRecount::from_events(&nothing, 1, "a reason")).await;
    let refused = refused.expect_err("its audit is of no count");
    assert_eq!(refused.refused().expect("an answer").reason, "COUNTER_CHANGED", "no event was dropped");
}

#[tokio::test]
async fn n12_best_effort_counters_are_neither_audited_nor_recounted() {
    let house = House::without_rollups().await;
    let config = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    house.put(NS, config).await;
    let refused = house.clients[0].audit(NS, "c").await.expect_err("it has no events");
    assert_eq!(refused.refused().expect("an answer").reason, "INVALID_ARGUMENT");
    let refused = house.clients[0].recount(NS, "c", NewRecount::of_count(1, "a reason")).await;
    assert_eq!(refused.expect_err("it has no epochs").refused().expect("an answer").reason, "INVALID_ARGUMENT");
}

/// An ACCURATE read adds what is pending to the new count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_an_accurate_count_is_recounted_at_once() {
    let house = House::with_rollups().await;
    let accurate = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..config() };
    house.put(NS, accurate).await;
    house.clients[0].add(NS, NewAdd::new("c", 5)).await.expect("an add");
    // An exact read of it needs no rollup, but a recount does.
    let give_up_at = Instant::now() + SOON;
    while audit(&house.clients[0], "c").await.exact_to_ms == 0 {
        assert!(Instant::now() < give_up_at, "nothing is rolled up");
        sleep(POLL).await;
    }
    house.clients[0].add(NS, NewAdd::new("c", 1)).await.expect("an add");
    let recount = NewRecount::of_count(100, "a test");
    let first = house.clients[0].recount(NS, "c", recount.clone()).await.expect("a recount");
    for client in &house.clients {
        assert_eq!(client.get(NS, "c").await.expect("a count").count, 106);
        assert_eq!(client.recount(NS, "c", recount.clone()).await.expect("the same"), first);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n12_http_and_the_command_line_audit_and_recount() {
    let http = Http::of(House::with_rollups().await);
    let url = http.house.urls[0].clone();
    http.house.put(NS, config()).await;
    let client = &http.house.clients[1];
    let token = IdempotencyToken::new("a", now_ms());
    client.add(NS, NewAdd::new("a/b c", 1_204).token(token)).await.expect("an add");
    exact(client, NS, "a/b c").await;
    let body = json!({"namespace": NS, "counter": "a/b c"});
    let found = http.ok("/v1/audit_counter", body.clone()).await;
    assert_eq!(
        (&found["count"], &found["agrees"], &found["epoch"]),
        (&json!(1_204), &json!(true), &json!(0)),
        "{found}"
    );
    let mut recount = body.clone();
    for (field, value) in [
        ("audit_token", found["audit_token"].clone()),
        ("adjustment", json!("-4")),
        ("reason", json!("counted four robots")),
        ("token", json!("ticket-7")),
    ] {
        recount[field] = value;
    }
    let recounted = http.ok("/v1/recount_counter?int64=string", recount.clone()).await;
    let shown = (&recounted["epoch"], &recounted["old_count"], &recounted["new_count"]);
    assert_eq!(shown, (&json!(1), &json!("1204"), &json!("1200")), "{recounted}");
    let again = http.ok("/v1/recount_counter", recount.clone()).await;
    assert_eq!((&again["epoch"], &again["new_count"]), (&json!(1), &json!(1_200)), "the answer of the first one");
    recount["token"] = json!("ticket-8");
    let (status, refused) = http.post("/v1/recount_counter", &recount).await;
    assert_eq!((status, &refused["error"]["reason"]), (409, &json!("COUNTER_CHANGED")), "{refused}");
    let listed = http.ok("/v1/list_recounts", body).await;
    assert_eq!(listed["recounts"][0]["reason"], "counted four robots", "{listed}");

    let verb =
        |verb: &'static str| ["counter", verb, "--counters", &url, "--namespace", NS, "a/b c"].map(str::to_owned);
    let tallystone = async |arguments: &[String], more: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        run(command(&arguments), "").await
    };
    let audit = tallystone(&verb("audit"), &[]).await;
    assert!(audit.code == Some(0) && audit.stdout.contains("agrees") && audit.stdout.contains("1,200"), "{audit:?}");
    let dry_run = tallystone(&verb("recount"), &["--reason", "x", "--adjust", "-200", "--dry-run"]).await;
    assert!(dry_run.stdout.contains("1,200 becomes 1,000: not done"), "{dry_run:?}");
    let done = tallystone(&verb("recount"), &["--reason", "more robots", "--adjust", "-200"]).await;
    assert!(done.stdout.contains("is 1,000; it was 1,200. Its epoch is 2."), "{done:?}");
    let kept = tallystone(&verb("recount"), &["--reason", "x", "--adjust", "1", "--keep-count", "--json"]).await;
    assert_eq!(kept.json()[0]["new_count"], 1_001, "{kept:?}");
    let usage = tallystone(&verb("recount"), &["--reason", "x", "--keep-count"]).await;
    assert!(usage.code == Some(2) && usage.stderr.contains("--adjust"), "{usage:?}");
    let recounts = tallystone(&verb("recounts"), &[]).await;
    assert!(recounts.stdout.contains("counted four robots") && recounts.stdout.contains("EPOCH"), "{recounts:?}");
    let lines: Vec<Value> = tallystone(&verb("recounts"), &["--json"]).await.json();
    assert_eq!(lines.iter().map(|line| line["epoch"].as_i64()).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
}
