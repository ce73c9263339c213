//! How much of a payload an event keeps, and which events carry the result of a message.

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

#[tokio::test]
async fn q23_the_result_is_in_the_events_that_complete_and_collect_a_message() {
    let fixture = RelayFixture::bounded(OutboxBound { payload_bytes_kept: 4, ..OutboxBound::default() }).await;
    let queue = fixture.queue("q").await;
    let ended = async |name: &str, result: &[u8]| {
        queue.put([NewMessage { payload: "payload".into(), ..message(name, 1) }]).await;
        let lease = queue.take_one().await;
        queue.complete_with(queue::to(&lease), result).await.expect("a live lease");
    };
    ended("purged", b"\0\xffone").await;
    ended("purged-without", b"").await;
    queue.purge(false).await;
    ended("replaced", b"two").await;
    queue.put([NewMessage { coalesce: true, ..message("replaced", 9) }]).await;
    let results: Vec<(String, Cause, Vec<u8>)> = queue
        .events()
        .await
        .into_iter()
        .filter(|event| !event.result.is_empty())
        .map(|event| (event.id.to_string(), event.by, event.result.to_vec()))
        .collect();
    let one = |id: &str, by, result: &[u8]| (id.to_owned(), by, result.to_vec());
    let expected = [
        one("purged", Cause::Complete, b"\0\xffone"),
        one("purged", Cause::Collect, b"\0\xffone"),
        one("replaced", Cause::Complete, b"two"),
        one("replaced", Cause::Collect, b"two"),
    ];
    assert_eq!(results, expected);
}
