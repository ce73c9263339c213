//! S3: who calls. Tokens expire, are withdrawn, and are replaced while clients continue.

use super::secured::{Listening, Principals, Secured, refused};
use super::tls::{VERBS, listen_flags, start as start_verb};
use crate::system::program::{self, SOON};
use prost::Message as _;
use std::path::Path;
use std::time::Duration;
use tallystone_client::{Client, Code, Dequeue, Failure, Lease, NewMessage, QueueConfig, Worker};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_tests::http_client;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

const ALL: &[&str] = &["admin:*"];

/// The code and the reason of a refusal.
async fn start(place: &Secured, principals: &Principals) -> (Listening, String) {
    let path = place.path("principals.toml");
    principals.write(Path::new(&path));
    (place.start("server", &["--principals", &path]).await, path)
}

#[tokio::test]
async fn s3_every_call_needs_a_token_that_is_known_and_valid() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let good = principals.add("good", ALL, ["", "expires_at = '2999-01-01T00:00:00Z'"]);
    let late = principals.add("late", ALL, ["", "expires_at = '2020-01-01T00:00:00Z'"]);
    let poor = principals.add("poor", &["read:a/*"], ["", ""]);
    let (server, _) = start(&place, &principals).await;
    server.client(&good).list_queues("", 1, "").await.expect("a list");
    let anonymous = Client::builder(format!("http://{}", server.address)).connect_lazy().expect("an address");
    for (client, reason) in [
        (anonymous, "NO_CREDENTIAL"),
        (server.client("ts_unknown_secret"), "BAD_CREDENTIAL"),
        (server.client(&format!("{good}x")), "BAD_CREDENTIAL"),
        (server.client(&good[..good.len() - 1]), "BAD_CREDENTIAL"),
        (server.client(&late), "EXPIRED"),
    ] {
        let refused = refused(client.list_queues("", 1, "").await);
        assert_eq!(refused, (Code::Unauthenticated, reason.to_owned()));
    }
    // No RPC has counted them.
    let http = http_client();
    let page = http.get(format!("http://{}/metrics", server.metrics)).bearer_auth(&good).send().await;
    let page = page.expect("metrics are served").text().await.expect("a page");
    assert!(page.contains("\ntallystone_unread_calls_refused_total{reason=\"credential\"} 5\n"), "{page}");
    // Health is for probes, which have no token. Everything else on the port is not.
    let status = async |url: &str, token: &str| {
        let request = http.get(url).bearer_auth(token);
        let request = if token.is_empty() { http.get(url) } else { request };
        request.send().await.expect("an answer").status().as_u16()
    };
    let [health, other] = ["health", "other"].map(|path| format!("http://{}/{path}", server.address));
    assert_eq!((status(&health, "").await, status(&other, "").await, status(&other, &good).await), (200, 401, 404));
    let metrics = format!("http://{}/metrics", server.metrics);
    assert_eq!(
        (status(&metrics, "").await, status(&metrics, &poor).await, status(&metrics, &good).await),
        (401, 403, 200)
    );
    // The command line has the token in a file.
    let (url, token) = (format!("http://{}", server.address), place.token_file("token", &good));
    let args = ["queue", "ls", "--server", &url, "--token-file", &token];
    assert_eq!(program::run(program::command(&args), "").await.code, Some(0));
    let without = program::run(program::command(&args[..4]), "").await;
    assert!(without.stderr.contains("--token-file"), "{without:?}");
    assert_eq!(without.code, Some(1), "{without:?}");
}

#[tokio::test]
async fn s3_each_port_of_each_verb_knows_its_callers_and_serves_health_to_all() {
    let http = http_client();
    for verb in VERBS {
        let (place, mut principals) = (Secured::new().await, Principals::default());
        let scraper = principals.add("scraper", &["metrics:*"], ["", ""]);
        let other = principals.add("other", &["admin:*", "deny:metrics:*"], ["", ""]);
        let path = place.path("principals.toml");
        principals.write(Path::new(&path));
        let program = start_verb(&place, verb, &["--principals", &path]).await;
        for port in [program.metrics, program.address].into_iter().take(listen_flags(verb.0).len()) {
            let status = async |path: &str, token: Option<&str>| {
                let request = http.get(format!("http://{port}{path}"));
                let request = token.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
                request.send().await.expect("an answer").status().as_u16()
            };
            // Only the port of metrics has them.
            let (found, page) = if port == program.metrics { (200, 403) } else { (404, 404) };
            for (path, token, expected) in [
                ("/metrics", None, 401),
                ("/metrics", Some("ts_unknown_secret"), 401),
                ("/metrics", Some(&other), page),
                ("/metrics", Some(&scraper), found),
                ("/nothing", None, 401),
                ("/nothing", Some(&other), 404),
                ("/livez", None, 200),
            ] {
                assert_eq!(status(path, token).await, expected, "{verb:?}, {port}{path}, {token:?}");
            }
        }
    }
}

#[tokio::test]
async fn s1_callers_without_a_credential_keep_no_place_of_a_known_one() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let good = principals.add("good", ALL, ["", ""]);
    let [path, config] = ["principals.toml", "t.toml"].map(|name| place.path(name));
    principals.write(Path::new(&path));
    std::fs::write(&config, "[limits]\npeer_connections_max = 3\n").expect("a file");
    let server = place.start("server", &["--principals", &path, "--config", &config]).await;
    // Each has its own connection, which stays open.
    let unknown: Vec<Client> = (0..3).map(|_| server.client("ts_unknown_secret")).collect();
    for client in &unknown {
        assert_eq!(refused(client.list_queues("", 1, "").await).1, "BAD_CREDENTIAL");
    }
    let known = server.client(&good);
    known.list_queues("", 1, "").await.expect("a list");
    // And it keeps its place.
    for _ in 0..5 {
        let client = server.client("ts_unknown_secret");
        assert_eq!(refused(client.list_queues("", 1, "").await).1, "BAD_CREDENTIAL");
        known.list_queues("", 1, "").await.expect("a list");
    }
}

/// Opens a Work stream with this token.
async fn work(server: &Listening, token: &str) -> tonic::Streaming<pb::WorkResponse> {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    let mut queue = QueueClient::new(endpoint.connect().await.expect("a connection"));
    let (requests, receiver) = tokio::sync::mpsc::channel(1);
    let start = pb::WorkStart { queue: "q".to_owned(), ..Default::default() };
    requests.send(pb::WorkRequest { start: Some(start), credits: 1, ..Default::default() }).await.expect("room");
    let mut request = tonic::Request::new(ReceiverStream::new(receiver));
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().expect("a header"));
    let responses = queue.work(request).await.expect("a stream").into_inner();
    // The stream stays open as long as its requests may come.
    tokio::spawn(async move { requests.closed().await });
    responses
}

#[tokio::test]
async fn s3_a_withdrawn_token_ends_streams_and_waiting_calls_within_a_second() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let stays = principals.add("stays", ALL, ["", ""]);
    let without = Principals::clone(&principals);
    let goes = principals.add("goes", ALL, ["", ""]);
    let (server, path) = start(&place, &principals).await;
    server.client(&stays).enqueue("q", vec![NewMessage::new("a", "")]).await.expect("an Enqueue");
    server.client(&stays).create_queue("none", QueueConfig::simple()).await.expect("a queue");
    let mut streams = [work(&server, &goes).await, work(&server, &stays).await];
    // One of them leases the message; the other waits.
    let waiting = server.client(&goes);
    let dequeue = tokio::spawn(async move { waiting.dequeue(Dequeue::new("none").wait_ms(60_000)).await });
    let [goes_stream, stays_stream] = &mut streams;
    tokio::select! {
        first = goes_stream.message() => first.expect("a lease"),
        first = stays_stream.message() => first.expect("a lease"),
    };
    without.write(Path::new(&path));
    let at = tokio::time::Instant::now();
    let ended = timeout(SOON, async {
        loop {
            if let Err(status) = goes_stream.message().await.map(|response| response.expect("no end without a status"))
            {
                return status;
            }
        }
    });
    assert_eq!(ended.await.expect("an end").code(), Code::Unauthenticated);
    let refused = refused(timeout(SOON, dequeue).await.expect("an answer").expect("no panic"));
    assert_eq!(refused.0, Code::Unauthenticated);
    // The files are compared twice a second; a busy machine may take longer to read them.
    assert!(at.elapsed() < Duration::from_secs(5), "{:?}", at.elapsed());
    assert!(timeout(Duration::from_millis(100), stays_stream.message()).await.is_err(), "it goes on");
    server.client(&stays).list_queues("", 1, "").await.expect("a list");
}

#[tokio::test]
async fn s3_the_stream_of_a_withdrawn_token_ends_within_a_second() {
    const TOKENS: usize = 5;
    let place = Secured::new().await;
    // The principals of each moment: one fewer each time.
    let (mut moments, mut tokens) = (vec![Principals::default()], Vec::new());
    for number in 0..TOKENS {
        let mut more = moments[0].clone();
        tokens.insert(0, more.add(&format!("goes-{number}"), ALL, ["", ""]));
        moments.insert(0, more);
    }
    let (server, path) = start(&place, &moments[0]).await;
    server.client(&tokens[0]).create_queue("q", QueueConfig::simple()).await.expect("a queue");
    let mut streams = Vec::new();
    for token in &tokens {
        streams.push(work(&server, token).await);
    }
    let mut took = Vec::new();
    for (stream, without) in streams.iter_mut().zip(&moments[1..]) {
        without.write(Path::new(&path));
        let at = tokio::time::Instant::now();
        let ended = timeout(SOON, stream.message()).await.expect("an end").expect_err("a withdrawn token");
        assert_eq!(ended.code(), Code::Unauthenticated);
        took.push(at.elapsed());
    }
    // The files are compared twice a second. Most are in time also where the machine is busy for a moment.
    took.sort();
    println!("streams have ended after {took:?}");
    assert!(took[TOKENS / 2] < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_a_stream_without_a_pause_ends_when_its_token_is_withdrawn() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let stays = principals.add("stays", ALL, ["", ""]);
    let without = Principals::clone(&principals);
    let goes = principals.add("goes", ALL, ["", ""]);
    let (server, path) = start(&place, &principals).await;
    server.client(&stays).create_queue("q", QueueConfig::simple()).await.expect("a queue");
    let tcp = tokio::net::TcpStream::connect(server.address).await.expect("a connection");
    let (mut calls, connection) = h2::client::handshake(tcp).await.expect("HTTP/2");
    tokio::spawn(connection);
    let path_of_call = format!("http://{}/tallystone.queue.v1.Queue/Work", server.address);
    let request = http::Request::post(path_of_call).header("content-type", "application/grpc").header("te", "trailers");
    let request = request.header("authorization", format!("Bearer {goes}")).body(()).expect("a request");
    let (response, mut body) = calls.send_request(request, false).expect("a stream");
    let start = pb::WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..Default::default() };
    let first = pb::WorkRequest { start: Some(start), ..Default::default() }.encode_to_vec();
    body.send_data([&[0, 0, 0, 0, first.len() as u8], &first[..]].concat().into(), false).expect("some bytes");
    // Five zeros are an empty request. They arrive faster than they are handled.
    let flood = tokio::spawn(async move {
        const CHUNK: &[u8] = &[0; 20 * 1_024];
        let mut left = 0;
        loop {
            body.reserve_capacity(CHUNK.len());
            let Some(Ok(room)) = std::future::poll_fn(|cx| body.poll_capacity(cx)).await else { return };
            let now = room.min(CHUNK.len() - left);
            if body.send_data(bytes::Bytes::from_static(&CHUNK[left..left + now]), false).is_err() {
                return;
            }
            left = (left + now) % CHUNK.len();
        }
    });
    without.write(Path::new(&path));
    let ended = timeout(SOON, async {
        let mut responses = response.await.expect("an answer").into_body();
        while let Some(Ok(_)) = responses.data().await {}
        responses.trailers().await.expect("an end").expect("trailers")
    });
    let status = tonic::Status::from_header_map(&ended.await.expect("in time")).expect("a status");
    assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    timeout(SOON, flood).await.expect("the stream is closed").expect("no panic");
}

#[tokio::test]
async fn s3_a_worker_goes_on_with_its_new_rights() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let token = principals.add("worker", ALL, ["", ""]);
    let (server, path) = start(&place, &principals).await;
    let client = server.client(&token);
    client.enqueue("q", vec![NewMessage::new("a", "")]).await.expect("an Enqueue");
    let (handled, mut all) = tokio::sync::mpsc::unbounded_channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn({
        let worker = Worker::new(client.clone(), "q");
        let handler = async move |lease: Lease| {
            handled.send(lease.id).expect("the test listens");
            Ok::<_, Failure>(())
        };
        async move { worker.run_until(async { drop(stopped.await) }, handler).await }
    });
    assert_eq!(timeout(SOON, all.recv()).await.expect("a message").as_deref(), Some("a"));
    principals.change("admin:*", "consume:q");
    principals.write(Path::new(&path));
    let give_up_at = tokio::time::Instant::now() + SOON;
    while client.list_queues("", 1, "").await.expect("a list").items.len() == 1 {
        assert!(tokio::time::Instant::now() < give_up_at, "the rights stay");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    principals.change("consume:q", r#"consume:*", "produce:*"#);
    principals.write(Path::new(&path));
    while client.enqueue("q", vec![NewMessage::new("b", "")]).await.is_err() {
        assert!(tokio::time::Instant::now() < give_up_at, "the rights stay");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(timeout(SOON, all.recv()).await.expect("a message").as_deref(), Some("b"));
    drop(stop);
    timeout(SOON, worker).await.expect("an end").expect("no panic").expect("the worker ends well");
}

#[tokio::test]
async fn s3_a_client_goes_on_with_a_new_token_in_its_file() {
    let (place, mut principals) = (Secured::new().await, Principals::default());
    let first = principals.add("first", ALL, ["", ""]);
    let (server, path) = start(&place, &principals).await;
    let token_file = place.token_file("token", &first);
    let client = Client::builder(format!("http://{}", server.address)).token_file(&token_file);
    let client = client.connect().await.expect("a server");
    client.list_queues("", 1, "").await.expect("a list");
    let mut principals = Principals::default();
    let second = principals.add("second", ALL, ["", ""]);
    place.token_file("token", &second);
    principals.write(Path::new(&path));
    let give_up_at = tokio::time::Instant::now() + SOON;
    // Until both sides have read their files, the client may be refused.
    while server.client(&first).list_queues("", 1, "").await.is_ok() || client.list_queues("", 1, "").await.is_err() {
        assert!(tokio::time::Instant::now() < give_up_at, "the new token is not used");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
