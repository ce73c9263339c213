//! S7: what a page in a browser reaches on the ports that the tests of the counters' HTTP do not start.

use super::secured::{Listening, Secured};
use reqwest::header::{CONTENT_TYPE, HOST, ORIGIN};
use reqwest::{RequestBuilder, Response};
use std::net::SocketAddr;
use tallystone_tests::http_client;

const VIEW: &str = r#"{"videoId":"cats","userId":"mia","timestamp":"2026-11-25T08:00:00Z"}"#;
const JSON: &str = "application/json";

async fn send(request: RequestBuilder) -> Response {
    request.send().await.expect("an answer")
}

/// The statuses of a page of metrics: under its address, under a name that was rebound to it, and for a foreign page.
async fn metrics(address: SocketAddr) -> [u16; 3] {
    let get = |path: &str| http_client().get(format!("http://{address}{path}"));
    let evil = format!("evil.example:{}", address.port());
    let page = send(get("/metrics")).await;
    assert_eq!(page.headers()["x-content-type-options"], "nosniff");
    assert_eq!(send(get("/livez").header(HOST, "probe.example")).await.status(), 200, "a probe may use any name");
    let rebound = send(get("/metrics").header(HOST, evil)).await;
    let status = rebound.status().as_u16();
    let text = rebound.text().await.expect("text");
    assert!(!text.contains("tallystone_connections"), "{text}");
    [
        page.status().as_u16(),
        status,
        send(get("/metrics").header(ORIGIN, "http://evil.example")).await.status().as_u16(),
    ]
}

#[tokio::test]
async fn s7_a_name_that_was_rebound_to_loopback_reads_no_metrics() {
    let place = Secured::new().await;
    for (verb, args) in [("server", &[][..]), ("views", &["--counters", "http://127.0.0.1:1"][..])] {
        let program = place.start(verb, args).await;
        assert_eq!(metrics(program.metrics).await, [200, 421, 403], "{verb}");
    }
}

#[tokio::test]
async fn s7_a_page_neither_counts_nor_reads_views() {
    let place = Secured::new().await;
    let views: Listening = place.start("views", &["--counters", "http://127.0.0.1:1"]).await;
    let url = |path: &str| format!("http://{}{path}", views.address);
    let status = async |request: RequestBuilder| send(request).await.status().as_u16();
    for path in ["/v1/views", "/default/v1/views", "/v1/views:batch"] {
        let post = |of: &str| http_client().post(url(path)).header(CONTENT_TYPE, of).body(VIEW);
        for of in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            assert_eq!(status(post(of)).await, 415, "{path}: {of}");
        }
        assert_eq!(status(http_client().post(url(path)).body(VIEW)).await, 415, "{path}: no type");
        assert_eq!(status(post(JSON).header(HOST, "evil.example")).await, 421, "{path}");
        for origin in ["http://evil.example", "null"] {
            assert_eq!(status(post(JSON).header(ORIGIN, origin)).await, 403, "{path}: {origin}");
        }
    }
    let read = || http_client().get(url("/v1/videos/cats/views"));
    assert_eq!(status(read().header(HOST, "evil.example")).await, 421);
    assert_eq!(status(read().header(ORIGIN, "http://evil.example")).await, 403);
    // The same calls of a program.
    assert_eq!(status(http_client().post(url("/v1/views")).header(CONTENT_TYPE, JSON).body(VIEW)).await, 202);
    assert_eq!(status(read()).await, 503, "no counters answer");
}
