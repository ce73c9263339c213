//! S3: callers with tokens of an identity provider.

use super::certificates::{Ca, Files};
use super::secured::{Secured, refused};
use crate::system::program::{SOON, until};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::json;
use std::net::Ipv4Addr;
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_client::{Code, Error, NewMessage, QueueConfig};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::queue_client::QueueClient;
use tallystone_tests::lasting_port;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::transport::Endpoint;

/// A key of the provider.
struct Key {
    id: &'static str,
    pair: KeyPair,
}

impl Key {
    fn new(id: &'static str) -> Key {
        Key { id, pair: KeyPair::generate().expect("a key") }
    }

    fn public(&self) -> serde_json::Value {
        let point = self.pair.der_bytes();
        let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": self.id, "x": x, "y": y})
    }

    fn token(&self, principal: &str, rules: &[&str]) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        let claims = json!({
            "iss": "https://idp", "aud": "tallystone", "sub": principal, "exp": now + 3_600, "tallystone": rules,
        });
        encode(&header, &claims, &EncodingKey::from_ec_der(&self.pair.serialize_der())).expect("a token")
    }
}

fn keys(keys: &[&Key]) -> String {
    json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()}).to_string()
}

/// A provider that serves its keys by HTTPS.
struct Provider(JoinHandle<()>);

impl Provider {
    async fn start(port: u16, certificate: &Files, keys: String) -> Provider {
        let acceptor = certificate.acceptor();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.expect("its port");
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{keys}", keys.len());
        Provider(tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A caller that does not trust the certificate ends the handshake.
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.read(&mut [0; 4_096]).await;
                let _ = stream.write_all(response.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        }))
    }

    /// Its port is free when this returns.
    async fn stop(self) {
        self.0.abort();
        let _ = self.0.await;
    }
}

#[tokio::test]
async fn s3_a_token_of_the_provider_does_what_its_rules_say_until_its_key_is_withdrawn() {
    let (place, [first, second]) = (Secured::new().await, ["a", "b"].map(Key::new));
    let [config, file] = [place.path("t.toml"), place.path("keys.json")];
    std::fs::write(&file, keys(&[&first])).expect("a file");
    std::fs::write(&config, format!("[jwt]\nissuer = 'https://idp'\nkeys_file = '{file}'\n")).expect("a file");
    let server = place.start("server", &["--config", &config]).await;
    let operator = server.client(&first.token("ops", &["create:q"]));
    let worker_token = first.token("worker", &["consume:q", "produce:q"]);
    let worker = server.client(&worker_token);
    operator.create_queue("q", QueueConfig::simple()).await.expect("a queue");
    worker.enqueue("q", vec![NewMessage::new("a", "")]).await.expect("an Enqueue");
    assert_eq!(refused(worker.create_queue("other", QueueConfig::simple()).await).0, Code::PermissionDenied);
    let bad = || (Code::Unauthenticated, "BAD_CREDENTIAL".to_owned());
    let foreign = server.client(&Key::new("a").token("worker", &["consume:q"]));
    assert_eq!(refused(foreign.get_queue("q").await), bad());
    assert_eq!(refused(server.client("ts_a_b").get_queue("q").await), bad());
    // A stream ends with the key of its token.
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).expect("an address");
    let mut calls = QueueClient::new(endpoint.connect().await.expect("a connection"));
    let (requests, stream) = tokio::sync::mpsc::channel(1);
    let start = pb::WorkStart { queue: "q".to_owned(), worker: "w".to_owned(), ..Default::default() };
    requests.send(pb::WorkRequest { start: Some(start), credits: 1, ..Default::default() }).await.expect("a stream");
    let mut request = Request::new(ReceiverStream::new(stream));
    request.metadata_mut().insert("authorization", format!("Bearer {worker_token}").parse().expect("a header"));
    let mut responses = calls.work(request).await.expect("a stream").into_inner();
    let lease = timeout(SOON, responses.message()).await.expect("in time").expect("a response").expect("a response");
    assert_eq!(lease.leases[0].id, "a");
    std::fs::write(&file, keys(&[&second])).expect("a file");
    let ended = timeout(SOON, responses.message()).await.expect("in time").expect_err("the end of the stream");
    assert_eq!(ended.code(), Code::Unauthenticated);
    assert_eq!(refused(worker.get_queue("q").await), bad());
    let replaced = server.client(&second.token("worker", &["read:q"]));
    replaced.get_queue("q").await.expect("a queue");
}

#[tokio::test]
async fn s3_keys_come_by_https_from_a_trusted_provider_and_stay_while_it_is_away() {
    let (place, [first, second]) = (Secured::new().await, ["a", "b"].map(Key::new));
    let (port, config, dir) = (lasting_port(), place.path("t.toml"), place.path("foreign"));
    let url = format!("https://127.0.0.1:{port}/keys");
    let section =
        format!("[jwt]\nissuer = 'https://idp'\nkeys_url = '{url}'\nkeys_ca_file = '{}'\n", place.ca.file.display());
    std::fs::write(&config, section).expect("a file");
    std::fs::create_dir(&dir).expect("a folder");
    let foreign = Ca::new(dir.as_ref(), "foreign").server(dir.as_ref());

    let provider = Provider::start(port, &foreign, keys(&[&first])).await;
    let server = place.start("server", &["--config", &config]).await;
    let failures = || server.process.written().matches("the keys of JSON Web Tokens stay as they were").count();
    let [of_first, of_second] = [&first, &second].map(|key| server.client(&key.token("ops", &["admin:*"])));
    let is_pending =
        |answer| matches!(answer, Err(Error::Unavailable { message, .. }) if message.contains("is not known yet"));
    until("the certificate is refused", async || server.process.written().contains("UnknownIssuer")).await;
    assert!(is_pending(of_first.get_queue("q").await));
    provider.stop().await;

    let provider = Provider::start(port, &place.server, keys(&[&first])).await;
    until("the keys are there", async || of_first.create_queue("q", QueueConfig::simple()).await.is_ok()).await;
    provider.stop().await;

    let failed = failures();
    // An unknown key makes the server fetch once the last time is 30 s ago.
    let fails = async || of_second.get_queue("q").await.is_err() && failures() > failed;
    until("the provider is missed", fails).await;
    of_first.get_queue("q").await.expect("a queue, by a key that is known");
    assert!(is_pending(of_second.get_queue("q").await));

    let provider = Provider::start(port, &place.server, keys(&[&second])).await;
    until("the new key is there", async || of_second.get_queue("q").await.is_ok()).await;
    assert_eq!(refused(of_first.get_queue("q").await), (Code::Unauthenticated, "BAD_CREDENTIAL".to_owned()));
    assert!(!server.process.written().contains(&url), "an address may have a password");
    provider.stop().await;
}
