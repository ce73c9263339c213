//! S5: the audit log has a line for each call that changes more than messages and counts, and for each refused caller.

use super::secured::{Listening, Principals, Secured, refused};
use crate::system::program::{self, Running};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tallystone_client::{
    Applied, Cancellation, Client, Code, CounterClient, Error, NamespaceConfig, NewMessage, QueueConfig,
};
use tallystone_tests::{http_client, lasting_port};

fn lines(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("the audit log");
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The principal, the call, the right, the first name, the code and the reason of each line.
fn shown(path: &str) -> Vec<[String; 6]> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |line: &Value| {
        assert!(line["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
        assert_eq!(line["peer"], "127.0.0.1");
        let [principal, call, right, code, reason] =
            ["principal", "call", "right", "code", "reason"].map(|key| text(&line[key]));
        [principal, call, right, text(&line["names"][0]), code, reason]
    };
    lines(path).iter().map(line).collect()
}

struct Audited {
    place: Secured,
    audit: String,
    principals: String,
    operator: String,
    producer: String,
}

impl Audited {
    async fn new() -> Audited {
        let (place, mut principals) = (Secured::new().await, Principals::default());
        let operator = principals.add("operator", &["admin:*"], ["", ""]);
        let producer = principals.add("producer", &["produce:q", "read:q"], ["", ""]);
        let (audit, path) = (place.path("audit.log"), place.path("principals.toml"));
        principals.write(Path::new(&path));
        Audited { place, audit, principals: path, operator, producer }
    }

    async fn start(&self, verb: &str, more: &[&str]) -> Listening {
        let flags = ["--principals", &self.principals, "--audit-file", &self.audit];
        self.place.start(verb, &[&flags, more].concat()).await
    }
}

#[tokio::test]
async fn s5_the_audit_log_says_who_changed_what_and_who_was_refused() {
    let audited = Audited::new().await;
    let server = audited.start("server", &[]).await;
    let (operator, producer) = (server.client(&audited.operator), server.client(&audited.producer));
    operator.create_queue("q", QueueConfig::simple()).await.expect("a queue");
    producer.enqueue("q", vec![NewMessage::new("a", "secret payload")]).await.expect("an Enqueue");
    producer.get_queue("q").await.expect("a queue");
    assert_eq!(refused(producer.purge_queue("q", false).await).0, Code::PermissionDenied);
    let by_force = vec![Cancellation::of("a").force()];
    assert_eq!(refused(producer.cancel("q", by_force).await).0, Code::PermissionDenied);
    operator.purge_queue("q", false).await.expect("a purge");
    assert_eq!(refused(operator.delete_queue("absent", false).await).0, Code::NotFound);
    let stranger = server.client("ts_a_b");
    assert_eq!(refused(stranger.get_queue("q").await).0, Code::Unauthenticated);
    let expected = [
        ["operator", "CreateQueue", "create", "q", "OK", "-"],
        ["producer", "PurgeQueue", "purge", "q", "PERMISSION_DENIED", "NO_RIGHT"],
        ["producer", "Cancel", "operate", "q", "PERMISSION_DENIED", "NO_RIGHT"],
        ["operator", "PurgeQueue", "purge", "q", "OK", "-"],
        ["operator", "DeleteQueue", "purge", "absent", "NOT_FOUND", "QUEUE_NOT_FOUND"],
        ["-", "/tallystone.queue.v1.QueueAdmin/GetQueue", "-", "-", "UNAUTHENTICATED", "BAD_CREDENTIAL"],
    ];
    assert_eq!(shown(&audited.audit), expected.map(|line| line.map(str::to_owned)));
    let text = std::fs::read_to_string(&audited.audit).expect("the audit log");
    assert!(!text.contains("secret") && !text.contains("ts_"), "{text}");
}

#[tokio::test]
async fn s5_the_audit_log_of_a_container_is_its_standard_error() {
    let audited = Audited::new().await;
    let (url, address) = (audited.place.redis.url(), SocketAddr::from(([127, 0, 0, 1], lasting_port())));
    let mut command = program::command(&["server", "--log", "error", "--allow-volatile", "--redis-url", &url]);
    command.args(["--principals", &audited.principals, "--audit-file", "-", "--listen", &address.to_string()]);
    command.current_dir(audited.place.dir.path());
    let mut server = Running::start_logged(command);
    server.listens(address).await;
    let client = Client::builder(format!("http://{address}")).retry_for(Duration::ZERO).token(&audited.operator);
    let operator = client.connect().await.expect("the server");
    for name in ["a", "b"] {
        operator.create_queue(name, QueueConfig::simple()).await.expect("a queue");
        let line: Value = serde_json::from_str(&server.line().await).expect("a line of JSON");
        assert_eq!((&line["call"], &line["names"][0]), (&"CreateQueue".into(), &name.into()), "{line}");
    }
    assert!(!audited.place.dir.path().join("-").exists(), "it is no file");
    assert!(server.stop().await.success());
}

#[tokio::test]
async fn s5_calls_of_the_counters_are_recorded_over_grpc_and_http_and_on_request_all_of_them() {
    let audited = Audited::new().await;
    let config = audited.place.path("t.toml");
    std::fs::write(&config, "[audit]\nall_calls = true\n").expect("a file");
    let token_file = audited.place.token_file("t", &audited.operator);
    let server = audited.place.start("server", &["--principals", &audited.principals]).await;
    let url = format!("http://{}", server.address);
    let more = ["--config", &config, "--server", &url, "--token-file", &token_file];
    let counters = audited.start("counters", &more).await;
    let url = format!("http://{}", counters.address);
    let client = CounterClient::builder(url.clone()).token(audited.operator.clone()).connect().await.expect("a client");
    client.put_namespace("views", NamespaceConfig::default()).await.expect("a namespace");
    client.add("views", tallystone_client::NewAdd::new("cats", 1)).await.expect("an add");
    let http = http_client();
    let get = http.get(format!("{url}/v1/namespaces/views")).bearer_auth(&audited.operator).send().await;
    assert_eq!(get.expect("an answer").status(), 200);
    let denied = http.delete(format!("{url}/v1/namespaces/views")).bearer_auth(&audited.producer).send().await;
    assert_eq!(denied.expect("an answer").status(), 403);
    let expected = [
        ["operator", "PutNamespace", "count-admin", "views", "OK", "-"],
        ["operator", "AddCount", "count", "views", "OK", "-"],
        ["operator", "GetNamespace", "count-read", "views", "OK", "-"],
        ["producer", "DeleteNamespace", "count-admin", "views", "PERMISSION_DENIED", "NO_RIGHT"],
    ];
    assert_eq!(shown(&audited.audit), expected.map(|line| line.map(str::to_owned)));
}

#[tokio::test]
async fn s5_without_a_place_for_its_line_a_call_of_an_operator_is_refused() {
    let audited = Audited::new().await;
    let server = audited.start("server", &[]).await;
    let (operator, producer) = (server.client(&audited.operator), server.client(&audited.producer));
    let create = async |client: &Client, name: &str| client.create_queue(name, QueueConfig::simple()).await;
    create(&operator, "q").await.expect("a queue");
    // The path is no file any more, so the log cannot be opened again.
    std::fs::remove_file(&audited.audit).expect("the audit log");
    std::fs::create_dir(&audited.audit).expect("a folder");
    create(&operator, "first").await.expect("its line is lost, which only its end has shown");
    let second = create(&operator, "second").await;
    assert!(matches!(second, Err(Error::Unavailable { applied: Applied::No, .. })), "{second:?}");
    producer.enqueue("q", vec![NewMessage::new("a", "")]).await.expect("the work goes on");
    std::fs::remove_dir(&audited.audit).expect("a folder");
    create(&operator, "third").await.expect("a queue");
    let lines = lines(&audited.audit);
    assert_eq!((lines.len(), &lines[0]["names"][0], &lines[0]["lost"]), (1, &"third".into(), &1.into()));
    assert!(operator.get_queue("second").await.is_err());
}
