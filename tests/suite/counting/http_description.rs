//! The description of the calls over HTTP agrees with what is served (N2).

use super::http::{Http, SEEDS_ADD};
use super::now_ms;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
    let more_posts = ["clear_count", "clear_counts", "delete_counter", "list_counters", "list_events", "get_sums"];
    let more_posts = more_posts.iter().chain(&["list_top_counters"]);
    let of_recounts = ["audit_counter", "recount_counter", "list_recounts"];
    let posts = posts.iter().chain(more_posts).chain(&of_recounts).map(|name| format!("post /v1/{name}"));
    let others = [
        "get /v1/namespaces",
        "get /v1/namespaces/{namespace}",
        "put /v1/namespaces/{namespace}",
        "delete /v1/namespaces/{namespace}",
        "put /v1/namespaces/{namespace}/persistence_configuration",
        "get /v1/namespaces/{namespace}/counters/{counter}",
        "get /v1/namespaces/{namespace}/crossings",
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
        let mut path = path.replace("{namespace}", "my_dataset").replace("{counter}", "c");
        // The calls that follow need it.
        if method == "delete" {
            path += "?incarnation=none";
        }
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

/// Why a value does not agree with a schema of the document.
fn disagrees(document: &Value, schema: &Value, value: &Value) -> Option<String> {
    let list = |name: &str| schema[name].as_array().cloned().unwrap_or_default();
    if let Some(reference) = schema["$ref"].as_str() {
        let referred = document.pointer(reference.trim_start_matches('#')).expect("a schema that is there");
        return disagrees(document, referred, value);
    }
    let agrees = |schema: &Value| disagrees(document, schema, value).is_none();
    if !list("anyOf").is_empty() && !list("anyOf").iter().any(agrees) {
        return Some(format!("{value} is none of {}", schema["anyOf"]));
    }
    if !list("oneOf").is_empty() && list("oneOf").iter().filter(|schema| agrees(schema)).count() != 1 {
        return Some(format!("{value} is not one of {}", schema["oneOf"]));
    }
    if let Some(why) = list("allOf").iter().find_map(|schema| disagrees(document, schema, value)) {
        return Some(why);
    }
    if !list("enum").is_empty() && !list("enum").contains(value) {
        return Some(format!("{value} is none of {}", schema["enum"]));
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = if schema["type"].is_string() { vec![schema["type"].clone()] } else { list("type") };
    if !kinds.is_empty() && !kinds.contains(&json!(kind)) {
        return Some(format!("{value} is no {}", schema["type"]));
    }
    let is_digits = |text: &str| text.strip_prefix('-').unwrap_or(text).bytes().all(|byte| byte.is_ascii_digit());
    if schema["pattern"] == "^-?[0-9]+$" && value.as_str().is_some_and(|text| !is_digits(text)) {
        return Some(format!("{value} is no number"));
    }
    if let Some(items) = value.as_array() {
        return items.iter().find_map(|item| disagrees(document, &schema["items"], item));
    }
    let fields = value.as_object()?;
    let missing = list("required").into_iter().find(|name| !fields.contains_key(name.as_str().unwrap_or_default()));
    if let Some(missing) = missing {
        return Some(format!("{missing} is missing in {value}"));
    }
    let properties = schema["properties"].as_object()?;
    fields.iter().find_map(|(name, value)| match properties.get(name) {
        Some(schema) => disagrees(document, schema, value).map(|why| format!("{name}: {why}")),
        None => Some(format!("{name} is not described")),
    })
}

#[tokio::test]
async fn n2_what_is_sent_and_served_agrees_with_the_description() {
    let http = Http::start().await;
    let (_, document) = http.call(Method::GET, "/openapi.json", "").await;
    let token = json!({"token": "t", "generation_time": now_ms()});
    let seeds_token = json!({"token": "u", "generation_time_ms": now_ms().to_string()});
    let text_token = json!({"token": "v", "generation_time": "2024-10-05T14:48:00Z"});
    let ns = "my_dataset";
    let adds = json!([{"counter": "c", "delta": 1}, {"counter_name": "d", "delta": "2", "idempotency_token": seeds_token},
        {"counter": "", "delta": 1, "token": text_token}]);
    let bodies = [
        ("/v1/add_count", json!({"namespace": ns, "counter": "c", "delta": -5, "token": token})),
        ("/v1/add_count", serde_json::from_str(SEEDS_ADD).expect("JSON")),
        ("/v1/add_and_get_count", json!({"namespace": ns, "counter_name": "c", "delta": "5"})),
        ("/v1/add_counts", json!({"namespace": ns, "adds": adds})),
        ("/v1/add_and_get_counts", json!({"namespace": ns, "adds": adds})),
        ("/v1/get_count", json!({"namespace": ns, "counter": "c"})),
        ("/v1/get_count", json!({"namespace": "nowhere", "counter": "c"})),
        ("/v1/get_counts", json!({"namespace": ns, "counters": ["c", ""]})),
        ("/v1/list_counters", json!({"namespace": ns})),
        ("/v1/list_counters", json!({"namespace": ns, "page_size": "1", "page_token": ""})),
        ("/v1/list_top_counters", json!({"namespace": ns, "prefix": "c", "limit": "10"})),
        ("/v1/list_events", json!({"namespace": ns, "counter": "c", "from": 1, "to": "2124-10-05T14:48:00Z"})),
        (
            "/v1/get_sums",
            json!({"namespace": ns, "counter": "c", "period": "HOUR", "from": 1, "to": "2124-10-05T14:48:00Z"}),
        ),
        ("/v1/get_sums", json!({"namespace": ns, "counter_name": "c", "period": "MINUTE", "page_token": ""})),
        ("/v1/clear_count", json!({"namespace": ns, "counter": "c", "token": null})),
        ("/v1/delete_counter", json!({"namespace": ns, "counter": "c", "token": token})),
        ("/v1/clear_counts", json!({"namespace": ns, "clears": [{"counter": "c"}, {"counter_name": ""}]})),
    ];
    let config = json!({"coalesce_ms": "500", "num_queues": 2, "cardinality": "LOW"});
    let posts = bodies.into_iter().map(|(path, body)| (Method::POST, path, path, body));
    let others = [
        (Method::PUT, "/v1/namespaces/{namespace}", "/v1/namespaces/new", config),
        (Method::GET, "/v1/namespaces/{namespace}", "/v1/namespaces/new", Value::Null),
        (Method::GET, "/v1/namespaces", "/v1/namespaces", Value::Null),
        (Method::DELETE, "/v1/namespaces/{namespace}", "/v1/namespaces/new", Value::Null),
        (
            Method::GET,
            "/v1/namespaces/{namespace}/counters/{counter}",
            "/v1/namespaces/my_dataset/counters/c",
            Value::Null,
        ),
        (Method::GET, "/v1/namespaces/{namespace}/crossings", "/v1/namespaces/my_dataset/crossings", Value::Null),
    ];
    for (method, described, path, body) in posts.chain(others) {
        let call = &document["paths"][described][method.as_str().to_lowercase()];
        let has_text = |name: &str| call[name].as_str().is_some_and(|text| !text.is_empty());
        assert!(has_text("summary") && has_text("description"), "{method} {described}: {call}");
        if !body.is_null() {
            let schema = &call["requestBody"]["content"]["application/json"]["schema"];
            assert_eq!(disagrees(&document, schema, &body), None, "{method} {path} is sent {body}");
        }
        for query in ["", "?int64=string"] {
            let (status, answer) = http.call(method.clone(), &format!("{path}{query}"), &body.to_string()).await;
            let status = if status == 200 { "200".to_owned() } else { format!("{}XX", status / 100) };
            let schema = &call["responses"][&status]["content"]["application/json"]["schema"];
            assert!(schema.is_object(), "{method} {path}: {status} is not described");
            assert_eq!(disagrees(&document, schema, &answer), None, "{method} {path} answers {answer}");
        }
    }
}
