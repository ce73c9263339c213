//! Health, reflection, metrics, an orderly stop.

use crate::config::{QueueTemplates, ServerConfig, TenantConfigs};
use crate::testing::*;
use futures::{StreamExt, stream};
use std::sync::atomic::Ordering;
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::{Host, Ports};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

#[tokio::test]
async fn reflection_lists_and_describes_the_services() {
    let server = TestServer::start().await;
    let mut client = ServerReflectionClient::new(server.channel.clone());
    let request =
        |message_request| ServerReflectionRequest { host: String::new(), message_request: Some(message_request) };
    let requests = [
        request(MessageRequest::ListServices(String::new())),
        request(MessageRequest::FileContainingSymbol("tallystone.queue.v1.Queue".to_owned())),
    ];
    let answers = client.server_reflection_info(stream::iter(requests)).await.unwrap().into_inner();
    let answers: Vec<_> = answers.map(|answer| answer.unwrap().message_response.unwrap()).collect().await;
    let MessageResponse::ListServicesResponse(list) = &answers[0] else { panic!("{answers:?}") };
    let names: Vec<&str> = list.service.iter().map(|service| service.name.as_str()).collect();
    for name in ["tallystone.queue.v1.Queue", "tallystone.queue.v1.QueueAdmin", "grpc.health.v1.Health"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(
        matches!(&answers[1], MessageResponse::FileDescriptorResponse(files) if !files.file_descriptor_proto.is_empty())
    );
}

#[tokio::test]
async fn health_follows_the_store() {
    let mut server = TestServer::start().await;
    let mut client = HealthClient::new(server.channel.clone());
    let request = HealthCheckRequest { service: "tallystone.queue.v1.Queue".to_owned() };
    let mut watch = client.watch(request).await.unwrap().into_inner();
    let is = async |watch: &mut tonic::Streaming<HealthCheckResponse>, expected: ServingStatus| {
        let until = async { while watch.message().await.unwrap().unwrap().status() != expected {} };
        tokio::time::timeout(SOON, until).await.expect("in time");
    };
    is(&mut watch, ServingStatus::Serving).await;
    server.store.away.store(true, Ordering::SeqCst);
    assert!(server.queue.dequeue(dequeue("q", 1, 0)).await.is_err());
    is(&mut watch, ServingStatus::NotServing).await;
    server.store.away.store(false, Ordering::SeqCst);
    is(&mut watch, ServingStatus::Serving).await;
}

#[tokio::test]
async fn metrics_are_served() {
    // Any free port: the exporter binds what it is given, so it is found first.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let host = Host::with_metrics(Some(port), crate::BUCKETS, &Ports::default()).unwrap();
    let mut server = TestServer::start_with(host, TestStore::new(), QueueTemplates::default()).await;
    server.enqueue("q", &["a"]).await;
    assert!(server.queue.enqueue(pb::EnqueueRequest::default()).await.is_err());
    let mut stream = tokio::net::TcpStream::connect(port).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    // Other tests of this process are counted as well.
    let refused = "tallystone_rpc_calls_total{rpc=\"Enqueue\",code=\"INVALID_ARGUMENT\"} ";
    let refused = page.lines().find_map(|line| line.strip_prefix(refused)?.parse::<u64>().ok());
    assert!(refused >= Some(1), "{refused:?} refused calls in\n{page}");
    for line in [
        "tallystone_rpc_calls_total{rpc=\"Enqueue\",code=\"OK\"}",
        "tallystone_combined_items_bucket{verb=\"enqueue\"",
        "tallystone_store_available 1",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

#[tokio::test]
async fn a_stop_answers_who_waits() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let mut queue = server.queue.clone();
    let waiting = tokio::spawn(async move { queue.dequeue(dequeue("q", 1, 300_000)).await });
    server.store.called("dequeue", 1).await;
    server.stop();
    assert_eq!(waiting.await.unwrap().unwrap().into_inner().leases, []);
    server.stopped().await.unwrap();
}

#[tokio::test]
async fn bad_configurations_are_refused() {
    let config = ServerConfig { sweeper_leader_lease_ms: 0, ..ServerConfig::default() };
    let attached = crate::attach_queue(
        Host::new(),
        TestStore::new(),
        &config,
        QueueTemplates::default(),
        &TenantConfigs::default(),
    );
    assert!(attached.is_err_and(|error| error.field == "server.sweeper_leader_lease_ms"));
}

/// The answer over HTTP/1.
async fn http_1(server: &TestServer, request: &str) -> String {
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_port_speaks_http_1_too() {
    let server = TestServer::start().await;
    let answer = http_1(&server, "GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 404") && answer.contains("\"reason\":\"PATH_NOT_FOUND\""), "{answer}");
}

#[tokio::test]
async fn s7_a_page_cannot_call_the_queue_over_http_1() {
    let server = TestServer::start().await;
    // An empty message, as gRPC frames it.
    let call = |headers: &str| {
        format!(
            "POST /tallystone.queue.v1.QueueAdmin/ListQueues HTTP/1.1\r\n{headers}\r\nContent-Type: text/plain\r\n\
             Content-Length: 5\r\nConnection: close\r\n\r\n\0\0\0\0\0"
        )
    };
    for (headers, status) in [
        ("Host: localhost\r\nOrigin: http://evil.example", "HTTP/1.1 403"),
        ("Host: evil.example\r\nOrigin: http://evil.example", "HTTP/1.1 421"),
        ("Host: localhost", "HTTP/1.1 200"),
    ] {
        let answer = http_1(&server, &call(headers)).await;
        assert!(answer.starts_with(status), "{headers}: {answer}");
    }
}
