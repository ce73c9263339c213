//! S2: TLS on every port, and what is refused.

use super::certificates::{Ca, Files};
use super::secured::{Listening, Principals, Secured, refused};
use crate::system::program::{self, Running, SOON};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tallystone_client::{Client, ClientBuilder, Code, Dequeue, NewMessage, QueueConfig};
use tallystone_tests::{http_builder, lasting_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

const POLL: Duration = Duration::from_millis(10);

fn builder(server: &Listening, ca: &Path) -> ClientBuilder<Client> {
    Client::builder(server.https()).call_timeout(Duration::from_secs(5)).retry_for(Duration::ZERO).ca_file(ca)
}

async fn works(client: &Client, id: &str) {
    let enqueued = client.enqueue("q", vec![NewMessage::new(id, "payload")]).await.expect("an Enqueue");
    assert!(enqueued.iter().all(Result::is_ok), "{enqueued:?}");
}

/// When the certificate of a server expires.
pub(super) const EXPIRY: &str = "tallystone_tls_certificate_expiry_seconds";
const FAILURES: &str = "tallystone_reload_failures_total{what=\"certificates\"}";
/// Of the certificates of these tests: 1 January 4096, Unix time.
const EXPIRES_S: f64 = 67_090_118_400.0;

/// A metric of a server whose certificate this CA has signed.
pub(super) async fn metric(server: &Listening, ca: &Ca, name: &str) -> f64 {
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&ca.file).expect("a file")).expect("PEM");
    let http = http_builder().add_root_certificate(ca).build().expect("a client");
    let page = http.get(format!("https://{}/metrics", server.metrics)).send().await.expect("metrics are served");
    let page = page.text().await.expect("a page");
    let value = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name}: {page}"))
}

/// Why a client cannot connect.
async fn refusal(builder: ClientBuilder<Client>) -> String {
    let client = match builder.connect().await {
        Err(error) => return error.to_string(),
        // A server refuses a certificate after the client has ended its handshake.
        Ok(client) => client,
    };
    client.list_queues("", 1, "").await.expect_err("a refusal").to_string()
}

#[tokio::test]
async fn s2_every_port_serves_tls_to_clients_that_trust_it() {
    let place = Secured::new().await;
    let other = Ca::new(place.dir.path(), "other");
    let server = place.start("server", &place.tls()).await;
    works(&builder(&server, &place.ca.file).connect().await.expect("TLS"), "a").await;
    assert!(refusal(builder(&server, &other.file)).await.contains("UnknownIssuer"));
    // Clients trust the CAs of the system; this one is none.
    assert!(refusal(Client::builder(server.https())).await.contains("UnknownIssuer"));
    let plain = Client::builder(format!("http://{}", server.address)).retry_for(Duration::ZERO);
    refusal(plain).await;
    // HTTP/1, and the port of the metrics.
    let ca = reqwest::Certificate::from_pem(&std::fs::read(&place.ca.file).expect("a file")).expect("PEM");
    let http = http_builder().http1_only().add_root_certificate(ca).build().expect("a client");
    for url in [format!("{}/health", server.https()), format!("https://{}/metrics", server.metrics)] {
        assert_eq!(http.get(&url).send().await.expect("an answer").status(), 200, "{url}");
    }
    assert!(http.get(format!("http://{}/metrics", server.metrics)).send().await.is_err());
    // The command line.
    let (ca, url) = (place.ca.file.to_str().expect("text"), server.https());
    let listed = program::run(program::command(&["queue", "ls", "--server", &url, "--ca", ca, "--json"]), "").await;
    assert_eq!(listed.object()["name"], "q", "{listed:?}");
    let refused = program::run(program::command(&["queue", "ls", "--server", &url]), "").await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(refused.stderr.contains("UnknownIssuer"), "{refused:?}");
}

#[tokio::test]
async fn s2_a_certificate_is_replaced_without_the_loss_of_a_connection() {
    let place = Secured::new().await;
    let server = place.start("server", &place.tls()).await;
    let before = builder(&server, &place.ca.file).connect().await.expect("TLS");
    works(&before, "a").await;
    let next = Ca::new(place.dir.path(), "next");
    // The same files: first a certificate that does not fit the key, then both.
    next.server(place.dir.path());
    let give_up_at = Instant::now() + SOON;
    let after = loop {
        match builder(&server, &next.file).connect().await {
            Ok(client) => break client,
            Err(error) => assert!(Instant::now() < give_up_at, "{error}"),
        }
        sleep(POLL).await;
    };
    works(&after, "b").await;
    works(&before, "c").await;
    // A faulty file changes nothing, but a metric.
    assert_eq!(metric(&server, &next, EXPIRY).await, EXPIRES_S);
    let failures = metric(&server, &next, FAILURES).await;
    std::fs::write(&place.server.certificate, "nonsense").expect("a file");
    let give_up_at = Instant::now() + SOON;
    while metric(&server, &next, FAILURES).await == failures {
        assert!(Instant::now() < give_up_at, "no failed reload is counted");
        sleep(POLL).await;
    }
    assert_eq!(metric(&server, &next, EXPIRY).await, EXPIRES_S);
    for id in ["d", "e", "f"] {
        sleep(Duration::from_millis(300)).await;
        works(&builder(&server, &next.file).connect().await.expect("TLS"), id).await;
    }
    assert_eq!(server.process.stop().await.code(), Some(0));
}

/// The status of a page, to a client that trusts one CA and shows a certificate of another, if any; `None`: no TLS.
async fn status(port: SocketAddr, path: &str, ca: &Ca, shown: Option<&Files>) -> Option<u16> {
    let read = |path: &Path| std::fs::read(path).expect("a file");
    let identity = |shown: &Files| {
        reqwest::Identity::from_pem(&[read(&shown.certificate), read(&shown.key)].concat()).expect("PEM")
    };
    let ca = reqwest::Certificate::from_pem(&read(&ca.file)).expect("PEM");
    let http = http_builder().add_root_certificate(ca);
    let http = shown.map(identity).into_iter().fold(http, reqwest::ClientBuilder::identity);
    let answer = http.build().expect("a client").get(format!("https://{port}{path}")).send().await;
    answer.ok().map(|answer| answer.status().as_u16())
}

/// The verbs that listen, and what they need in addition to start.
pub(super) const VERBS: [(&str, &[&str]); 6] = [
    ("server", REDIS),
    ("counters", REDIS),
    ("rollup-worker", REDIS),
    ("views", REDIS),
    ("ingest", &["--kafka-brokers", "127.0.0.1:1", "--topic", "adds"]),
    ("indexer", &["--kafka-brokers", "127.0.0.1:1", "--elasticsearch-url", "http://127.0.0.1:1"]),
];
/// It needs a Redis; the others listen before their Kafka is there.
const REDIS: &[&str] = &[];

/// Starts a verb with these flags.
pub(super) async fn start(place: &Secured, (verb, args): (&str, &[&str]), flags: &[&str]) -> Listening {
    match args {
        [] => place.start(verb, flags).await,
        args => place.start_with(verb, &[args, flags].concat()).await,
    }
}

/// The flags that name the addresses of a verb.
pub(super) fn listen_flags(verb: &str) -> &'static [&'static str] {
    if verb == "rollup-worker" { &["--metrics-listen"] } else { &["--listen", "--metrics-listen"] }
}

/// What a port answers to a request over HTTP without TLS.
async fn plain_answer(port: SocketAddr) -> Vec<u8> {
    let mut tcp = TcpStream::connect(port).await.expect("a connection");
    tcp.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("room in a new connection");
    let mut answer = Vec::new();
    // It may end with a reset.
    let _ = timeout(SOON, tcp.read_to_end(&mut answer)).await.expect("the connection ends");
    answer
}

#[tokio::test]
async fn s2_every_port_of_every_verb_serves_tls_only_and_only_to_clients_of_the_ca() {
    for verb in VERBS {
        let place = Secured::new().await;
        let dir = place.dir.path();
        let (clients, foreign) = (Ca::new(dir, "clients"), Ca::new(dir, "foreign"));
        let (known, unknown) = (clients.client(dir, "known", ""), foreign.client(dir, "unknown", ""));
        let mut flags = place.tls();
        flags.extend(["--tls-client-ca", clients.file.to_str().expect("text")]);
        let program = start(&place, verb, &flags).await;
        let ports = [("/metrics", program.metrics), ("/livez", program.address)];
        for (path, port) in ports.into_iter().take(listen_flags(verb.0).len()) {
            let status = async |ca: &Ca, shown: Option<&Files>| status(port, path, ca, shown).await;
            assert_eq!(status(&place.ca, Some(&known)).await, Some(200), "{verb:?}, {path}");
            assert_eq!(status(&place.ca, None).await, None, "{verb:?}, {path} without a certificate");
            assert_eq!(status(&place.ca, Some(&unknown)).await, None, "{verb:?}, {path} with one of another CA");
            assert_eq!(status(&foreign, Some(&known)).await, None, "{verb:?}, {path} has a certificate of its CA");
            let plain = plain_answer(port).await;
            let text = String::from_utf8_lossy(&plain);
            assert!(!text.contains("HTTP") && !text.contains("SERVING"), "{verb:?}, {path} in plain text: {text}");
        }
    }
}

#[tokio::test]
async fn s2_every_verb_reads_its_certificate_and_the_cas_of_its_clients_again() {
    for verb in VERBS {
        let place = Secured::new().await;
        let dir = place.dir.path();
        let clients = Ca::new(dir, "clients");
        let before = clients.client(dir, "before", "");
        let mut flags = place.tls();
        flags.extend(["--tls-client-ca", clients.file.to_str().expect("text")]);
        let program = start(&place, verb, &flags).await;
        let status = async |ca: &Ca, shown: &Files| status(program.metrics, "/metrics", ca, Some(shown)).await;
        assert_eq!(status(&place.ca, &before).await, Some(200), "{verb:?}");
        // The same files.
        let (next, next_clients) = (Ca::new(dir, "next"), Ca::new(dir, "clients"));
        next.server(dir);
        let after = next_clients.client(dir, "after", "");
        let give_up_at = Instant::now() + SOON;
        while status(&next, &after).await != Some(200) {
            assert!(Instant::now() < give_up_at, "{verb:?} does not read its files again");
            sleep(POLL).await;
        }
        assert_eq!(status(&next, &before).await, None, "{verb:?}: the CA is not in the file any more");
        assert_eq!(status(&place.ca, &after).await, None, "{verb:?}: it has the new certificate");
    }
}

#[tokio::test]
async fn s2_clients_show_a_certificate_of_the_ca() {
    let place = Secured::new().await;
    let (dir, other) = (place.dir.path(), Ca::new(place.dir.path(), "other"));
    let mut flags = place.tls();
    flags.extend(["--tls-client-ca", place.ca.file.to_str().expect("text")]);
    let server = place.start("server", &flags).await;
    let with = |files: Files| builder(&server, &place.ca.file).certificate_files(files.certificate, files.key);
    works(&with(place.ca.client(dir, "worker", "")).connect().await.expect("TLS"), "a").await;
    refusal(builder(&server, &place.ca.file)).await;
    refusal(with(other.client(dir, "foreign", ""))).await;
    refusal(with(place.ca.expired_client(dir, "late"))).await;
    // The command line.
    let (ca, url) = (place.ca.file.to_str().expect("text"), server.https());
    let list = ["queue", "ls", "--server", &url, "--ca", ca, "--json"];
    let Files { certificate, key } = place.ca.client(dir, "operator", "");
    let shown = ["--cert", certificate.to_str().expect("text"), "--key", key.to_str().expect("text")];
    let listed = program::run(program::command(&[&list[..], &shown[..]].concat()), "").await;
    assert_eq!(listed.object()["name"], "q", "{listed:?}");
    let refused = program::run(program::command(&list), "").await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
}

#[tokio::test]
async fn s3_a_certificate_identifies_its_principal() {
    let place = Secured::new().await;
    let (dir, path) = (place.dir.path(), place.path("principals.toml"));
    let mut principals = Principals::default();
    let token = principals.add("by-subject", &["produce:q", "create:q"], ["certificates = ['CN=worker']", ""]);
    principals.add("by-uri", &["produce:q"], ["certificates = ['spiffe://acme/worker']", ""]);
    principals.add("by-both", &["produce:q"], ["certificates = ['CN=worker, O=acme']", ""]);
    principals.write(Path::new(&path));
    let config = place.path("t.toml");
    std::fs::write(&config, "[tls]\nclient_certificates = 'optional'\n").expect("a file");
    let mut flags = place.tls();
    flags.extend(["--tls-client-ca", place.ca.file.to_str().expect("text"), "--principals", &path]);
    flags.extend(["--config", &config]);
    let server = place.start("server", &flags).await;
    let with = |files: Files| builder(&server, &place.ca.file).certificate_files(files.certificate, files.key);
    works(&with(place.ca.client(dir, "worker", "")).connect().await.expect("TLS"), "a").await;
    works(&with(place.ca.client(dir, "any", "spiffe://acme/worker")).connect().await.expect("TLS"), "b").await;
    works(&builder(&server, &place.ca.file).token(&token).connect().await.expect("TLS"), "c").await;
    // One that no principal has, a common name that reads as two attributes, and a URI that reads as a subject.
    for (name, uri) in [("stranger", ""), ("worker, O=acme", ""), ("other", "CN=worker")] {
        let refused = refusal(with(place.ca.client(dir, name, uri))).await;
        assert!(refused.contains("does not know"), "{name}: {refused}");
    }
    assert!(refusal(builder(&server, &place.ca.file)).await.contains("needs a token"));
}

#[tokio::test]
async fn s3_a_certificate_that_expires_ends_what_its_connection_waits_for() {
    let place = Secured::new().await;
    let (dir, path) = (place.dir.path(), place.path("principals.toml"));
    let mut principals = Principals::default();
    principals.add("worker", &["admin:*"], ["certificates = ['CN=worker']", ""]);
    principals.write(Path::new(&path));
    let mut flags = place.tls();
    flags.extend(["--tls-client-ca", place.ca.file.to_str().expect("text"), "--principals", &path]);
    let server = place.start("server", &flags).await;
    let files = place.ca.client_for(dir, "worker", Duration::from_secs(6));
    let client = Client::builder(server.https()).retry_for(Duration::ZERO).ca_file(&place.ca.file);
    let client = client.certificate_files(files.certificate, files.key).connect().await.expect("TLS");
    client.create_queue("none", QueueConfig::simple()).await.expect("a queue");
    let waiting = client.dequeue(Dequeue::new("none").wait_ms(60_000));
    let ended = timeout(SOON, waiting).await.expect("an end before the wait is over");
    assert_eq!(refused(ended), (Code::Unauthenticated, "WITHDRAWN".to_owned()));
    let later = refused(client.list_queues("", 1, "").await);
    assert_eq!(later, (Code::Unauthenticated, "EXPIRED".to_owned()));
}

#[tokio::test]
async fn s2_plain_text_is_served_on_loopback_only_unless_it_is_allowed() {
    for (verb, args) in VERBS {
        for flag in listen_flags(verb) {
            for address in ["0.0.0.0:0", "[::]:0"] {
                let with = [&[verb][..], args, &[*flag, address]].concat();
                let refused = program::run(program::command(&with), "").await;
                assert_eq!(refused.code, Some(2), "{verb} {flag} {address}: {refused:?}");
                assert!(refused.stderr.contains("plain text") && refused.stderr.contains("--insecure"), "{refused:?}");
                if args.is_empty() {
                    // Then it is only Redis that is unavailable.
                    let mut command = program::command(&with);
                    command.args(["--insecure", "--redis-url", "redis://127.0.0.1:1"]);
                    let allowed = program::run(command, "").await;
                    assert_eq!(allowed.code, Some(3), "{verb} {flag} {address}: {allowed:?}");
                }
            }
        }
    }
    // These need no Redis, so they serve.
    for (verb, args) in VERBS.into_iter().filter(|(_, args)| !args.is_empty()) {
        let [address, metrics] = [(); 2].map(|()| SocketAddr::from((Ipv4Addr::UNSPECIFIED, lasting_port())));
        let mut command = program::command(&[&[verb][..], args].concat());
        command.args(["--insecure", "--listen", &address.to_string(), "--metrics-listen", &metrics.to_string()]);
        let mut process = Running::start(command);
        for port in [address, metrics].map(|of| SocketAddr::from((Ipv4Addr::LOCALHOST, of.port()))) {
            process.listens(port).await;
            let mut tcp = TcpStream::connect(port).await.expect("a connection");
            let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
            tcp.write_all(request).await.expect("room in a new connection");
            let mut answer = String::new();
            timeout(SOON, tcp.read_to_string(&mut answer)).await.expect("an end").expect("an answer");
            assert!(answer.starts_with("HTTP/1.1 200"), "{verb} at {port}: {answer}");
        }
    }
}

#[tokio::test]
async fn s2_dev_does_not_start_without_what_its_configuration_promises() {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let dev = ["dev", "--data-dir", dir.path().to_str().expect("text")];
    for (args, variable, words) in
        [(&[][..], "TALLYSTONE_AUTH_PRINCIPALS_FILE", "[auth]"), (&["--listen", "0.0.0.0:0"][..], "", "--insecure")]
    {
        let mut command = program::command(&[&dev[..], args].concat());
        if !variable.is_empty() {
            command.env(variable, "principals.toml");
        }
        let refused = program::run(command, "").await;
        assert!(refused.code == Some(2) && refused.stderr.contains(words), "{refused:?}");
    }
}

#[tokio::test]
async fn s2_a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Secured::new().await;
    std::fs::set_permissions(&place.server.key, std::fs::Permissions::from_mode(0o644)).expect("our file");
    let mut command = program::command(&["server", "--listen", "127.0.0.1:0", "--allow-volatile", "--redis-url"]);
    command.arg(place.redis.url()).args(place.tls());
    let refused = program::run(command, "").await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("tls.key_file") && refused.stderr.contains("chmod"), "{refused:?}");
}
