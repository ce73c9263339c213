//! What a browser can send to the port, and what it gets (S7): foreign hosts and origins, content types, calls of gRPC
//! services over HTTP/1, the headers of answers.

use super::http::{Http, fault};
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use reqwest::{Method, RequestBuilder, Response};
use serde_json::Value;
use std::collections::BTreeSet;
use tallystone_assembly::{AllInOne, Config, Listeners, counters};
use tallystone_proto::counter::v1 as wire;
use tallystone_proto::counter::v1::counters_client::CountersClient;
use tallystone_serving::Running;
use tallystone_tests::{TestRedis, http_client};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::Endpoint;

const ADD: &str = r#"{"namespace":"my_dataset","counter":"c","delta":2}"#;
const DELETE_NAMESPACE: &str = "/tallystone.counter.v1.CounterAdmin/DeleteNamespace";

/// The name in the configuration of these tests.
const NAME: &str = "Counters.example";

impl Http {
    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.house.urls[0]))
    }

    fn add(&self) -> RequestBuilder {
        self.request(Method::POST, "/v1/add_count").body(ADD)
    }

    /// A gRPC message `DeleteNamespaceRequest` as a page would send it.
    fn delete_namespace(&self, namespace: &str) -> RequestBuilder {
        let length = namespace.len() as u8;
        let message = [&[0, 0, 0, 0, length + 2, 0x0a, length], namespace.as_bytes()].concat();
        self.request(Method::POST, DELETE_NAMESPACE).header(CONTENT_TYPE, "text/plain").body(message)
    }
}

async fn send(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

/// Status, code and reason.
async fn refusal(request: RequestBuilder) -> (u16, String, String) {
    let response = send(request).await;
    let status = response.status().as_u16();
    let body: Value = response.json().await.expect("JSON");
    let (code, reason, _) = fault(&body);
    (status, code.to_owned(), reason.to_owned())
}

fn refused(status: u16, code: &str, reason: &str) -> (u16, String, String) {
    (status, code.to_owned(), reason.to_owned())
}

#[tokio::test]
async fn s7_a_name_that_was_rebound_to_this_port_reaches_nothing() {
    let http = Http::start().await;
    let port = http.house.urls[0].rsplit_once(':').expect("a port").1.to_owned();
    let bad_host = refused(421, "PERMISSION_DENIED", "BAD_HOST");
    let evil = format!("evil.example:{port}");
    // The page and the port have the same origin, as the browser sees it.
    let as_page = |request: RequestBuilder| request.header(HOST, &evil).header(ORIGIN, format!("http://{evil}"));
    assert_eq!(refusal(as_page(http.add().header(CONTENT_TYPE, "application/json"))).await, bad_host);
    assert_eq!(refusal(as_page(http.delete_namespace("my_dataset"))).await, bad_host);
    for path in ["/", "/page.js", "/openapi.json", "/v1/namespaces", "/v1/namespaces/my_dataset/counters/c", "/nothing"]
    {
        assert_eq!(refusal(http.request(Method::GET, path).header(HOST, &evil)).await, bad_host, "{path}");
    }
    assert_eq!(http.count("c").await, 0);
    let mut expected = 0;
    for host in ["127.0.0.1", "localhost", "counters.localhost", "[::1]", "10.0.0.5", "counters.EXAMPLE"] {
        let add = http.add().header(CONTENT_TYPE, "application/json").header(HOST, format!("{host}:{port}"));
        assert_eq!(send(add).await.status(), 200, "{host}");
        expected += 2;
    }
    assert_eq!(http.count("c").await, expected);
    assert_eq!(send(http.request(Method::GET, "/health").header(HOST, "probe.example")).await.status(), 200);
}

#[tokio::test]
async fn s7_a_body_that_needs_no_preflight_is_refused() {
    let http = Http::start().await;
    let bad_type = refused(415, "INVALID_ARGUMENT", "BAD_CONTENT_TYPE");
    let types = ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "multipart/form-data"];
    for of in types {
        assert_eq!(refusal(http.add().header(CONTENT_TYPE, of)).await, bad_type, "{of}");
        let put = http.request(Method::PUT, "/v1/namespaces/new").body("{}").header(CONTENT_TYPE, of);
        assert_eq!(refusal(put).await, bad_type, "{of}");
    }
    assert_eq!(refusal(http.add()).await, bad_type, "a page can send a body without a type");
    assert_eq!(http.count("c").await, 0);
    let (status, answer) = http.call(Method::GET, "/v1/namespaces/new", "").await;
    assert_eq!((status, fault(&answer).1), (404, "NAMESPACE_NOT_FOUND"));
    let json = http.add().header(CONTENT_TYPE, "application/json; charset=utf-8");
    assert_eq!(send(json).await.status(), 200);
    assert_eq!(http.count("c").await, 2);
}

#[tokio::test]
async fn s7_a_connection_survives_the_refusal_of_a_large_body() {
    let http = Http::start().await;
    let address = http.house.urls[0].strip_prefix("http://").expect("an address");
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    let body = "a".repeat(1024 * 1024);
    let add = format!("POST /v1/add_count HTTP/1.1\r\nHost: {address}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let next = format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all((add + &next).as_bytes()).await.expect("two requests");
    let mut answers = String::new();
    connection.read_to_string(&mut answers).await.expect("two answers");
    let statuses: Vec<&str> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["415", "200"]);
}

#[tokio::test]
async fn s7_a_page_cannot_call_grpc_services_over_http_1() {
    let http = Http::start().await;
    let bad_origin = refused(403, "PERMISSION_DENIED", "BAD_ORIGIN");
    for origin in ["https://evil.example", "null"] {
        assert_eq!(refusal(http.delete_namespace("my_dataset").header(ORIGIN, origin)).await, bad_origin, "{origin}");
    }
    let (status, _) = http.call(Method::GET, "/v1/namespaces/my_dataset", "").await;
    assert_eq!(status, 200);
    // The same bytes of a program: what the page sent was a valid call.
    let deleted = send(http.delete_namespace("my_dataset")).await;
    assert_eq!((deleted.status().as_u16(), deleted.headers().get("grpc-status")), (200, None));
    let (status, _) = http.call(Method::GET, "/v1/namespaces/my_dataset", "").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn s7_grpc_is_served_under_any_name() {
    let http = Http::start().await;
    let endpoint = Endpoint::from_shared(http.house.urls[0].clone()).expect("a good address");
    let channel = endpoint.origin("http://counters.internal:7610".parse().expect("an address")).connect().await;
    let mut client = CountersClient::new(channel.expect("a server that listens"));
    let request = wire::AddCountRequest {
        namespace: "my_dataset".to_owned(),
        counter: "c".to_owned(),
        delta: 3,
        ..wire::AddCountRequest::default()
    };
    let answer = client.add_count(request).await.expect("a counted add");
    assert_eq!(answer.metadata().get("x-content-type-options"), None, "the answer of gRPC is unchanged");
    assert_eq!(http.count("c").await, 3);
}

#[tokio::test]
async fn s7_the_page_runs_under_a_policy_that_allows_nothing_inline() {
    let http = Http::start().await;
    let header = |response: &Response, name: &str| {
        response.headers().get(name).map(|value| value.to_str().expect("text").to_owned()).unwrap_or_default()
    };
    let page = send(http.request(Method::GET, "/")).await;
    assert_eq!(header(&page, "content-security-policy"), "default-src 'self'; frame-ancestors 'none'");
    assert_eq!(header(&page, "x-frame-options"), "DENY");
    let requests = [
        http.request(Method::GET, "/"),
        http.request(Method::GET, "/page.js"),
        http.request(Method::GET, "/page.css"),
        http.request(Method::GET, "/openapi.json"),
        http.request(Method::GET, "/health"),
        http.request(Method::GET, "/nothing"),
        http.request(Method::PATCH, "/"),
        http.request(Method::GET, "/v1/namespaces/my_dataset/counters/c"),
        http.add(),
        http.add().header(ORIGIN, "null"),
        http.add().header(HOST, "evil.example"),
    ];
    for request in requests {
        let answer = send(request).await;
        let headers = (header(&answer, "x-content-type-options"), header(&answer, "cache-control"));
        assert_eq!(headers, ("nosniff".to_owned(), "no-store".to_owned()), "{} {}", answer.status(), answer.url());
    }
    let page = page.text().await.expect("text");
    let sources: BTreeSet<&str> = page.split("<script").skip(1).filter_map(|rest| rest.split('"').nth(1)).collect();
    assert_eq!(sources, BTreeSet::from(["/page.js"]), "each script is a file");
    assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick"), "{page}");
    for (path, of) in [("/page.js", "text/javascript"), ("/page.css", "text/css")] {
        assert!(page.contains(&format!("\"{path}\"")), "{page}");
        let file = send(http.request(Method::GET, path)).await;
        assert!(header(&file, "content-type").starts_with(of), "{path}");
        let text = file.text().await.expect("text");
        // What the policy would not run or load.
        for forbidden in ["http://", "https://", "eval(", "Function(", "setAttribute(\"style", "innerHTML", "@import"] {
            assert!(!text.contains(forbidden), "{path}: {forbidden}");
        }
    }
}

#[tokio::test]
async fn s7_the_setting_http_hosts_reaches_each_process_that_serves_counters() {
    let redis = TestRedis::start().await;
    let mut config = Config::default();
    config.redis.url = redis.url();
    config.redis.allow_volatile = true;
    config.counters.http_hosts = vec![NAME.to_owned()];
    let listener = async || TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let host = counters(&config).await.expect("a host of counters");
    let alone = Running::start(host, listener().await).expect("a bound port");
    let listeners = Listeners { queue: listener().await, counters: listener().await };
    let together = AllInOne::start(&config, listeners).await.expect("all in one");
    let client = http_client();
    for url in [alone.url(), together.counters_url()] {
        for (host, expected) in [("counters.example", 200), ("counters.example:443", 200), ("other.example", 421)] {
            let answer = send(client.get(format!("{url}/v1/namespaces")).header(HOST, host)).await;
            assert_eq!(answer.status(), expected, "{host}");
        }
    }
    alone.stop().await.expect("an orderly stop");
    together.stop().await.expect("an orderly stop");
}
