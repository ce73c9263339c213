//! Documents that the server refuses for reasons that no list has: they alone are rejected.

use super::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::io;
use tallystone_indexer::{HistoryError, fold};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

#[tokio::test]
async fn q19_a_bad_request_of_any_kind_rejects_its_event_alone() {
    let indices = TestIndices::new("unlisted").await;
    let store = indices.store();
    record(&store, &[event("before", 1, 1)]).await;
    // Of this day every write without a routing is refused: 400 routing_missing_exception.
    let day = format!("{}-historic-2026.11.19", indices.prefix);
    let mappings = json!({ "mappings": { "_routing": { "required": true } } });
    indices.call(Method::Put, &day, Some(mappings)).await;
    let events = [
        event("good", 2, 1),
        changed(event("bad", 3, 1), |event| event.at_ms = NOON_MS - DAY_MS),
        event("other", 4, 1),
    ];
    let rejected = store.record(&events).await.expect("the rest is written");
    let rejected: Vec<(usize, &str)> =
        rejected.iter().map(|rejected| (rejected.index, rejected.why.as_str())).collect();
    assert!(matches!(rejected[..], [(1, why)] if why.contains("routing")), "{rejected:?}");
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let mut found: Vec<String> = all(&store).await.into_iter().map(|message| message.id).collect();
    found.sort();
    // Only its transition is refused; the message itself is written.
    assert_eq!(found, ["bad", "before", "good", "other"]);
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_request_that_is_refused_as_a_whole_is_split_down_to_the_write_that_causes_it() {
    let indices = TestIndices::new("bisected").await;
    let firewall = Firewall::start(indices.server.address()).await;
    let options = ElasticOptions { url: firewall.url.clone(), ..indices.options() };
    let store = Elastic::new(options).expect("good options");
    let mut events: Vec<Recorded> = (1..=500).map(|n| event(&format!("m{n}"), n, 1)).collect();
    for bad in [7, 300] {
        events[bad].event.worker = FORBIDDEN.to_owned();
    }
    let rejected = store.record(&events).await.expect("the rest is written");
    assert_eq!(rejected.iter().map(|rejected| rejected.index).collect::<Vec<_>>(), [7, 300]);
    assert!(rejected.iter().all(|rejected| rejected.why.contains("firewall")), "{rejected:?}");
    store.advance(ONLY, NOON_MS).await.expect("visible");
    assert_eq!(all(&store).await.len(), 498);

    // A server that refuses each of many documents is at fault, not the documents.
    for recorded in &mut events {
        recorded.event.worker = FORBIDDEN.to_owned();
    }
    let refused = store.record(&events).await;
    assert!(matches!(&refused, Err(HistoryError::Failed(why)) if why.contains("every document")), "{refused:?}");
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_repair_that_is_refused_does_not_affect_the_others() {
    let indices = TestIndices::new("unrepaired").await;
    let firewall = Firewall::start(indices.server.address()).await;
    let options = ElasticOptions { url: firewall.url.clone(), ..indices.options() };
    let store = Elastic::new(options).expect("good options");
    let events: Vec<Recorded> = (1..=5).map(|n| event(&format!("m{n}"), n, 1)).collect();
    assert_eq!(store.record(&events).await, Ok(vec![]));
    let mut repairs: Vec<_> = events.iter().map(fold::message).collect();
    for repair in &mut repairs {
        (repair.version, repair.reason) = (7, "repaired".to_owned());
    }
    repairs[1].reason = FORBIDDEN.to_owned();
    // No document has this time.
    repairs[3].enqueued_at_ms = -1;
    for _ in 0..2 {
        assert_eq!(store.repair(&repairs).await, Ok(vec![true, false, true, false, true]), "also when repeated");
    }
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let versions: BTreeMap<String, u32> =
        all(&store).await.into_iter().map(|message| (message.id, message.version)).collect();
    let expected = [("m1", 7), ("m2", 1), ("m3", 7), ("m4", 1), ("m5", 7)];
    assert_eq!(versions, expected.map(|(id, version)| (id.to_owned(), version)).into());
    indices.remove().await;
}

/// What the firewall refuses.
const FORBIDDEN: &str = "DROP TABLE";

/// An application firewall in front of a server: it answers 400 to a request with forbidden words in it.
struct Firewall {
    url: String,
    _task: AbortOnDropHandle<()>,
}

impl Firewall {
    async fn start(server: String) -> Firewall {
        let server = server.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("a bound port"));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = server.clone();
                // A connection that a side closes is its end.
                tokio::spawn(async move { filter(client, &server).await });
            }
        });
        Firewall { url, _task: AbortOnDropHandle::new(task) }
    }
}

/// Forwards the requests of a connection, one after the other, or refuses them.
async fn filter(client: TcpStream, server: &str) -> io::Result<()> {
    let mut client = BufReader::new(client);
    loop {
        let (mut head, mut bytes) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if client.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                bytes = value.trim().parse().map_err(io::Error::other)?;
            }
            if line.trim().is_empty() {
                break;
            }
            head += &line;
        }
        let mut body = vec![0; bytes];
        client.read_exact(&mut body).await?;
        if String::from_utf8_lossy(&body).contains(FORBIDDEN) {
            let error = json!({ "error": { "type": "forbidden_words", "reason": "the firewall refuses this" } });
            let error = error.to_string();
            let head = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {}\r\n\r\n", error.len());
            client.write_all((head + &error).as_bytes()).await?;
            continue;
        }
        let mut server = TcpStream::connect(server).await?;
        server.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).await?;
        server.write_all(&body).await?;
        let mut reply = Vec::new();
        server.read_to_end(&mut reply).await?;
        client.write_all(&reply).await?;
    }
}
