//! What generic gRPC tools and Prometheus use: reflection, health, metrics.

use super::dev::Dev;
use std::net::{Ipv4Addr, TcpListener};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};

const SERVICES: [&str; 2] = ["tallystone.queue.v1.Queue", "tallystone.queue.v1.QueueAdmin"];

async fn reflect(channel: &Channel, request: MessageRequest) -> MessageResponse {
    let request = ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut client = ServerReflectionClient::new(channel.clone());
    let answer = client.server_reflection_info(tokio_stream::iter([request])).await.expect("reflection");
    let answer: Option<ServerReflectionResponse> = answer.into_inner().message().await.expect("an answer");
    answer.and_then(|answer| answer.message_response).expect("an answer")
}

#[tokio::test]
async fn reflection_health_and_metrics_are_served() {
    let metrics = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = metrics.local_addr().expect("a bound port");
    drop(metrics);
    let dir = TempDir::new().expect("a temporary folder");
    let dev = Dev::start_in(dir.path(), &["--metrics-listen", &address.to_string()]).await;
    let channel = Channel::from_shared(dev.url().to_owned()).expect("a good address");
    let channel = channel.connect().await.expect("a server that listens");

    let listed = reflect(&channel, MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
    let names: Vec<&str> = listed.service.iter().map(|service| service.name.as_str()).collect();
    for service in SERVICES {
        assert!(names.contains(&service), "{names:?}");
        let file = reflect(&channel, MessageRequest::FileContainingSymbol(service.to_owned())).await;
        let MessageResponse::FileDescriptorResponse(file) = file else { panic!("{file:?}") };
        assert!(!file.file_descriptor_proto.is_empty());
        let request = HealthCheckRequest { service: service.to_owned() };
        let health = HealthClient::new(channel.clone()).check(request).await.expect("health").into_inner();
        assert_eq!(health.status(), ServingStatus::Serving);
    }
    // The messages in the details of errors.
    for detail in ["google.rpc.ErrorInfo", "google.rpc.BadRequest"] {
        let file = reflect(&channel, MessageRequest::FileContainingSymbol(detail.to_owned())).await;
        assert!(matches!(file, MessageResponse::FileDescriptorResponse(_)), "{detail}: {file:?}");
    }
    let whole = HealthClient::new(channel).check(HealthCheckRequest::default()).await.expect("health");
    assert_eq!(whole.into_inner().status(), ServingStatus::Serving);

    dev.ok(&["msg", "enqueue", "q"]).await;
    let mut page = TcpStream::connect(address).await.expect("metrics are served");
    page.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await.expect("a request");
    let mut text = String::new();
    page.read_to_string(&mut text).await.expect("a page");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    for sample in [r#"tallystone_rpc_calls_total{rpc="Enqueue",code="OK"} 1"#, "tallystone_store_available 1"] {
        assert!(text.contains(sample), "{sample}: {text}");
    }
    dev.stop().await;
}
