//! S3: callers with tokens of an identity provider.

use super::secured::{Secured, refused};
use crate::system::program::SOON;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::json;
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_client::{Code, NewMessage, QueueConfig};
use tallystone_proto::queue::v1 as pb;
use tallystone_proto::queue::v1::queue_client::QueueClient;
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
