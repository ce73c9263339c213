//! The same calls as JSON over HTTP, on the same port: bodies, refusals, the description, and the page (N2).

use super::house::House;
use super::now_ms;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tallystone_client::{CounterType, NamespaceConfig};
use tallystone_counters::namespace::ARTICLE_EXAMPLE;
use tallystone_tests::http_builder;

/// As the seed prints it.
pub(super) const SEEDS_ADD: &str = r#"{
  "namespace": "my_dataset",
  "counter_name": "counter123",
  "delta": 2,
  "idempotency_token": {
    "token": "some_event_id",
    "generation_time": "2024-10-05T14:48:00Z"
  }
}"#;

pub(super) struct Http {
    pub(super) house: House,
    pub(super) client: Client,
}

impl Http {
    /// With the seed's namespace, made exact at once.
    pub(super) async fn start() -> Self {
        let house = House::without_rollups().await;
        let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
        house.put("my_dataset", config).await;
        Http::of(house)
    }

    /// The calls to a house.
    pub(super) fn of(house: House) -> Self {
        let client = http_builder().timeout(Duration::from_secs(60)).build().expect("a client");
        Http { house, client }
    }

    pub(super) async fn text(&self, method: Method, path: &str, body: &str) -> (u16, String) {
        let url = format!("{}{path}", self.house.urls[0]);
        let request = self.client.request(method, url).header("content-type", "application/json");
        let response = request.body(body.to_owned()).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("text"))
    }

    pub(super) async fn call(&self, method: Method, path: &str, body: &str) -> (u16, Value) {
        let (status, text) = self.text(method, path, body).await;
        (status, serde_json::from_str(&text).unwrap_or_else(|_| panic!("{status}, no JSON: {text}")))
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.call(Method::POST, path, &body.to_string()).await
    }

    /// A call that is done.
    pub(super) async fn ok(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.post(path, &body).await;
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    pub(super) async fn count(&self, counter: &str) -> Value {
        self.ok("/v1/get_count", json!({"namespace": "my_dataset", "counter": counter})).await["count"].clone()
    }
}

/// What stands in an error's body.
pub(super) fn fault(body: &Value) -> (&str, &str, &str) {
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
        assert_eq!(fault(&answer["results"][1]), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "adds[1].counter"));
        assert_eq!(fault(&answer["results"][2]), ("OUT_OF_RANGE", "OVERFLOW", ""));
    }
    let malformed = json!([
        {"counter": "m", "delta": 1}, {"counter": "m", "delta": "one"}, {"counter": "m", "delta": 1, "min": null}, 7,
        {"counter": "m", "delta": 1, "token": {"token": "t", "generation_time": "noon"}}, {"counter": "m", "delta": 2},
    ]);
    for (path, count) in [("/v1/add_counts", 3), ("/v1/add_and_get_counts", 6)] {
        let answer = http.ok(path, in_dataset(json!({"adds": malformed}))).await;
        let fields = answer["results"].as_array().unwrap().iter().map(|result| &result["error"]["field"]);
        let refused = [1, 2, 3].map(|number| json!(format!("adds[{number}]")));
        let time = json!("adds[4].token.generation_time_ms");
        assert!(fields.eq([&Value::Null].into_iter().chain(&refused).chain([&time, &Value::Null])), "{answer}");
        assert_eq!(http.count("m").await, count, "the others went through");
    }
    let answer = http.ok("/v1/get_counts", in_dataset(json!({"counters": [7, "m"]}))).await;
    assert_eq!((fault(&answer["results"][0]).2, &answer["results"][1]["count"]), ("counters[0]", &json!(6)));
    let answer = http.ok("/v1/clear_counts", in_dataset(json!({"clears": [{"count": "m"}, {"counter": "m"}]}))).await;
    assert_eq!((fault(&answer["results"][0]).2, &answer["results"][1]["duplicate"]), ("clears[0]", &json!(false)));
    assert_eq!(http.count("m").await, 0);
    let answer = http.ok("/v1/get_counts", in_dataset(json!({"counters": ["x", "a/b c"]}))).await;
    assert_eq!((&answer["results"][0]["count"], &answer["results"][1]["count"]), (&json!(0), &json!(-1)));
    let (status, answer) = http.call(Method::GET, "/v1/namespaces/my_dataset/counters/a/b%20c", "").await;
    assert_eq!((status, &answer["count"]), (200, &json!(-1)));
    let answer = http.ok("/v1/list_counters", in_dataset(json!({"page_size": 10}))).await;
    let listed: BTreeSet<&str> =
        answer["counters"].as_array().unwrap().iter().flat_map(|c| c["counter"].as_str()).collect();
    assert_eq!(listed, BTreeSet::from(["a/b c", "m"]));
    let answer = http.ok("/v1/list_events", in_dataset(json!({"counter_name": "a/b c"}))).await;
    let deltas: Vec<i64> = answer["events"].as_array().unwrap().iter().map(|e| e["delta"].as_i64().unwrap()).collect();
    assert_eq!(deltas, [-3, 1, 1]);
    let answer = http.ok("/v1/clear_count", in_dataset(json!({"counter": "a/b c", "token": token("clear")}))).await;
    assert_eq!(answer["duplicate"], false);
    assert_eq!(http.count("a/b c").await, 0);
    let answer = http.ok("/v1/clear_counts", in_dataset(json!({"clears": [{"counter": "x"}, {"counter": ""}]}))).await;
    assert_eq!(answer["results"][0]["duplicate"], false);
    assert_eq!(fault(&answer["results"][1]), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "clears[1].counter"));

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
async fn n19_reads_wait_until_they_are_exact_over_http_too() {
    let http = Http::start().await;
    let add = json!({"namespace": "my_dataset", "counter": "c", "delta": 7});
    let added = http.ok("/v1/add_count", add).await["event_time_ms"].as_i64().expect("a time");
    let (exact, wait) = (added + 1, 20_000);
    let body = json!({"namespace": "my_dataset", "counter": "c", "min_exact_to_ms": exact, "wait_ms": "20000"});
    let path = format!("/v1/namespaces/my_dataset/counters/c?min_exact_to_ms={exact}&wait_ms={wait}");
    let by_path = async || {
        let (status, answer) = http.call(Method::GET, &path, "").await;
        assert_eq!(status, 200, "{answer}");
        answer
    };
    let (by_body, by_path) = tokio::join!(http.ok("/v1/get_count", body), by_path());
    for answer in [by_body, by_path] {
        assert_eq!(answer["count"], 7, "{answer}");
        assert!(answer["exact_to_ms"].as_i64().is_some_and(|to_ms| to_ms >= exact), "{answer}");
    }
    let body = json!({"namespace": "my_dataset", "counter": "c", "delta": 1});
    let (status, answer) = http.post("/v1/add_count?wait_ms=1", &body).await;
    assert_eq!((status, fault(&answer).2), (400, "query"), "{answer}");
    assert_eq!(http.count("c").await, 7, "it was not added");
    // Nothing can be exact to so late a time.
    let late = now_ms() + 60_000;
    let body = json!({"namespace": "my_dataset", "counters": ["c", ""], "min_exact_to_ms": late, "wait_ms": 1});
    let answer = http.ok("/v1/get_counts", body).await;
    assert_eq!(fault(&answer["results"][0]), ("DEADLINE_EXCEEDED", "NOT_EXACT_YET", ""));
    assert_eq!(answer["results"][0]["error"]["exact_to_ms"], 0, "it was never rolled up: {answer}");
    assert_eq!(fault(&answer["results"][1]), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "counters[1].counter"));
    let path = format!("/v1/namespaces/my_dataset/counters/c?min_exact_to_ms={late}");
    let (status, answer) = http.call(Method::GET, &path, "").await;
    assert_eq!((status, fault(&answer).1, &answer["error"]["exact_to_ms"]), (504, "NOT_EXACT_YET", &json!(0)));
    let bad = [
        ("min_exact_to_ms=noon", "min_exact_to_ms"),
        ("min_exact_to_ms=1&wait_ms=-1", "wait_ms"),
        ("min_exact_ms=1", "query"),
        ("wait_ms", "wait_ms"),
    ];
    for (query, field) in bad {
        let path = format!("/v1/namespaces/my_dataset/counters/c?{query}");
        let (status, answer) = http.call(Method::GET, &path, "").await;
        assert_eq!((status, fault(&answer).2), (400, field), "{answer}");
    }
}

#[tokio::test]
async fn n14_counters_and_namespaces_are_deleted_over_http_too() {
    let http = Http::start().await;
    let body = json!({"namespace": "my_dataset", "counter": "c", "delta": 3});
    http.ok("/v1/add_count", body).await;
    let body = json!({"namespace": "my_dataset", "counter": "c",
        "idempotency_token": {"token": "deletion", "generation_time": now_ms()}});
    for duplicate in [false, true] {
        assert_eq!(http.ok("/v1/delete_counter", body.clone()).await["duplicate"], duplicate);
        assert_eq!(http.count("c").await, 0);
    }
    let path = "/v1/namespaces/my_dataset";
    let (_, found) = http.call(Method::GET, path, "").await;
    assert_eq!(found["incarnation"], 0);
    assert_eq!(found["config"]["expire_after_ms"], 0, "every parameter");
    let (status, answer) = http.call(Method::DELETE, &format!("{path}?incarnation=x"), "").await;
    assert_eq!((status, fault(&answer)), (400, ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "incarnation")));
    let (status, answer) = http.call(Method::DELETE, &format!("{path}?incarnation=-1"), "").await;
    assert_eq!((status, fault(&answer)), (400, ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "incarnation")));
    let (status, answer) = http.call(Method::DELETE, &format!("{path}?incarnatoin=0"), "").await;
    assert_eq!((status, fault(&answer).2), (400, "query"), "nothing is deleted for a misspelt parameter: {answer}");
    let (status, answer) = http.call(Method::DELETE, &format!("{path}?incarnation=7"), "").await;
    assert_eq!((status, fault(&answer)), (404, ("NOT_FOUND", "NAMESPACE_NOT_FOUND", "")));
    for _ in 0..2 {
        let (status, answer) = http.call(Method::DELETE, &format!("{path}?int64=string&incarnation=0"), "").await;
        assert_eq!((status, &answer), (200, &json!({"deleted": "my_dataset"})));
    }
    let (status, answer) = http.call(Method::DELETE, path, "").await;
    assert_eq!((status, fault(&answer)), (404, ("NOT_FOUND", "NAMESPACE_NOT_FOUND", "")));
}

#[tokio::test]
async fn s1_a_page_of_another_origin_counts_nothing() {
    let http = Http::start().await;
    let url = http.house.urls[0].clone();
    let add = async |origin: &str, content_type: &str| {
        let request = http.client.post(format!("{url}/v1/add_count")).header("origin", origin);
        let request = request.header("content-type", content_type);
        let response = request.body(r#"{"namespace":"my_dataset","counter":"c","delta":2}"#).send().await;
        let response = response.expect("an answer");
        (response.status().as_u16(), response.json::<Value>().await.expect("JSON"))
    };
    for origin in ["https://evil.example", "null"] {
        // A page may send the first without a preflight.
        for content_type in ["text/plain", "application/json"] {
            let (status, answer) = add(origin, content_type).await;
            assert_eq!((status, fault(&answer)), (403, ("PERMISSION_DENIED", "BAD_ORIGIN", "")), "{origin}");
        }
    }
    assert_eq!(http.count("c").await, 0);
    // The page of this port.
    assert_eq!(add(&url, "application/json").await.0, 200);
    assert_eq!(http.count("c").await, 2);
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
    let invalid = |field| (400, ("INVALID_ARGUMENT", "INVALID_ARGUMENT", field));
    let cases = [
        (json!([]), invalid("")),
        // The fields of the call in their order.
        (json!(["my_dataset", "c", 1, null]), invalid("")),
        (with("token", json!(["u", now_ms()])), invalid("")),
        (json!({"namespace": "my_dataset"}), invalid("")),
        (with("deltaa", json!(1)), invalid("")),
        (with("delta", json!("one")), invalid("")),
        (with("delta", json!("")), invalid("")),
        (with("delta", json!("9223372036854775808")), invalid("")),
        (with("delta", json!(1.5)), invalid("")),
        (with("delta", json!(9_223_372_036_854_775_808_u64)), invalid("")),
        (with("token", json!({"token": "t"})), invalid("")),
        (with("token", json!({"token": "t", "generation_time": "yesterday"})), invalid("token.generation_time_ms")),
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
    let (_, answer) = http.post("/v1/add_counts", &json!(["my_dataset", [{"counter": "c", "delta": 1}]])).await;
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(message.contains("expected a JSON object") && !message.contains("struct"), "{message}");
    let adds = json!([["c", 1, null], {"counter": "d", "delta": 1}]);
    let answer = http.ok("/v1/add_counts", json!({"namespace": "my_dataset", "adds": adds})).await;
    assert_eq!((fault(&answer["results"][0]).2, &answer["results"][1]["duplicate"]), ("adds[0]", &json!(false)));
    let adds: Vec<Value> = (0..1_001).map(|number| json!({"counter": format!("c{number}"), "delta": 1})).collect();
    let (status, answer) = http.post("/v1/add_counts", &json!({"namespace": "my_dataset", "adds": adds})).await;
    assert_eq!((status, fault(&answer)), invalid("adds"));
    for (path, body) in [
        ("/v1/namespaces/a%20b", "{}"),
        ("/v1/namespaces/new", "{"),
        ("/v1/namespaces/new", "[]"),
        ("/v1/namespaces/new", r#"{"coalesce": 5}"#),
        ("/v1/namespaces/new", r#"{"coalesce_ms": -5}"#),
        ("/v1/namespaces/my_dataset", r#"{"buckets_per_id": 5}"#),
        ("/v1/namespaces/new/persistence_configuration", "{}"),
        ("/v1/namespaces/new/persistence_configuration", &ARTICLE_EXAMPLE.replace("counter_type", "counter_typ")),
    ] {
        let (status, answer) = http.call(Method::PUT, path, body).await;
        assert_eq!((status, fault(&answer).1), (400, "INVALID_ARGUMENT"), "{path} {body}: {answer}");
    }
    let (status, answer) = http.call(Method::GET, "/v1/namespaces/new", "").await;
    assert_eq!((status, fault(&answer)), (404, ("NOT_FOUND", "NAMESPACE_NOT_FOUND", "")));
    // What HTTP itself refuses is said in the same way.
    for (method, path) in [(Method::GET, "/v1/add_count"), (Method::PATCH, "/v1/namespaces/new"), (Method::PUT, "/")] {
        let (status, answer) = http.call(method, path, "").await;
        assert_eq!((status, fault(&answer)), (405, ("UNIMPLEMENTED", "METHOD_NOT_ALLOWED", "")), "{path}");
    }
    let url = format!("{}/v1/namespaces/new", http.house.urls[0]);
    let answer = http.client.patch(url).send().await.expect("an answer");
    assert_eq!(answer.headers()["allow"], "GET,HEAD,PUT,DELETE");
    let long = format!(r#"{{"namespace": "{}"}}"#, "n".repeat(3 * 1024 * 1024));
    let put = "/v1/namespaces/new/persistence_configuration";
    let elements = format!(r#"{{"thresholds": [{}0]}}"#, "0,".repeat(40_000));
    for (method, path, body) in [
        (Method::POST, "/v1/add_count", &long),
        (Method::PUT, put, &long),
        (Method::PUT, "/v1/namespaces/new", &elements),
    ] {
        let (status, answer) = http.call(method, path, body).await;
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
    let not_utf8 = not_utf8.header("content-type", "application/json");
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
async fn n2_int64_is_read_as_text_and_answered_as_text_where_the_caller_requests_it() {
    let http = Http::start().await;
    // Beyond what a floating-point number holds exactly.
    let (wide, now_ms) = ((1_i64 << 53) + 1, now_ms());
    let token = json!({"token": "t", "generation_time": now_ms.to_string()});
    let add = json!({"namespace": "my_dataset", "counter": "c", "delta": wide.to_string(), "token": token});
    assert_eq!(http.ok("/v1/add_count", add.clone()).await, json!({"event_time_ms": now_ms, "duplicate": false}));
    let answer = http.ok("/v1/add_and_get_count?int64=string", add).await;
    let expected = json!({"event_time_ms": now_ms.to_string(), "duplicate": true, "count": wide.to_string(),
        "exact_to_ms": "0"});
    assert_eq!(answer, expected);
    let of_c = json!({"namespace": "my_dataset", "counter": "c"});
    assert_eq!(http.ok("/v1/get_count", of_c.clone()).await["count"], wide);
    assert_eq!(http.ok("/v1/get_count?int64=string", of_c.clone()).await["count"], wide.to_string());
    let both = json!({"namespace": "my_dataset", "counters": ["c", ""]});
    let answer = http.ok("/v1/get_counts?int64=string", both).await;
    assert_eq!(answer["results"][0]["count"], wide.to_string());
    assert_eq!(fault(&answer["results"][1]), ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "counters[1].counter"));
    // As proto3's JSON mapping has them, with an exponent.
    for body in [r#""delta": 1e2"#, r#""delta": "1e2""#, r#""delta": -2.00e2"#] {
        let body = format!(r#"{{"namespace": "my_dataset", "counter": "e", {body}}}"#);
        assert_eq!(http.call(Method::POST, "/v1/add_count", &body).await.0, 200, "{body}");
    }
    assert_eq!(http.count("e").await, 0);
    let events = json!({"namespace": "my_dataset", "counter": "c", "page_size": "1e1", "from": "1"});
    let answer = http.ok("/v1/list_events?int64=string", events).await;
    assert_eq!(answer["events"][0]["delta"], wide.to_string());
    assert_eq!(answer["events"][0]["event_time_ms"], now_ms.to_string());
    let (status, answer) = http.call(Method::GET, "/v1/namespaces/my_dataset/counters/c?int64=string", "").await;
    assert_eq!((status, &answer["count"]), (200, &json!(wide.to_string())));
    let put = r#"{"ttl_ms": "5e3", "num_queues": 0.3e1, "counter_type": "BEST_EFFORT"}"#;
    let (status, answer) = http.call(Method::PUT, "/v1/namespaces/new?int64=string", put).await;
    assert_eq!(
        (status, &answer["revision"], &answer["config"]["ttl_ms"]),
        (200, &json!("1"), &json!("5000")),
        "{answer}"
    );
    // It has 32 bits.
    assert_eq!(answer["config"]["num_queues"], 3);
    let (status, answer) = http.post("/v1/get_count?int64=text", &of_c).await;
    assert_eq!((status, fault(&answer)), (400, ("INVALID_ARGUMENT", "INVALID_ARGUMENT", "int64")));
}
