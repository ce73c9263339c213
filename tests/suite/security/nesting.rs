//! S1: configurations and bodies that nest thousands of levels deep, sent to a process: its stack is finite.

use super::bounds::GROWTH_KIB_MAX;
use super::secured::{Secured, refused};
use super::victim::{memory_kib, peak_memory_kib};
use crate::system::program::SOON;
use tallystone_client::{Code, CounterClient, CounterType, NamespaceConfig, NewAdd};
use tallystone_counters::namespace::ARTICLE_EXAMPLE;
use tallystone_tests::http_client;
use tokio::time::timeout;

const DEPTH: usize = 5_000;

fn nested(open: &str, close: &str) -> String {
    format!("{}1{}", open.repeat(DEPTH), close.repeat(DEPTH))
}

#[tokio::test]
async fn s1_what_nests_deeply_is_refused_over_http_and_grpc_and_the_process_lives() {
    let place = Secured::new().await;
    let counters = place.start("counters", &["--server", "http://127.0.0.1:1"]).await;
    let views = place.start("views", &["--counters", "http://127.0.0.1:1"]).await;
    let url = format!("http://{}", counters.address);
    let client = CounterClient::connect(&url).await.expect("the counters");
    let http = http_client();
    let send = async |method: reqwest::Method, url: String, body: String| {
        let request = http.request(method, url).header("content-type", "application/json").body(body);
        request.send().await.expect("an answer").status().as_u16()
    };
    let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..NamespaceConfig::default() };
    client.put_namespace("n", config).await.expect("a namespace");
    let innocent = async || {
        client.add("n", NewAdd::new("c", 2)).await.expect("it counts");
        let view = r#"{"videoId":"v","userId":"u","timestamp":"2026-11-25T08:00:00Z"}"#.to_owned();
        assert_eq!(send(reqwest::Method::POST, format!("http://{}/v1/views", views.address), view).await, 202);
    };
    innocent().await;
    let processes = [&counters, &views].map(|of| of.process.pid());
    let before = processes.map(memory_kib);
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let scope = format!(r#""id": "CACHE", "scope": {},"#, nested(open, close));
        let configuration = ARTICLE_EXAMPLE.replacen(r#""id": "CACHE","#, &scope, 1);
        assert!(configuration.len() > DEPTH);
        let by_grpc = refused(client.put_persistence_configuration("n", &configuration).await);
        assert_eq!(by_grpc.0, Code::InvalidArgument);
        let put = format!("{url}/v1/namespaces/n/persistence_configuration");
        assert_eq!(send(reqwest::Method::PUT, put, configuration).await, 400);
        // Bodies that name no such field nest as deeply as they like.
        let body = format!(r#"{{"namespace":"n","counter":"c","delta":{}}}"#, nested(open, close));
        assert_eq!(send(reqwest::Method::POST, format!("{url}/v1/add_count"), body).await, 400);
        for path in ["/v1/views", "/v1/views:batch"] {
            let body = format!(r#"{{"views":{}}}"#, nested(open, close));
            assert_eq!(send(reqwest::Method::POST, format!("http://{}{path}", views.address), body).await, 400);
        }
        timeout(SOON, innocent()).await.expect("both serve another caller");
    }
    for (pid, before) in processes.into_iter().zip(before) {
        let grown = peak_memory_kib(pid).saturating_sub(before);
        println!("{DEPTH} levels: {grown} KiB");
        assert!(grown < GROWTH_KIB_MAX, "{grown} KiB");
    }
}
