//! Traces over OTLP (O2): a collector in the test gets the spans of real processes.

use super::dev::Dev;
use super::program::{self, Running, SOON};
use nix::sys::signal::Signal;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::Span;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tallystone_client::{Client, Dequeue};
use tallystone_proto::TraceContext;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_proto::queue::v1::{EnqueueRequest, NewMessage};
use tallystone_tests::Polling;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PRODUCER: &str = "b7ad6b7169203331";
const ENQUEUE: &str = "tallystone.queue.v1.Queue/Enqueue";
const COMPLETE: &str = "tallystone.queue.v1.Queue/Complete";
/// How long a process may take to end while its collector is unavailable: a few seconds, on a busy machine.
const PROMPTLY: Duration = Duration::from_secs(30);

/// The `traceparent` of the producer.
fn producer() -> String {
    format!("00-{TRACE}-{PRODUCER}-01")
}

/// A collector, and what it has got.
#[derive(Clone, Default)]
struct Collector {
    /// Each span with the name of its service.
    spans: Arc<Mutex<Vec<(String, Span)>>>,
    /// What the calls had in the header `authorization`.
    tokens: Arc<Mutex<BTreeSet<String>>>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        if let Some(token) = request.metadata().get("authorization") {
            self.tokens.lock().expect("no panic").insert(token.to_str().expect("text").to_owned());
        }
        let mut spans = self.spans.lock().expect("no panic");
        for of_process in request.into_inner().resource_spans {
            let resource = of_process.resource.expect("a resource");
            let service = attribute(&resource.attributes, "service.name");
            let of_scopes = of_process.scope_spans.into_iter().flat_map(|scope| scope.spans);
            spans.extend(of_scopes.map(|span| (service.clone(), span)));
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts it, and returns its address.
    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound port");
        let service = TraceServiceServer::new(self.clone());
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
        format!("http://{address}")
    }

    /// The only span of the producer's trace with this name and queue.
    fn span(&self, name: &str, queue: &str) -> (String, Span) {
        let spans = self.spans.lock().expect("no panic");
        let is_it = |span: &Span| {
            let of_queue = attribute(&span.attributes, "messaging.destination.name") == queue;
            span.name == name && of_queue && hex(&span.trace_id) == TRACE
        };
        let found: Vec<_> = spans.iter().filter(|(_, span)| is_it(span)).collect();
        let all: Vec<_> = spans.iter().map(|(_, span)| (&span.name, hex(&span.trace_id))).collect();
        assert_eq!(found.len(), 1, "{name} of {queue} in {all:?}");
        found[0].clone()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of an attribute as text; empty: there is none.
fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let attribute = attributes.iter().find(|attribute| attribute.key == key);
    match attribute.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        Some(other) => format!("{other:?}"),
        None => String::new(),
    }
}

/// A `dev` that sends its traces to this address.
async fn dev(dir: &TempDir, endpoint: &str) -> Dev {
    let file = dir.path().join("t.toml");
    std::fs::write(&file, format!("[telemetry]\notlp_endpoint = '{endpoint}'\n")).expect("a file");
    Dev::start_in(dir.path(), &["--config", file.to_str().expect("a plain path")]).await
}

/// Enqueues a message in the trace that the environment names.
async fn enqueue(dev: &Dev, environment: &[(&str, &str)], args: &[&str]) {
    let mut command = program::command(&[&["--server", dev.url(), "msg", "enqueue"], args].concat());
    command.envs(environment.iter().copied());
    let ended = program::run(command, "").await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[tokio::test]
async fn o2_the_token_of_a_collector_is_read_from_its_file_for_each_batch() {
    let (collector, dir) = (Collector::default(), TempDir::new().expect("a temporary folder"));
    let endpoint = collector.start().await;
    let [config, headers] = ["t.toml", "headers"].map(|name| dir.path().join(name));
    let section = |headers: &std::path::Path| {
        let headers = headers.display();
        format!("[telemetry]\notlp_endpoint = '{endpoint}'\notlp_headers_file = '{headers}'\n")
    };
    std::fs::write(&config, section(&headers)).expect("a file");
    std::fs::write(&headers, "\nauthorization: Bearer first\nX-Scope: a\n").expect("a file");
    let dev = Dev::start_in(dir.path(), &["--config", config.to_str().expect("a plain path")]).await;
    for token in ["Bearer first", "Bearer second"] {
        std::fs::write(&headers, format!("authorization: {token}\n")).expect("a file");
        let (give_up_at, polling) = (Instant::now() + SOON, Polling::begin());
        while !collector.tokens.lock().expect("no panic").contains(token) {
            assert!(Instant::now() < give_up_at, "no batch has {token}");
            dev.ok(&["msg", "enqueue", "q"]).await;
            polling.pause().await;
        }
    }
    dev.stop().await;
    std::fs::write(&headers, "authorization: Bearer first\nBearer secret\n").expect("a file");
    let file = headers.to_str().expect("a plain path");
    let command = program::command(&["queue", "ls", "--otlp-endpoint", &endpoint, "--otlp-headers-file", file]);
    let refused = program::run(command, "").await;
    assert!(refused.code == Some(2) && refused.stderr.contains("line 2"), "{refused:?}");
    assert!(!refused.stderr.contains("secret"), "{refused:?}");
}

#[tokio::test]
async fn o2_a_trace_runs_from_the_producer_to_the_completion() {
    let (collector, dir) = (Collector::default(), TempDir::new().expect("a temporary folder"));
    let endpoint = collector.start().await;
    let dev = dev(&dir, &endpoint).await;
    dev.ok(&["queue", "create", "q"]).await;
    enqueue(&dev, &[("TRACEPARENT", &producer()), ("TRACESTATE", "a=1")], &["q", "--id", "m"]).await;

    // The command enqueues the next step: it belongs to the same trace.
    let script = r#""$TALLYSTONE_PROGRAM" msg enqueue next --id m2 && echo "$TRACEPARENT $TRACESTATE""#;
    let mut work =
        program::command(&["--server", dev.url(), "--otlp-endpoint", &endpoint, "work", "q", "--exec", script]);
    work.env("TALLYSTONE_PROGRAM", program::path()).env("TALLYSTONE_SERVER", dev.url());
    let mut worker = Running::start(work);
    let mut seen = worker.line().await;
    while !seen.starts_with("00-") {
        seen = worker.line().await;
    }
    assert!(worker.stop().await.success());
    assert_eq!(dev.ok(&["msg", "get", "q", "m"]).await["state"], "completed");
    dev.stop().await;

    let (service, enqueued) = collector.span(ENQUEUE, "q");
    assert_eq!((service.as_str(), hex(&enqueued.parent_span_id).as_str()), ("tallystone-dev", PRODUCER));
    for (key, value) in [
        ("rpc.system", "grpc"),
        ("rpc.service", "tallystone.queue.v1.Queue"),
        ("rpc.method", "Enqueue"),
        ("rpc.grpc.status_code", "0"),
        ("messaging.system", "tallystone"),
        ("messaging.batch.message_count", "1"),
    ] {
        assert_eq!(attribute(&enqueued.attributes, key), value, "{key}");
    }
    let (service, process) = collector.span("process q", "q");
    assert_eq!((service.as_str(), &process.parent_span_id), ("tallystone", &enqueued.span_id));
    assert_eq!(attribute(&process.attributes, "messaging.message.id"), "m");
    assert_eq!(attribute(&process.attributes, "tallystone.outcome"), "completed");
    assert!(process.end_time_unix_nano > process.start_time_unix_nano);
    assert_eq!(seen, format!("00-{TRACE}-{}-01 a=1", hex(&process.span_id)), "what the command saw");
    let (_, next) = collector.span(ENQUEUE, "next");
    assert_eq!(next.parent_span_id, process.span_id);
    assert!(next.start_time_unix_nano >= process.start_time_unix_nano);
    assert!(next.end_time_unix_nano <= process.end_time_unix_nano, "the span ends with the confirmed completion");
}

#[tokio::test]
async fn o2_unary_calls_carry_the_trace_of_their_caller() {
    let (collector, dir) = (Collector::default(), TempDir::new().expect("a temporary folder"));
    let endpoint = collector.start().await;
    let dev = dev(&dir, &endpoint).await;
    let client = Client::connect(dev.url()).await.expect("a server");
    let message = tallystone_client::NewMessage::new("m", "");
    let first = TraceContext::parse(&producer(), None).expect("valid").remote().attach();
    client.enqueue("q", vec![message.clone()]).await.expect("accepted")[0].clone().expect("accepted");
    drop(first);
    let lease = client.dequeue(Dequeue::new("q")).await.expect("leases").remove(0);
    let sent = TraceContext::parse(&lease.metadata["traceparent"], None).expect("valid");
    let current = sent.remote().attach();
    client.complete("q", vec![lease.lease_ref().into()]).await.expect("an answer")[0].clone().expect("completed");
    drop(current);
    // A repetition from another trace is the same message.
    client.enqueue("q", vec![message]).await.expect("accepted")[0].clone().expect("no conflict");
    dev.stop().await;

    let (_, enqueued) = collector.span(ENQUEUE, "q");
    let (_, completed) = collector.span(COMPLETE, "q");
    assert_eq!(sent.traceparent, format!("00-{TRACE}-{}-01", hex(&enqueued.span_id)));
    assert_eq!(completed.parent_span_id, enqueued.span_id);
    assert_eq!(attribute(&completed.attributes, "messaging.batch.message_count"), "1");
}

#[tokio::test]
async fn o2_a_collector_that_is_unavailable_delays_nothing() {
    // One refuses connections, the other accepts them and never answers.
    let refusing = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("a port");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    for address in [refusing, silent.local_addr().expect("a port")] {
        let dir = TempDir::new().expect("a temporary folder");
        let endpoint = format!("http://{address}");
        let mut process = Running::start(Dev::command(dir.path(), &["--otlp-endpoint", &endpoint], &[]));
        let ready: serde_json::Value = serde_json::from_str(&process.line().await).expect("JSON");
        let client = Client::connect(ready["server"].as_str().expect("a URL")).await.expect("a server");
        // More spans than the process keeps for a collector.
        for n in 0..3_000 {
            let message = tallystone_client::NewMessage::new(format!("m{n}"), "");
            client.enqueue("q", vec![message]).await.expect("accepted")[0].clone().expect("accepted");
        }
        let stopping = Instant::now();
        process.signal(Signal::SIGTERM);
        let said = process.last_words().await;
        assert!(process.ended().await.success());
        assert!(stopping.elapsed() < PROMPTLY.min(SOON), "{:?}", stopping.elapsed());
        assert_eq!(said.matches("the collector took no spans").count(), 1, "{said}");
    }
}

#[tokio::test]
async fn o2_a_trace_crosses_a_server_and_a_worker_without_telemetry() {
    let dev = Dev::start().await;
    dev.ok(&["queue", "create", "q"]).await;
    let (parent, other) = (producer(), producer().replace(PRODUCER, "00f067aa0ba902b7"));
    enqueue(&dev, &[("TRACEPARENT", &parent), ("TRACESTATE", "a=1")], &["q", "--id", "m", "--meta", "k=v"]).await;
    // The same message from another trace is the same message, with the first context.
    enqueue(&dev, &[("TRACEPARENT", &other)], &["q", "--id", "m", "--meta", "k=v"]).await;
    let metadata = dev.ok(&["msg", "get", "q", "m"]).await["metadata"].clone();
    assert_eq!(metadata, serde_json::json!({ "k": "v", "traceparent": &parent, "tracestate": "a=1" }));
    // A message keeps what its producer wrote.
    enqueue(&dev, &[("TRACEPARENT", &other)], &["q", "--id", "own", "--meta", &format!("traceparent={parent}")]).await;
    assert_eq!(dev.ok(&["msg", "get", "q", "own"]).await["metadata"]["traceparent"], parent.as_str());
    // Without a header, or with an invalid one, it gets none.
    let endpoint = Endpoint::from_shared(dev.url().to_owned()).expect("an address");
    let mut queue = QueueClient::new(endpoint.connect().await.expect("a server"));
    for (id, header) in
        [("none", None), ("bad", Some("00-not-a-trace")), ("zero", Some(&*other.replace(TRACE, &"0".repeat(32))))]
    {
        let message = NewMessage { id: id.to_owned(), ..NewMessage::default() };
        let mut request = Request::new(EnqueueRequest { queue: "q".to_owned(), messages: vec![message] });
        if let Some(header) = header {
            request.metadata_mut().insert("traceparent", header.parse().expect("a header"));
        }
        queue.enqueue(request).await.expect("accepted");
        assert_eq!(dev.ok(&["msg", "get", "q", id]).await["metadata"], serde_json::json!({}), "{id}");
    }

    // The worker has a context too, but its commands belong to the traces of their messages.
    let script = r#"echo "$TALLYSTONE_ID [$TRACEPARENT] [$TRACESTATE]""#;
    let mut work = program::command(&["--server", dev.url(), "work", "q", "--exec", script]);
    work.env("TRACEPARENT", &other).env("TRACESTATE", "b=2");
    let mut worker = Running::start(work);
    assert_eq!(worker.line().await, format!("m [{parent}] [a=1]"));
    assert_eq!(worker.line().await, format!("own [{parent}] []"));
    assert_eq!(worker.line().await, "none [] []");
    assert!(worker.stop().await.success());
    dev.stop().await;
}
