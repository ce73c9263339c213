//! S4, S5: the calls of the view counter, which no protocol file has, need their rights and are in the audit log.

use super::secured::{Listening, Principals, Secured, methods_of};
use crate::system::program::metrics_page;
use reqwest::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use tallystone_tests::http_client;

/// The calls: method, path behind a prefix, body.
fn calls() -> [(&'static str, Method, &'static str, Value); 3] {
    let view = json!({"videoId": "cats", "userId": "mia", "timestamp": "2026-11-25T08:00:00Z"});
    [
        ("PostView", Method::POST, "/v1/views", view.clone()),
        ("PostViews", Method::POST, "/v1/views:batch", json!({"views": [view]})),
        ("GetViews", Method::GET, "/v1/videos/cats/views", Value::Null),
    ]
}

/// The methods and paths of the calls, as the router has them.
fn tried() -> BTreeSet<String> {
    let of_call = |(_, method, path, _): (&str, Method, &str, Value)| {
        let path = path.replace("cats", "{video}");
        [format!("{method} {path}"), format!("{method} /{{namespace}}{path}")]
    };
    calls().into_iter().flat_map(of_call).collect()
}

/// The methods of every path of the router.
async fn served(views: &Listening) -> BTreeSet<String> {
    let http = http_client();
    let unknown = Method::from_bytes(b"UNKNOWN").expect("a method");
    let mut served = BTreeSet::new();
    for path in tallystone_views::api::http_paths() {
        let of_one = path.replace("{namespace}", "default").replace("{video}", "cats");
        let request = http.request(unknown.clone(), format!("http://{}{of_one}", views.address));
        let refused = request.send().await.expect("an answer");
        served.extend(methods_of(&refused, path));
    }
    served
}

async fn status(views: &Listening, method: Method, path: &str, body: &Value, token: Option<&str>) -> u16 {
    let http = http_client();
    let mut request = http.request(method.clone(), format!("http://{}{path}", views.address));
    if method == Method::POST {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    request.send().await.expect("an answer").status().as_u16()
}

#[tokio::test]
async fn s4_each_call_of_the_view_counter_needs_its_right_on_the_namespace_and_has_a_line() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let of_other = principals.add("of-other", &["admin:other"], ["", ""]);
    let operator = principals.add("operator", &["admin:*", "metrics:*"], ["", ""]);
    let of_right = principals.add_for_each_right("default");
    let [path, config, audit] = ["principals.toml", "t.toml", "audit.log"].map(|name| place.path(name));
    principals.write(Path::new(&path));
    std::fs::write(&config, "[audit]\nall_calls = true\n").expect("a file");
    // No counters answer: a reader with the right gets 503.
    let args = ["--counters", "http://127.0.0.1:1", "--principals", &path, "--audit-file", &audit, "--config", &config];
    let views = place.start("views", &args).await;
    for (call, method, path, body) in calls() {
        let status = async |token| status(&views, method.clone(), path, &body, token).await;
        let (right, answer) = if call == "GetViews" { ("count-read", 503) } else { ("count", 202) };
        let [with_right, all_but] = &of_right[right];
        assert_eq!((status(None).await, status(Some("ts_a_b")).await), (401, 401), "{call}");
        let others = of_right.iter().filter(|(of, _)| **of != right).map(|(_, [only, _])| only);
        for token in [&of_other, all_but].into_iter().chain(others) {
            assert_eq!(status(Some(token.as_str())).await, 403, "{call}, which needs {right}");
        }
        assert_eq!((status(Some(with_right)).await, status(Some(&operator)).await), (answer, answer), "{call}");
        // The right is on the namespace of the path, whether or not there is one of that name.
        let elsewhere =
            async |token| self::status(&views, method.clone(), &format!("/other{path}"), &body, token).await;
        assert_eq!((elsewhere(Some(with_right)).await, elsewhere(Some(&of_other)).await), (403, 404), "{call}");
    }
    let text = std::fs::read_to_string(&audit).expect("the audit log");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let has = |principal: Value, call: &str, right: Value, code: &str| {
        let is_it = |line: &&Value| {
            line["principal"] == principal && line["call"] == call && line["right"] == right && line["code"] == code
        };
        assert!(lines.iter().any(|line| is_it(&line)), "{principal} {call} {right} {code}: {text}");
    };
    for (call, right) in [("PostView", "count"), ("PostViews", "count"), ("GetViews", "count-read")] {
        let code = if call == "GetViews" { "UNAVAILABLE" } else { "OK" };
        has(json!(format!("only-{right}")), call, json!(right), code);
        has(json!(format!("all-but-{right}")), call, json!(right), "PERMISSION_DENIED");
        has(json!("of-other"), call, json!(right), "PERMISSION_DENIED");
        has(json!("of-other"), call, json!(right), "NOT_FOUND");
    }
    has(Value::Null, "/v1/views:batch", Value::Null, "UNAUTHENTICATED");
    // Of each call: one with each right alone, and seven others.
    assert_eq!(lines.len(), 3 * (of_right.len() + 7), "each call has one line: {text}");
    // A page of metrics needs a right, too, so this process serves it without principals.
    let plain = place.start("views", &["--counters", "http://127.0.0.1:1"]).await;
    assert_eq!(served(&plain).await, tried(), "each path is one of the calls, and has no other method");
    for (_, method, path, body) in calls() {
        status(&plain, method, path, &body, None).await;
    }
    let page = metrics_page(&plain.metrics.to_string()).await;
    for (call, code) in [("PostView", "OK"), ("PostViews", "OK"), ("GetViews", "UNAVAILABLE")] {
        for series in [
            format!("tallystone_rpc_calls_total{{rpc=\"{call}\",code=\"{code}\"}} 1"),
            format!("tallystone_rpc_seconds_count{{rpc=\"{call}\"}} 1"),
        ] {
            assert!(page.contains(&series), "{series}: {page}");
        }
    }
}
