//! The same calls as JSON over HTTP, on the same port: bodies, refusals, the description, and the page (N2).

use super::house::House;
use super::now_ms;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_client::{CounterType, NamespaceConfig};
use tallystone_counters::namespace::ARTICLE_EXAMPLE;

/// As the seed prints it.
const SEEDS_ADD: &str = r#"{
  "namespace": "my_dataset",
  "counter_name": "counter123",
  "delta": 2,
  "idempotency_token": {
    "token": "some_event_id",
    "generation_time": "2024-10-05T14:48:00Z"
  }
}"#;

struct Http {
    house: House,
    client: Client,
}

impl Http {
    /// With the seed's namespace, made exact at once.
    async fn start() -> Self {
        let house = House::without_rollups().await;
        let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
        house.put("my_dataset", config).await;
        let client = Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().expect("a client");
        Http { house, client }
    }

    async fn text(&self, method: Method, path: &str, body: &str) -> (u16, String) {
        let url = format!("{}{path}", self.house.urls[0]);
        let request = self.client.request(method, url).header("content-type", "application/json");
        let response = request.body(body.to_owned()).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("text"))
    }

    async fn call(&self, method: Method, path: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.text(method, path, body).await;
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}, no JSON: {text}")))
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call(Method::POST, path, &body.to_string()).await
    }

    /// A call that is done.
    async fn ok(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, &body).await;
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    async fn count(&self, counter: &str) -> Value {
        self.ok("/v1/get_count", json!({"namespace": "my_dataset", "counter": counter})).await["count"].clone()
    }
}

/// What stands in an error's body.
fn fault(body: &Value) -> (&str, &str, &str) {
    let text = |name| body["error"][name].as_str().unwrap_or_default();
    assert!(!text("message").is_empty(), "{body}");
    (text("code"), text("reason"), text("field"))
}

#[tokio::test]
async fn n2_the_seeds_body_is_read_as_it_stands() {
    let http = Http::start().await;
    // It is of 2024: its token is no longer looked up, and it is not counted now.
    let (status, answer) = http.call(Method::POST, "/v1/add_count", SEEDS_ADD).await;
    assert_eq!((status, fault(&answer)), (400, ("FAILED_PRECONDITION", "TOKEN_EXPIRED", "")));
    assert_eq!(http.count("counter123").await, 0);
    // The same of now is counted, once.
    let mut add: Value = serde_json::from_str(SEEDS_ADD).expect("JSON");
    add["idempotency_token"]["generation_time"] = json!(now_ms());
    for duplicate in [false, true] {
        let answer = http.ok("/v1/add_count", add.clone()).await;
        assert_eq!(answer["duplicate"], duplicate, "{answer}");
        assert_eq!(answer["event_time_ms"], add["idempotency_token"]["generation_time"]);
    }
    let seeds_get = r#"{"namespace": "my_dataset", "counter_name": "counter123"}"#;
    let (status, answer) = http.call(Method::POST, "/v1/get_count", seeds_get).await;
    assert_eq!((status, &answer["count"], &answer["counter_type"]), (200, &json!(2), &json!("ACCURATE")));
}

#[tokio::test]
async fn n2_every_call_is_served_over_http_too() {
    let http = Http::start().await;
    let in_dataset = |mut body: Value| {
        body["namespace"] = json!("my_dataset");
        body
    };
    let token = |name: &str| json!({"token": name, "generation_time_ms": now_ms()});
    let first = token("first");
    let add = in_dataset(json!({"counter": "a/b c", "delta": -3, "token": first}));
    assert_eq!(http.ok("/v1/add_count", add.clone()).await["duplicate"], false);
    let answer = http.ok("/v1/add_and_get_count", add).await;
    assert_eq!((&answer["duplicate"], &answer["count"]), (&json!(true), &json!(-3)));
    let adds =
        json!([{"counter": "a/b c", "delta": 1}, {"counter": "", "delta": 1}, {"counter": "x", "delta": i64::MAX}]);
    for path in ["/v1/add_counts", "/v1/add_and_get_counts"] {
        let answer = http.ok(path, in_dataset(json!({"adds": adds}))).await;
        assert_eq!(answer["results"][0]["duplicate"], false, "{answer}");
        assert_eq!(fault(&answer["results"][1]), ("INVALID_ARGUMENT", "INVALID", "adds[1].counter"));
        assert_eq!(fault(&answer["results"][2]), ("OUT_OF_RANGE", "OVERFLOW", ""));
    }
    let answer = http.ok("/v1/get_counts", in_dataset(json!({"counters": ["x", "a/b c"]}))).await;
    assert_eq!((&answer["results"][0]["count"], &answer["results"][1]["count"]), (&json!(0), &json!(-1)));
    let (status, answer) = http.call(Method::GET, "/v1/namespaces/my_dataset/counters/a/b%20c", "").await;
    assert_eq!((status, &answer["count"]), (200, &json!(-1)));
    let answer = http.ok("/v1/list_counters", in_dataset(json!({"page_size": 10}))).await;
    assert_eq!(answer["counters"][0]["counter"], "a/b c");
    let answer = http.ok("/v1/list_events", in_dataset(json!({"counter_name": "a/b c"}))).await;
    let deltas: Vec<i64> = answer["events"].as_array().unwrap().iter().map(|e| e["delta"].as_i64().unwrap()).collect();
    assert_eq!(deltas, [-3, 1, 1]);
    let answer = http.ok("/v1/clear_count", in_dataset(json!({"counter": "a/b c", "token": token("clear")}))).await;
    assert_eq!(answer["duplicate"], false);
    assert_eq!(http.count("a/b c").await, 0);
    let answer = http.ok("/v1/clear_counts", in_dataset(json!({"clears": [{"counter": "x"}, {"counter": ""}]}))).await;
    assert_eq!(answer["results"][0]["duplicate"], false);
    assert_eq!(fault(&answer["results"][1]), ("INVALID_ARGUMENT", "INVALID", "clears[1].counter"));

    let put = async |path: &str, body: &str| http.call(Method::PUT, path, body).await;
    let (status, answer) = put("/v1/namespaces/new", r#"{"counter_type": "BEST_EFFORT", "ttl_ms": 5000}"#).await;
    assert_eq!((status, &answer["revision"], &answer["config"]["ttl_ms"]), (200, &json!(1), &json!(5_000)), "{answer}");
    let (status, answer) = put("/v1/namespaces/seeds/persistence_configuration", ARTICLE_EXAMPLE).await;
    assert_eq!((status, &answer["config"]["cardinality"]), (200, &json!("LOW")), "{answer}");
    let (_, answer) = http.call(Method::GET, "/v1/namespaces/new", "").await;
    assert_eq!(answer["config"]["counter_type"], "BEST_EFFORT");
    let (_, answer) = http.call(Method::GET, "/v1/namespaces", "").await;
    let names: Vec<&str> =
        answer["namespaces"].as_array().unwrap().iter().map(|namespace| namespace["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["my_dataset", "new", "seeds"]);
}

#[tokio::test]
async fn n2_bad_bodies_have_their_status_and_say_what_is_wrong() {
    let http = Http::start().await;
    let counted = json!({"namespace": "my_dataset", "counter": "c", "delta": 1,
        "token": {"token": "t", "generation_time": now_ms()}});
    http.ok("/v1/add_count", counted.clone()).await;
    let with = |name: &str, value: Value| {
        let mut body = counted.clone();
        body[name] = value;
        body
    };
    let invalid = |field| (400, ("INVALID_ARGUMENT", "INVALID", field));
    let cases = [
        (json!([]), invalid("")),
        (json!({"namespace": "my_dataset"}), invalid("")),
        (with("deltaa", json!(1)), invalid("")),
        (with("delta", json!("1")), invalid("")),
        (with("delta", json!(1.5)), invalid("")),
        (with("delta", json!(9_223_372_036_854_775_808_u64)), invalid("")),
        (with("token", json!({"token": "t"})), invalid("")),
        (with("token", json!({"token": "t", "generation_time": "yesterday"})), invalid("time")),
        (with("token", json!({"token": "t", "generation_time": -1})), invalid("token.generation_time_ms")),
        (with("counter", json!("")), invalid("counter")),
        (with("namespace", json!("a b")), invalid("namespace")),
        (with("namespace", json!("nowhere")), (404, ("NOT_FOUND", "NAMESPACE_NOT_FOUND", ""))),
        (with("delta", json!(2)), (409, ("ALREADY_EXISTS", "TOKEN_CONFLICT", ""))),
        (with("delta", json!(i64::MIN)), (400, ("OUT_OF_RANGE", "OVERFLOW", ""))),
        (
            with("token", json!({"token": "t", "generation_time": now_ms() - 60_000})),
            (400, ("OUT_OF_RANGE", "TOO_OLD", "")),
        ),
    ];
    for (body, (expected_status, expected)) in cases {
        for path in ["/v1/add_count", "/v1/add_and_get_count"] {
            let (status, answer) = http.post(path, &body).await;
            assert_eq!((status, fault(&answer)), (expected_status, expected), "{body}");
        }
    }
    let adds: Vec<Value> = (0..1_001).map(|number| json!({"counter": format!("c{number}"), "delta": 1})).collect();
    let (status, answer) = http.post("/v1/add_counts", &json!({"namespace": "my_dataset", "adds": adds})).await;
    assert_eq!((status, fault(&answer)), invalid("adds"));
    for (path, body) in [
        ("/v1/namespaces/a%20b", "{}"),
        ("/v1/namespaces/new", "{"),
        ("/v1/namespaces/new", r#"{"coalesce": 5}"#),
        ("/v1/namespaces/new", r#"{"coalesce_ms": -5}"#),
        ("/v1/namespaces/my_dataset", r#"{"buckets_per_id": 5}"#),
        ("/v1/namespaces/new/persistence_configuration", "{}"),
        ("/v1/namespaces/new/persistence_configuration", &ARTICLE_EXAMPLE.replace("counter_type", "counter_typ")),
    ] {
        let (status, answer) = http.call(Method::PUT, path, body).await;
        assert_eq!((status, fault(&answer).1), (400, "INVALID"), "{path} {body}: {answer}");
    }
    let (status, answer) = http.call(Method::GET, "/v1/namespaces/new", "").await;
    assert_eq!((status, fault(&answer)), (404, ("NOT_FOUND", "NAMESPACE_NOT_FOUND", "")));
    // What HTTP itself refuses is said in the same way.
    for (method, path) in [(Method::GET, "/v1/add_count"), (Method::DELETE, "/v1/namespaces/new"), (Method::PUT, "/")] {
        let (status, answer) = http.call(method, path, "").await;
        assert_eq!((status, fault(&answer)), (405, ("UNIMPLEMENTED", "METHOD_NOT_ALLOWED", "")), "{path}");
    }
    let url = format!("{}/v1/namespaces/new", http.house.urls[0]);
    let answer = http.client.delete(url).send().await.expect("an answer");
    assert_eq!(answer.headers()["allow"], "GET,HEAD,PUT");
    let long = format!(r#"{{"namespace": "{}"}}"#, "n".repeat(3 * 1024 * 1024));
    let put = "/v1/namespaces/new/persistence_configuration";
    for (method, path) in [(Method::POST, "/v1/add_count"), (Method::PUT, put)] {
        let (status, answer) = http.call(method, path, &long).await;
        assert_eq!((status, fault(&answer)), (413, ("RESOURCE_EXHAUSTED", "TOO_LARGE", "")), "{path}");
    }
    for (method, path) in [
        (Method::GET, "/v1/namespaces/%ff"),
        (Method::PUT, "/v1/namespaces/%ff"),
        (Method::PUT, "/v1/namespaces/%ff/persistence_configuration"),
        (Method::GET, "/v1/namespaces/my_dataset/counters/%ff"),
    ] {
        let (status, answer) = http.call(method, path, "{}").await;
        assert_eq!((status, fault(&answer)), invalid(""), "{path}");
    }
    let not_utf8 = http.client.put(format!("{}{put}", http.house.urls[0])).body(vec![0xff_u8]);
    let answer = not_utf8.send().await.expect("an answer");
    let answer = (answer.status().as_u16(), answer.json::<Value>().await.expect("JSON"));
    assert_eq!((answer.0, fault(&answer.1)), invalid(""));
    let (status, answer) = http.post("/v1/add", &counted).await;
    assert_eq!((status, fault(&answer).0), (404, "NOT_FOUND"));
    // A gRPC client gets a gRPC status instead.
    let unknown = http.client.post(format!("{}/tallystone.None/Call", http.house.urls[0]));
    let answer = unknown.header("content-type", "application/grpc").send().await.expect("an answer");
    assert_eq!(answer.headers()["grpc-status"], "12");
    assert_eq!(http.count("c").await, 1);
}

#[tokio::test]
async fn n2_the_description_names_every_path_and_the_page_shows_it() {
    let http = Http::start().await;
    let (status, document) = http.call(Method::GET, "/openapi.json", "").await;
    assert_eq!(status, 200);
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.")), "{document}");
    let paths = document["paths"].as_object().expect("paths");
    let calls: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}")))
        .collect();
    let posts = ["add_count", "add_and_get_count", "add_counts", "add_and_get_counts", "get_count", "get_counts"];
    let more_posts = ["clear_count", "clear_counts", "list_counters", "list_events"];
    let posts = posts.iter().chain(&more_posts).map(|name| format!("post /v1/{name}"));
    let others = [
        "get /v1/namespaces",
        "get /v1/namespaces/{namespace}",
        "put /v1/namespaces/{namespace}",
        "put /v1/namespaces/{namespace}/persistence_configuration",
        "get /v1/namespaces/{namespace}/counters/{counter}",
    ];
    assert_eq!(calls, posts.chain(others.map(str::to_owned)).collect());
    // Every call can be refused, and can fail.
    for (path, methods) in paths {
        for description in methods.as_object().unwrap().values() {
            let statuses: Vec<&String> = description["responses"].as_object().unwrap().keys().collect();
            assert_eq!(statuses, ["200", "4XX", "5XX"], "{path}");
        }
    }
    // What is described is served: none of it is an unknown path.
    for call in &calls {
        let (method, path) = call.split_once(' ').expect("a method and a path");
        let path = path.replace("{namespace}", "my_dataset").replace("{counter}", "c");
        let method: Method = method.to_uppercase().parse().expect("a method");
        let (status, text) = http.text(method, &path, "?").await;
        assert!(status == 200 || status == 400, "{call}: {status} {text}");
    }
    let (status, page) = http.text(Method::GET, "/", "").await;
    assert_eq!(status, 200);
    assert!(page.starts_with("<!doctype html>") && page.contains("/openapi.json"), "{page:.200}");
    // It needs no network.
    assert!(!page.contains("https://") && !page.contains("http://"), "{page}");
}
