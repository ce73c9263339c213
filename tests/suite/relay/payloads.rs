//! How much of a payload an event keeps.

use super::RelayFixture;
use tallystone_model::*;
use tallystone_server::store::OutboxBound;
use tallystone_tests::*;
#[tokio::test]
async fn q19_payloads_are_kept_up_to_the_configured_size() {
    let fixture = RelayFixture::bounded(OutboxBound { payload_bytes_kept: 4, ..OutboxBound::default() }).await;
    let queue = fixture.queue("q").await;
    let with = |name: &str, payload: &'static [u8], invisibility_ms| NewMessage {
        payload: bytes::Bytes::from_static(payload),
        invisibility_ms,
        ..message(name, 1)
    };
    queue
        .put([with("short", b"abc", None), with("long", b"abcdef", None), with("unseen", b"ghijkl", Some(9_000))])
        .await;
    queue.take(1).await;
    let payloads: Vec<Option<Vec<u8>>> =
        queue.events().await.into_iter().map(|event| event.payload.map(|payload| payload.to_vec())).collect();
    let some = |bytes: &[u8]| Some(bytes.to_vec());
    assert_eq!(payloads, [some(b"abc"), some(b"abcd"), some(b"ghij"), None]);
}

#[tokio::test]
async fn q22_the_payloads_of_errored_messages_are_kept_up_to_the_configured_size() {
    let bound = |payload_bytes_kept| OutboxBound {
        payload_bytes_kept,
        errored_payload_bytes_kept: 4,
        ..OutboxBound::default()
    };
    // The first event has as much already: the last one need not have it.
    for (payload_bytes_kept, first, last) in
        [(0, None, Some("brok")), (3, Some("bro"), Some("brok")), (4, Some("brok"), None)]
    {
        let fixture = RelayFixture::bounded(bound(payload_bytes_kept)).await;
        let queue = fixture.queue("q").await;
        let fragile = NewMessage { payload: "broken".into(), max_attempts: Some(1), ..message("m", 1) };
        queue.put([fragile]).await;
        queue.release(queue::to(&queue.take_one().await), None, "why").await.expect("a live lease");
        let payloads: Vec<Option<String>> = queue
            .events()
            .await
            .into_iter()
            .map(|event| event.payload.map(|payload| String::from_utf8_lossy(&payload).into_owned()))
            .collect();
        assert_eq!(payloads, [first.map(str::to_owned), None, last.map(str::to_owned)], "{payload_bytes_kept}");
    }
}
