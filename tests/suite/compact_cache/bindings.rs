//! How a namespace is bound to a field, and what happens where nothing can be published.

use super::board::{
    FIELDS, column, create, prompt, published_to, publisher, start_sets, start_worker, until_published, url,
};
use crate::counting::house::House;
use tallystone_assembly::{Config, republish};
use tallystone_client::{CounterType, Error, NamespaceConfig, NewAdd, PublishedTo};
use tallystone_counters::NamespaceName;
use tallystone_counters::publish::{PublishedCount, Unpublished};
use tallystone_link::CompactConfig;
use tallystone_tests::compact::Engine;
use tallystone_tests::{http_client, volatile};

fn to(key: &str, field: &str) -> NamespaceConfig {
    let published_to = Some(PublishedTo { key: key.to_owned(), field: field.to_owned() });
    NamespaceConfig { published_to, ..NamespaceConfig::default() }
}

#[tokio::test]
async fn w6_a_binding_is_a_parameter_of_the_namespace() {
    let house = House::without_rollups().await;
    house.put("likes", published_to("likes")).await;
    let found = house.clients[1].get_namespace("likes").await.expect("a namespace").config.published_to;
    assert_eq!(found, published_to("likes").published_to);
    let best_effort = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..to("objects", "views") };
    for (namespace, config, field) in [
        ("other", to("objects", "likes"), "published_to"),
        ("other", to("", "likes"), "published_to.key"),
        ("other", to("objects", "li kes"), "published_to.field"),
        ("other", best_effort, "published_to"),
    ] {
        let refused = house.clients[0].put_namespace(namespace, config.clone()).await;
        let Err(Error::Refused(refused)) = refused else { panic!("{config:?}: {refused:?}") };
        assert_eq!(refused.field.as_deref(), Some(field), "{config:?}: {refused:?}");
    }
    // Another field, or no longer; meanwhile another namespace may have it.
    house.put("likes", to("objects", "hearts")).await;
    house.put("other", to("objects", "likes")).await;
    house.put("likes", to("", "")).await;
    assert_eq!(house.clients[1].get_namespace("likes").await.expect("a namespace").config.published_to, None);
    // Absent: it stays.
    house.put("other", NamespaceConfig { coalesce_ms: Some(1), ..NamespaceConfig::default() }).await;
    let found = house.clients[0].get_namespace("other").await.expect("a namespace").config;
    assert_eq!((found.published_to, found.coalesce_ms), (to("objects", "likes").published_to, Some(1)));
}

#[tokio::test]
async fn w6_a_binding_is_json_over_http() {
    let house = House::without_rollups().await;
    let http = http_client();
    let put = async |body: &str| {
        let request =
            http.put(format!("{}/v1/namespaces/likes", house.urls[0])).header("content-type", "application/json");
        let answer = request.body(body.to_owned()).send().await.expect("an answer").text().await.expect("a text");
        serde_json::from_str::<serde_json::Value>(&answer).expect("JSON")
    };
    let bound = serde_json::json!({"key": "objects", "field": "likes"});
    assert_eq!(put(r#"{"published_to":{"key":"objects","field":"likes"}}"#).await["config"]["published_to"], bound);
    assert_eq!(put(r#"{"coalesce_ms":5}"#).await["config"]["published_to"], bound);
    let released = put(r#"{"published_to":null}"#).await;
    assert!(released["config"].get("published_to").is_some_and(serde_json::Value::is_null), "{released}");
    let refused = put(r#"{"published_to":{"key":"objects"}}"#).await;
    assert_eq!(refused["error"]["code"], "INVALID_ARGUMENT", "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_a_binding_changes_while_rollups_go_on() {
    let sets = start_sets(Engine::Redis);
    create(&sets);
    let house = House::without_worker().await;
    let worker = start_worker(&house, &url(&sets)).await;
    let client = &house.clients[0];
    let add = async |counter: &str, delta| {
        client.add("ns", NewAdd::new(counter, delta)).await.expect("an add");
    };
    house.put("ns", prompt()).await;
    add("1", 5).await;
    house.until_entry("ns", "1", |entry| entry.count == 5).await;
    assert!(column(&sets, "likes").is_empty(), "nothing is published before it is bound");
    house.put("ns", published_to("likes")).await;
    add("2", 6).await;
    until_published(&sets, "likes", &[(1, 0), (2, 6)].into()).await;
    // What was counted before is filled in.
    let republished = refill(&house, "ns", Some(&url(&sets)), None).await.expect("a refill");
    assert_eq!((republished.counters, republished.published, republished.older), (2, 1, 1));
    until_published(&sets, "likes", &[(1, 5), (2, 6)].into()).await;
    house.put("ns", published_to("views")).await;
    add("1", 10).await;
    until_published(&sets, "views", &[(1, 15), (2, 0)].into()).await;
    assert_eq!(column(&sets, "likes")[&1].0, 5, "the field of before stays as it was");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_without_the_module_rollups_go_on_and_errors_name_what_is_missing() {
    // The counters' own Redis, as where [compact] is not set; it has no module.
    let house = House::without_worker().await;
    let worker = start_worker(&house, &house.redis.url()).await;
    house.put("likes", published_to("likes")).await;
    house.clients[0].add("likes", NewAdd::new("1", 5)).await.expect("an add");
    house.until_entry("likes", "1", |entry| entry.count == 5).await;
    let refused = refill(&house, "likes", None, Some("32")).await.expect_err("no module");
    assert!(refused.contains("likes: ") && refused.contains("module is not loaded"), "{refused}");
    let to = published_to("likes").published_to.expect("a binding");
    let to = tallystone_counters::namespace::PublishedTo { key: to.key, field: to.field };
    let count = PublishedCount { id: 1, count: 1, exact_to_ms: 1 };
    let refused = publisher(&house.redis.url()).publish(&to, &[count]).await;
    assert!(matches!(&refused, Err(Unpublished::Refused(why)) if why.contains("module")), "{refused:?}");
    house.put("free", prompt()).await;
    let refused = refill(&house, "free", None, None).await.expect_err("no binding");
    assert_eq!(refused, "free: the namespace 'free' is published nowhere");
    worker.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w6_a_refill_creates_the_set_and_adds_the_fields_that_it_lacks() {
    let sets = start_sets(Engine::Redis);
    // Its worker publishes nothing.
    let house = House::with_rollups().await;
    for field in FIELDS {
        house.put(field, published_to(field)).await;
        house.clients[0].add(field, NewAdd::new("7", 5)).await.expect("an add");
    }
    for field in FIELDS {
        house.until_entry(field, "7", |entry| entry.count == 5).await;
    }
    let refused = refill(&house, "likes", Some(&url(&sets)), None).await.expect_err("no set");
    assert!(refused.contains("has no counter set 'objects'"), "{refused}");
    for field in FIELDS.into_iter().chain(["likes"]) {
        refill(&house, field, Some(&url(&sets)), Some("20")).await.expect("a refill");
    }
    let info = tokio::task::block_in_place(|| sets.wire().done("CT.INFO objects"));
    let expected = FIELDS.map(|field| format!("{field} u20 {field}.exact_to u41")).join(" ");
    assert_eq!(info.field("schema").text(), expected);
    for field in FIELDS {
        assert_eq!(column(&sets, field)[&7].0, 5, "{field}");
    }
}

/// `tallystone counter namespace republish`, without the command line.
async fn refill(
    house: &House,
    namespace: &str,
    compact_url: Option<&str>,
    create: Option<&str>,
) -> Result<tallystone_counters::publish::Republished, String> {
    let compact = CompactConfig { url: compact_url.map(str::to_owned), ..CompactConfig::default() };
    let config = Config { redis: volatile(&house.redis.url()), compact, ..Config::default() };
    let name = NamespaceName::parse(namespace).expect("a name");
    republish(&config, &name, create, |_| ()).await.map_err(|error| error.to_string())
}
