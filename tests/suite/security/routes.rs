//! S4: the calls of the counters over HTTP need the rights of their RPCs. The table of the server's paths says which calls there are,
//! and the server which methods each of them has.

use super::secured::{Listening, Principals, Secured, methods_of};
use reqwest::header::WWW_AUTHENTICATE;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use tallystone_counters::namespace::ARTICLE_EXAMPLE;
use tallystone_serving::{METHODS, Right};
use tallystone_tests::http_client;

/// A call over HTTP.
struct Row {
    method: Method,
    /// As the router has it.
    path: &'static str,
    /// The RPC that it makes; `None`: it needs an identity, and no right.
    rpc: Option<&'static str>,
    body: Option<String>,
    /// A call that is allowed changes what [`Counters::state`] shows.
    changes: bool,
}

/// A call with a body about the counter `cats` of the namespace `own`, with these fields in addition.
fn post(path: &'static str, rpc: &'static str, more: Value, changes: bool) -> Row {
    let mut body = json!({"namespace": "own"});
    // A batch names its counters itself.
    if !rpc.ends_with('s') {
        body["counter"] = json!("cats");
    }
    for (name, value) in more.as_object().expect("fields") {
        body[name] = value.clone();
    }
    Row { method: Method::POST, path, rpc: Some(rpc), body: Some(body.to_string()), changes }
}

fn get(path: &'static str, rpc: Option<&'static str>) -> Row {
    Row { method: Method::GET, path, rpc, body: None, changes: false }
}

/// Every call, in an order in which each has something to change. The namespace goes last.
fn rows() -> Vec<Row> {
    const NAMESPACE: &str = "/v1/namespaces/{namespace}";
    const SEED: &str = "/v1/namespaces/{namespace}/persistence_configuration";
    let put = |path: &'static str, body: &str| Row {
        method: Method::PUT,
        path,
        rpc: Some("PutNamespace"),
        body: Some(body.to_owned()),
        changes: true,
    };
    let (cats, add) = (json!({"counter": "cats"}), json!({"counter": "cats", "delta": 2}));
    vec![
        post("/v1/add_count", "AddCount", json!({"delta": 1}), true),
        post("/v1/add_and_get_count", "AddAndGetCount", json!({"delta": 1}), true),
        post("/v1/add_counts", "AddCounts", json!({"adds": [add]}), true),
        post("/v1/add_and_get_counts", "AddAndGetCounts", json!({"adds": [add]}), true),
        post("/v1/get_count", "GetCount", json!({}), false),
        post("/v1/get_counts", "GetCounts", json!({"counters": ["cats"]}), false),
        get("/v1/namespaces/{namespace}/counters/{*counter}", Some("GetCount")),
        post("/v1/list_counters", "ListCounters", json!({}), false),
        post("/v1/list_top_counters", "ListTopCounters", json!({}), false),
        post("/v1/list_events", "ListEvents", cats.clone(), false),
        post("/v1/get_sums", "GetSums", json!({"counter": "cats", "period": "HOUR"}), false),
        post("/v1/audit_counter", "AuditCounter", json!({}), false),
        // Without a rollup there is no count to replace: with the right the answer is 404.
        post(
            "/v1/recount_counter",
            "RecountCounter",
            json!({"adjustment": 1, "reason": "a test", "token": "t"}),
            false,
        ),
        post("/v1/list_recounts", "ListRecounts", cats.clone(), false),
        get("/v1/namespaces/{namespace}/crossings", Some("ListCrossings")),
        post("/v1/clear_count", "ClearCount", json!({}), true),
        post("/v1/clear_counts", "ClearCounts", json!({"clears": [cats]}), true),
        post("/v1/delete_counter", "DeleteCounter", json!({}), true),
        get("/v1/namespaces", Some("ListNamespaces")),
        get(NAMESPACE, Some("GetNamespace")),
        put(NAMESPACE, r#"{"coalesce_ms": 7000}"#),
        put(SEED, ARTICLE_EXAMPLE),
        get("/", None),
        get("/page.css", None),
        get("/page.js", None),
        get("/openapi.json", None),
        Row { method: Method::DELETE, path: NAMESPACE, rpc: Some("DeleteNamespace"), body: None, changes: true },
    ]
}

impl Row {
    /// The right that its RPC has in the table of rights.
    fn right(&self) -> Option<Right> {
        let of = |rpc: &str| METHODS.iter().find(|(_, name, _)| *name == rpc).map(|(_, _, right)| *right);
        self.rpc.map(|rpc| of(rpc).unwrap_or_else(|| panic!("{rpc} has no row in the table of rights")))
    }

    fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

struct Counters {
    server: Listening,
    http: Client,
}

impl Counters {
    async fn send(&self, method: &Method, path: &str, body: Option<&str>, token: Option<&str>) -> Response {
        let path = path.replace("{namespace}", "own").replace("{*counter}", "cats");
        let mut request = self.http.request(method.clone(), format!("http://{}{path}", self.server.address));
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_owned());
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.expect("an answer")
    }

    async fn call(&self, row: &Row, token: Option<&str>) -> Response {
        self.send(&row.method, row.path, row.body.as_deref(), token).await
    }

    async fn text(&self, method: Method, path: &str, body: Option<&str>, token: &str) -> String {
        let response = self.send(&method, path, body, Some(token)).await;
        response.text().await.expect("text")
    }

    /// What calls can change: the namespaces with their configurations, and the events of the counter.
    async fn state(&self, admin: &str) -> [String; 2] {
        let of_cats = r#"{"namespace": "own", "counter": "cats"}"#;
        [
            self.text(Method::GET, "/v1/namespaces", None, admin).await,
            self.text(Method::POST, "/v1/list_events", Some(of_cats), admin).await,
        ]
    }

    /// The methods of every path of the router.
    async fn served(&self, admin: &str) -> BTreeSet<String> {
        let unknown = Method::from_bytes(b"UNKNOWN").expect("a method");
        let mut served = BTreeSet::new();
        for path in tallystone_counters::api::http_paths() {
            let refused = self.send(&unknown, path, None, Some(admin)).await;
            served.extend(methods_of(&refused, path));
        }
        served
    }

    /// The calls in the description.
    async fn described(&self, admin: &str) -> BTreeSet<String> {
        let document = self.text(Method::GET, "/openapi.json", None, admin).await;
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let paths = document["paths"].as_object().expect("paths").iter();
        let calls =
            paths.flat_map(|(path, of)| of.as_object().expect("methods").keys().map(move |method| (method, path)));
        calls.map(|(method, path)| format!("{} {path}", method.to_uppercase())).collect()
    }
}

#[tokio::test]
async fn s4_every_route_of_the_counters_needs_a_credential_and_the_right_of_its_rpc() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let admin = principals.add("admin", &["admin:*"], ["", ""]);
    let other = principals.add("other", &["admin:other", "admin:own/*"], ["", ""]);
    let of_right = principals.add_for_each_right("own");
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    let server = place.start("counters", &["--principals", &path]).await;
    let counters = Counters { server, http: http_client() };
    let config = r#"{"counter_type": "ACCURATE"}"#;
    assert_eq!(
        counters.send(&Method::PUT, "/v1/namespaces/{namespace}", Some(config), Some(&admin)).await.status(),
        200
    );

    let rows = rows();
    let names: BTreeSet<String> = rows.iter().map(Row::name).collect();
    assert_eq!(names.len(), rows.len());
    assert_eq!(counters.served(&admin).await, names, "each route has a row of this test");
    let of_rpcs: BTreeSet<String> =
        rows.iter().filter(|row| row.rpc.is_some()).map(|row| row.name().replace("{*", "{")).collect();
    assert_eq!(counters.described(&admin).await, of_rpcs, "the description has each call");
    for row in &rows {
        let (name, before) = (row.name(), counters.state(&admin).await);
        for token in [None, Some("ts_a_b")] {
            let refused = counters.call(row, token).await;
            assert_eq!(refused.status(), 401, "{name} with {token:?}");
            assert_eq!(refused.headers()[WWW_AUTHENTICATE], "Bearer", "{name} with {token:?}");
        }
        let Some(right) = row.right() else {
            assert_eq!(counters.call(row, Some(&other)).await.status(), 200, "{name} with an identity");
            continue;
        };
        let [only, all_but] = &of_right[right.name()];
        let others = of_right.iter().filter(|(of, _)| **of != right.name()).map(|(_, [only, _])| only);
        for token in [&other, all_but].into_iter().chain(others) {
            let refused = counters.call(row, Some(token)).await;
            if row.rpc == Some("ListNamespaces") {
                assert_eq!(refused.status(), 200, "{name}");
                assert_eq!(refused.text().await.expect("text"), r#"{"namespaces":[]}"#, "{name}");
                continue;
            }
            assert_eq!(refused.status(), 403, "{name}, which needs {right}");
            let refused: Value = serde_json::from_str(&refused.text().await.expect("text")).expect("JSON");
            assert_eq!(refused["error"]["reason"], "NO_RIGHT", "{name}");
            if row.method == Method::GET {
                let head = counters.send(&Method::HEAD, row.path, None, Some(token)).await;
                assert_eq!(head.status(), 403, "HEAD {}", row.path);
            }
        }
        assert_eq!(counters.state(&admin).await, before, "a refused {name} has changed something");
        let allowed = counters.call(row, Some(only)).await.status().as_u16();
        let expected = if row.rpc == Some("RecountCounter") { 404 } else { 200 };
        assert_eq!(allowed, expected, "{name} with {right} alone");
        // So the state above would have shown it.
        assert_eq!(counters.state(&admin).await != before, row.changes, "{name}");
    }
}

#[tokio::test]
async fn s4_heads_and_unknown_paths_of_the_counters_need_a_credential() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let any = principals.add("any", &["read:nothing"], ["", ""]);
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    let server = place.start("counters", &["--principals", &path]).await;
    let counters = Counters { server, http: http_client() };
    let status = async |method: &Method, path: &str, token: Option<&str>| {
        counters.send(method, path, None, token).await.status().as_u16()
    };
    for path in tallystone_counters::api::http_paths() {
        for method in [Method::HEAD, Method::OPTIONS, Method::PATCH] {
            assert_eq!(status(&method, path, None).await, 401, "{method} {path}");
        }
    }
    for path in ["/nothing", "/v1", "/v1/add_count/", "//v1/add_count", "/tallystone.counter.v1.Counters/AddCount"] {
        assert_eq!(status(&Method::POST, path, None).await, 401, "{path}");
    }
    assert_eq!(status(&Method::POST, "/nothing", Some(&any)).await, 404);
    for probe in ["/health", "/livez", "/readyz"] {
        assert_eq!(status(&Method::GET, probe, None).await, 200, "{probe}");
    }
}
