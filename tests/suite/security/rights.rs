//! S4: what a caller may do. The calls of every service are made with and without their right.

use super::secured::{Listening, Principals, Secured, refused};
use crate::system::program::until;
use bytes::Bytes;
use http::uri::PathAndQuery;
use std::path::Path;
use std::time::Duration;
use tallystone_client::{
    Cancellation, Code, Completion, CounterClient, DepthQuery, Dequeue, Error, GroupBy, NamespaceConfig, NewAdd,
    NewMessage, Queues, Search,
};
use tallystone_client::{Client, QueueConfig};
use tallystone_proto::queue::v1::EnqueueStreamResponse;
use tallystone_proto::queue::v1::enqueue_answer::Outcome;
use tallystone_serving::{METHODS, Right};
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;

/// The request of an RPC about the queue or the namespace `own/q`, without its outermost tag.
///
/// In most RPCs that is the text of field 1. The codec writes bytes as a message whose field 1 they are.
fn request(rpc: &str) -> Bytes {
    match rpc {
        // The start of the stream, and a message to repair, are messages whose field 1 is the queue.
        "Work" | "RepairMessages" => Bytes::from_static(b"\x0a\x05own/q"),
        // A call, whose field 1 is its number and field 2 the request.
        "EnqueueStream" => Bytes::from_static(b"\x08\x01\x12\x07\x0a\x05own/q"),
        _ => Bytes::from_static(b"own/q"),
    }
}

/// The request of an RPC with this token, its path, and what can send it.
async fn prepared(channel: &Channel, service: &str, rpc: &str, token: Option<&str>) -> Prepared {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.expect("a connection");
    let mut request = Request::new(tokio_stream::once(request(rpc)));
    request.set_timeout(Duration::from_secs(10));
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    }
    (grpc, request, format!("/{service}/{rpc}").parse().expect("a path"))
}

type Prepared = (Grpc<Channel>, Request<tokio_stream::Once<Bytes>>, PathAndQuery);

/// How an RPC fails; `None`: it does not.
async fn failure(channel: &Channel, service: &str, rpc: &str, token: Option<&str>) -> Option<Status> {
    let (mut grpc, request, path) = prepared(channel, service, rpc, token).await;
    match grpc.streaming(request, path, ProstCodec::<Bytes, ()>::default()).await {
        Err(status) => Some(status),
        Ok(response) => response.into_inner().message().await.err(),
    }
}

async fn code(channel: &Channel, service: &str, rpc: &str, token: Option<&str>) -> Code {
    // On a stream of Enqueues the first call fails, not the stream.
    if rpc == "EnqueueStream" {
        let (mut grpc, request, path) = prepared(channel, service, rpc, token).await;
        let answered = match grpc.streaming(request, path, ProstCodec::<Bytes, EnqueueStreamResponse>::default()).await
        {
            Err(status) => Err(status),
            Ok(response) => response.into_inner().message().await,
        };
        let code = |response: Option<EnqueueStreamResponse>| match response.expect("an answer").answers[0].outcome {
            Some(Outcome::Error(ref status)) => Code::from(status.code),
            ref outcome => panic!("an empty Enqueue is refused: {outcome:?}"),
        };
        return answered.map_or_else(|status| status.code(), code);
    }
    failure(channel, service, rpc, token).await.map_or(Code::Ok, |status| status.code())
}

async fn channel(server: &Listening) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    endpoint.connect().await.expect("a connection")
}

#[tokio::test]
async fn s4_every_rpc_needs_a_credential_and_its_right_on_what_it_is_about() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let admin = principals.add("admin", &["admin:own/*"], ["", ""]);
    let other = principals.add("other", &["admin:other/*", "admin:own", "admin:own/q/*"], ["", ""]);
    let tokens = principals.add_for_each_right("own/*");
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    let history = place.path("history.db");
    let queue = place.start("server", &["--principals", &path, "--history-file", &history]).await;
    let counters = place.start("counters", &["--principals", &path]).await;
    let [queue, counters] = [channel(&queue).await, channel(&counters).await];
    for (service, rpc, right) in METHODS {
        let channel = if service.contains("counter") { &counters } else { &queue };
        let code = async |token| code(channel, service, rpc, token).await;
        let [only, all_but] = &tokens[right.name()];
        assert_eq!(code(None).await, Code::Unauthenticated, "{rpc} without a token");
        assert_eq!(code(Some("ts_a_b")).await, Code::Unauthenticated, "{rpc} with an unknown token");
        let is_list = ["ListQueues", "ListNamespaces"].contains(rpc);
        let denied = if is_list { Code::Ok } else { Code::PermissionDenied };
        assert_eq!(code(Some(&other)).await, denied, "{rpc} with rights on other names");
        assert_eq!(code(Some(all_but)).await, denied, "{rpc} with all rights but {right}");
        // What a repair writes has fencing tokens.
        if *rpc != "RepairMessages" {
            assert_ne!(code(Some(only)).await, Code::PermissionDenied, "{rpc} with {right} alone");
        }
        for (of_other, [only, _]) in tokens.iter().filter(|(of_other, _)| **of_other != right.name()) {
            assert_eq!(code(Some(only)).await, denied, "{rpc} with {of_other}, not {right}");
        }
        let allowed = code(Some(&admin)).await;
        assert!(![Code::PermissionDenied, Code::Unauthenticated].contains(&allowed), "{rpc} with admin: {allowed:?}");
    }
}

#[tokio::test]
async fn s4_every_rpc_of_an_indexer_needs_a_credential_and_its_right() {
    const HISTORY: &str = "tallystone.history.v1.History";
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let admin = principals.add("admin", &["admin:own/*"], ["", ""]);
    let other = principals.add("other", &["admin:other/*"], ["", ""]);
    let tokens = principals.add_for_each_right("own/*");
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    // Nothing listens there: an allowed call fails later.
    let stores = ["--kafka-brokers", "127.0.0.1:1", "--elasticsearch-url", "http://127.0.0.1:1"];
    let indexer = place.start_with("indexer", &[&stores[..], &["--principals", &path]].concat()).await;
    let channel = channel(&indexer).await;
    let rows: Vec<_> = METHODS.iter().filter(|(service, _, _)| *service == HISTORY).collect();
    assert_eq!(rows.len(), 5);
    for (_, rpc, right) in rows {
        let failure = async |token| failure(&channel, HISTORY, rpc, token).await;
        for token in [None, Some("ts_a_b")] {
            let refused = failure(token).await.expect("a refusal");
            assert_eq!(refused.code(), Code::Unauthenticated, "{rpc} with {token:?}: {refused:?}");
        }
        let [only, all_but] = &tokens[right.name()];
        let others = tokens.iter().filter(|(of_other, _)| **of_other != right.name()).map(|(_, [only, _])| only);
        for token in [&other, all_but].into_iter().chain(others) {
            let refused = failure(Some(token.as_str())).await.expect("a refusal");
            assert_eq!(refused.code(), Code::PermissionDenied, "{rpc}, which needs {right}: {refused:?}");
            let reason = refused.get_details_error_info().expect("details").reason;
            assert_eq!(reason, "NO_RIGHT", "{rpc}, which needs {right}");
        }
        // For messages, a repair also needs `consume`.
        let allowed = if *rpc == "RepairMessages" { &admin } else { only };
        let code = failure(Some(allowed.as_str())).await.map_or(Code::Ok, |status| status.code());
        assert!(![Code::PermissionDenied, Code::Unauthenticated].contains(&code), "{rpc} with {right}: {code:?}");
    }
}

#[test]
fn s4_the_documents_table_of_rights_is_the_programs() {
    let page = include_str!("../../../docs/operations/security.md");
    let row = |right: &Right| {
        let begin = format!("| `{right}` | ");
        let rows: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix(begin.as_str())).collect();
        assert_eq!(rows.len(), 1, "{right}");
        // Its first sentence is the list.
        let list = rows[0].split('.').next().expect("some text").trim_end_matches(" |");
        list.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    for (_, rpc, right) in METHODS {
        assert!(row(right).iter().any(|listed| listed == rpc), "{rpc} is not in the row of {right}");
    }
    let listed: usize = Right::ALL.iter().map(|right| row(right).len()).sum();
    // Three rows have words instead of RPCs.
    assert_eq!(
        listed,
        METHODS.len() + row(&Right::Payload).len() + row(&Right::Metrics).len() + row(&Right::Admin).len()
    );
}

fn denied() -> (Code, String) {
    (Code::PermissionDenied, "NO_RIGHT".to_owned())
}

async fn start(place: &Secured, principals: &Principals, more: &[&str]) -> Listening {
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    place.start("server", &[&["--principals", &path], more].concat()).await
}

async fn enqueue(client: &Client, queue: &str, id: &str) -> Result<(), Error> {
    client
        .enqueue(queue, vec![NewMessage::new(id, "secret payload")])
        .await?
        .remove(0)
        .map(drop)
        .map_err(Error::Refused)
}

#[tokio::test]
async fn s4_who_may_only_read_sees_no_fencing_token_and_no_payload() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let reader = principals.add("reader", &["read:*"], ["", ""]);
    let worker = principals.add("worker", &["consume:*", "read:*", "payload:*", "produce:*", "create:*"], ["", ""]);
    let history = place.path("history.db");
    let server = start(&place, &principals, &["--history-file", &history]).await;
    let (reader, worker) = (server.client(&reader), server.client(&worker));
    enqueue(&worker, "q", "a").await.expect("an Enqueue");
    let lease = worker.dequeue(Dequeue::new("q")).await.expect("a lease").remove(0);
    let (seen, own) = (reader.get_message("q", "a").await.unwrap(), worker.get_message("q", "a").await.unwrap());
    assert_eq!((own.fencing_token, own.payload.is_empty()), (lease.fencing_token, false));
    assert_eq!((seen.fencing_token, seen.payload.is_empty(), &seen.id), (0, true, &own.id));
    let listed = reader.list_messages("q", tallystone_client::State::Running, 10, "").await.unwrap();
    assert_eq!((listed.items[0].fencing_token, listed.items[0].payload.is_empty()), (0, true));
    assert_eq!(reader.explain("q", "a").await.unwrap().message.fencing_token, 0);
    // History, once it has the lease.
    let give_up_at = tokio::time::Instant::now() + crate::system::program::SOON;
    loop {
        let trace = async |client: &Client| client.trace_message("q", "a", 0, 0, "").await;
        if let (Ok(seen), Ok(own)) = (trace(&reader).await, trace(&worker).await) {
            assert!(seen.transitions.iter().all(|transition| transition.fencing_token == 0));
            assert!(seen.message.is_none_or(|message| message.fencing_token == 0));
            if own.transitions.iter().any(|transition| transition.fencing_token == lease.fencing_token) {
                break;
            }
        }
        assert!(tokio::time::Instant::now() < give_up_at, "history has no lease");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The token of another's lease is of no use without the right, either.
    let complete = reader.complete("q", vec![Completion::of(lease.lease_ref())]).await;
    assert_eq!(refused(complete), denied());
}

#[tokio::test]
async fn s4_a_producer_creates_queues_of_templates_only() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let producer = principals.add("producer", &["produce:*"], ["", ""]);
    let creator = principals.add("creator", &["produce:*", "create:*"], ["", ""]);
    let config = place.path("t.toml");
    std::fs::write(&config, "[[queue_templates]]\nprefix = 'known/'\nconfig = {}\n").expect("a file");
    let server = start(&place, &principals, &["--config", &config]).await;
    let (producer, creator) = (server.client(&producer), server.client(&creator));
    assert_eq!(refused(enqueue(&producer, "free", "a").await).1, "QUEUE_NOT_FOUND");
    enqueue(&producer, "known/a", "a").await.expect("a queue of the template");
    enqueue(&creator, "free", "a").await.expect("a queue");
    enqueue(&producer, "free", "b").await.expect("the queue is there now");
    let force = Cancellation::of("a").force();
    assert_eq!(refused(producer.cancel("free", vec![force]).await), denied());
    producer.cancel("free", vec![Cancellation::of("a")]).await.expect("a Cancel")[0].as_ref().unwrap();
}

#[tokio::test]
async fn s4_lists_have_what_the_caller_may_read() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let admin = principals.add("admin", &["admin:*"], ["", ""]);
    let reader = principals.add("reader", &["read:a/*", "deny:read:a/2"], ["", ""]);
    let server = start(&place, &principals, &[]).await;
    for queue in ["a/1", "a/2", "b/1"] {
        server.client(&admin).create_queue(queue, QueueConfig::simple()).await.expect("a queue");
    }
    let names = async |token: &str| {
        let page = server.client(token).list_queues("", 100, "").await.expect("a list");
        page.items.into_iter().map(|summary| summary.queue.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&admin).await, ["a/1", "a/2", "b/1"]);
    assert_eq!(names(&reader).await, ["a/1"]);
    // A queue that cannot be read and one that is absent are answered alike.
    let of = async |queue: &str| match server.client(&reader).get_queue(queue).await {
        Err(Error::Refused(refused)) => (refused.reason, refused.message.replace(queue, "NAME")),
        other => panic!("no refusal: {other:?}"),
    };
    assert_eq!(of("b/1").await, of("b/9").await);
}

#[tokio::test]
async fn s4_the_pages_of_a_list_do_not_name_what_the_caller_may_not_read() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let admin = principals.add("admin", &["admin:*"], ["", ""]);
    let without_rights = principals.add("without", &[], ["", ""]);
    let reader = principals.add("reader", &["read:b/*", "deny:read:b/2"], ["", ""]);
    let server = start(&place, &principals, &[]).await;
    for queue in ["a/1", "a/2", "b/1", "b/2", "b/3", "c/1"] {
        server.client(&admin).create_queue(queue, QueueConfig::simple()).await.expect("a queue");
    }
    // All names of all pages, those of their tokens included.
    let named = async |token: &str| {
        let (client, mut page_token, mut named) = (server.client(token), String::new(), Vec::new());
        loop {
            let page = client.list_queues("", 1, &page_token).await.expect("a list");
            named.extend(page.items.into_iter().map(|summary| summary.queue.name));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return named;
            }
            named.push(format!("token {page_token}"));
        }
    };
    assert_eq!(named(&without_rights).await, Vec::<String>::new());
    assert_eq!(named(&reader).await, ["b/1", "token b/1", "b/3"]);
}

#[tokio::test]
async fn s4_history_of_internal_queues_needs_a_rule_for_them() {
    const INTERNAL: &str = "rollup/views/0of1";
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let counters = principals.add("counters", &["admin:rollup/*"], ["", ""]);
    let producer = principals.add("producer", &["produce:*", "create:*"], ["", ""]);
    let reader = principals.add("reader", &["read:*"], ["", ""]);
    let both = principals.add("both", &["read:*", "read:rollup/*"], ["", ""]);
    let (history, config) = (place.path("history.db"), place.path("t.toml"));
    std::fs::write(&config, "[outbox]\ninternal_queues = true\n").expect("a file");
    let server = start(&place, &principals, &["--history-file", &history, "--config", &config]).await;
    enqueue(&server.client(&producer), "q", "a").await.expect("an Enqueue");
    enqueue(&server.client(&counters), INTERNAL, "cats").await.expect("an Enqueue");
    let found = async |token: &str| {
        let found = server.client(token).search_messages(Search::default()).await.expect("an answer");
        let mut queues: Vec<String> = found.messages.into_iter().map(|message| message.queue).collect();
        queues.sort();
        queues
    };
    until("history has both messages", async || found(&both).await == ["q", INTERNAL]).await;
    assert_eq!(found(&reader).await, ["q"]);
    let depth = |prefix: &str| {
        let queues = Queues::WithPrefix(prefix.to_owned());
        DepthQuery { group_by: Some(GroupBy::Queue), ..DepthQuery::of(queues) }
    };
    let counted = async |token: &str, prefix: &str| {
        let answer = server.client(token).indexed_depth(depth(prefix)).await.expect("an answer");
        let queues: Vec<String> = answer.groups.into_iter().map(|group| group.value).collect();
        assert_eq!(answer.depth.pending, queues.len() as u64, "one message each");
        queues
    };
    for prefix in ["", "q", "r", "rollup"] {
        let of_all: Vec<&str> = ["q", INTERNAL].into_iter().filter(|queue| queue.starts_with(prefix)).collect();
        let of_users: Vec<&str> = of_all.iter().copied().filter(|queue| *queue != INTERNAL).collect();
        assert_eq!(counted(&both, prefix).await, of_all, "{prefix:?}");
        assert_eq!(counted(&reader, prefix).await, of_users, "{prefix:?}");
    }
    assert_eq!(counted(&both, "rollup/").await, [INTERNAL]);
    assert_eq!(refused(server.client(&reader).indexed_depth(depth("rollup/")).await), denied());
}

#[tokio::test]
async fn s4_only_the_counters_reach_their_queues_and_the_counts_arrive() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let attacker = principals.add("attacker", &["admin:*"], ["", ""]);
    let internal = principals.add("counters", &["admin:rollup/*"], ["", ""]);
    let counting = principals.add("counting", &["count:views", "count-read:views", "count-admin:views"], ["", ""]);
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    // All of it with TLS.
    let tls = place.tls();
    let flags = [&tls[..], &["--principals", &path]].concat();
    let queue = place.start("server", &flags).await;
    let (url, ca, token) = (queue.https(), place.ca.file.to_str().expect("text"), place.token_file("t", &internal));
    let calls = ["--server", &url, "--ca", ca, "--token-file", &token];
    let counters = place.start("counters", &[&flags[..], &calls].concat()).await;
    let _worker = place.start("rollup-worker", &[&flags[..], &calls].concat()).await;
    let builder = |token: &str| CounterClient::builder(counters.https()).ca_file(ca).token(token);
    let client = builder(&counting).connect().await.expect("the counters");
    let config = NamespaceConfig { coalesce_ms: Some(100), ..NamespaceConfig::default() };
    client.put_namespace("views", config).await.expect("a namespace");
    client.add("views", NewAdd::new("cats", 3)).await.expect("an add");
    let give_up_at = tokio::time::Instant::now() + crate::system::program::SOON;
    while client.get("views", "cats").await.expect("a count").count != 3 {
        assert!(tokio::time::Instant::now() < give_up_at, "no rollup");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let none = builder(&internal).connect().await.expect("the counters");
    assert_eq!(refused(none.add("views", NewAdd::new("cats", 1)).await), denied());
    // A year of invisibility would freeze a counter.
    let attacker = Client::builder(queue.https()).ca_file(ca).token(attacker).connect().await.expect("the queue");
    let queues = attacker.list_queues("", 100, "").await.expect("a list");
    assert!(queues.items.is_empty(), "{queues:?}");
    let freeze = NewMessage::new("cats", "").invisibility_ms(365 * 24 * 3_600_000);
    assert_eq!(refused(attacker.enqueue("rollup/views/0", vec![freeze]).await), denied());
    assert_eq!(refused(attacker.dequeue(Dequeue::new("rollup/views/0")).await), denied());
}
