//! The contents of responses.

use super::*;
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_indexer::Source;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// The watermark of a response of every RPC.
async fn watermarks(server: &TestServer) -> [pb::Watermark; 4] {
    let mut client = server.client.clone();
    let queue = || "q".to_owned();
    let trace = client.trace_message(trace_of("m")).await.expect("a response").into_inner();
    let search = client.search_messages(pb::SearchMessagesRequest::default()).await.expect("a response").into_inner();
    let request = pb::QueueStatsRequest { queue: queue(), ..Default::default() };
    let stats = client.queue_stats(request).await.expect("a response").into_inner();
    let request = pb::IndexedDepthRequest { queue: queue(), ..Default::default() };
    let depth = client.indexed_depth(request).await.expect("a response").into_inner();
    [trace.watermark, search.watermark, stats.watermark, depth.watermark].map(|watermark| watermark.expect("always"))
}

#[tokio::test]
async fn q20_every_response_has_a_watermark() {
    let server = TestServer::open().await;
    for watermark in watermarks(&server).await {
        assert_eq!(watermark, pb::Watermark::default(), "no source has a watermark yet");
    }
    let only = Source { number: 0, of: 1 };
    server.store.advance(only, now_ms() - 60_000).await.expect("progress");
    for watermark in watermarks(&server).await {
        let behind_ms = watermark.behind_ms.expect("known");
        assert!((60_000..90_000).contains(&behind_ms), "{watermark:?}");
    }
    server.store.advance(only, now_ms() + 60_000).await.expect("progress");
    for watermark in watermarks(&server).await {
        assert_eq!(watermark.behind_ms, Some(0), "the clock of Redis is ahead");
    }
}

#[tokio::test]
async fn q20_the_watermark_is_read_before_the_query_runs() {
    let server = TestServer::open().await;
    watermarks(&server).await;
    let queries = server.store.queries.lock().expect("unpoisoned").clone();
    let kinds: Vec<&str> = queries.iter().map(|query| query.split(' ').next().expect("a word")).collect();
    let expected = ["TraceQuery", "SearchQuery", "StatsQuery", "DepthQuery"];
    assert_eq!(kinds, expected.map(|query| ["watermark", query]).concat());
}

#[tokio::test]
async fn q20_a_trace_reports_missing_versions() {
    let server = TestServer::open().await;
    server.record(&[event("m", 7, 2), event("m", 7, 3), event("m", 7, 6), event("m", 9, 1)]).await;
    let mut client = server.client.clone();
    let response = client.trace_message(trace_of("m")).await.expect("a response").into_inner();
    let gap = |sequence, first_version, last_version| pb::Gap { sequence, first_version, last_version };
    assert_eq!(response.gaps, [gap(7, 1, 1), gap(7, 4, 5)]);
    let versions: Vec<_> = response.transitions.iter().map(|row| (row.sequence, row.version)).collect();
    assert_eq!(versions, [(7, 2), (7, 3), (7, 6), (9, 1)]);
    assert_eq!(response.message.expect("a message").sequence, 9);
    let request = pb::TraceMessageRequest { sequence: 9, ..trace_of("m") };
    let response = client.trace_message(request).await.expect("a response").into_inner();
    assert_eq!((response.transitions.len(), response.gaps), (1, vec![]));
    let response = client.trace_message(trace_of("unknown")).await.expect("a response, not an error").into_inner();
    assert_eq!((response.transitions, response.message, response.next_page_token), (vec![], None, String::new()));
}

#[tokio::test]
async fn q20_stats_are_of_the_last_hour_by_default() {
    let server = TestServer::open().await;
    let mut client = server.client.clone();
    let up_to_ms = now_ms() - 5_000;
    server.store.advance(Source { number: 0, of: 1 }, up_to_ms).await.expect("progress");
    let request = pb::QueueStatsRequest { queue: "q".to_owned(), interval_ms: 1_000_000, ..Default::default() };
    let response = client.queue_stats(request).await.expect("a response").into_inner();
    let total = response.total.expect("always");
    let up_to_ms = up_to_ms as i64;
    assert_eq!((total.from_ms, total.to_ms), (up_to_ms - 3_600_000, up_to_ms));
    assert_eq!(response.intervals.len(), 4);
    assert_eq!(response.intervals.last().map(|last| (last.from_ms, last.to_ms)), Some((up_to_ms - 600_000, up_to_ms)));
}

#[tokio::test]
async fn q20_every_response_says_which_messages_are_uncertain() {
    let server = TestServer::open().await;
    server.record(&[event("early", 1, 1), event("late", 2, 1), event("late", 2, 2)]).await;
    let mut client = server.client.clone();
    let mut uncertain = async || {
        let search = client.search_messages(pb::SearchMessagesRequest::default()).await.expect("a response");
        let found = search.into_inner().messages.into_iter().filter(|message| message.uncertain);
        let found: Vec<String> = found.map(|message| message.id).collect();
        let trace = client.trace_message(trace_of("early")).await.expect("a response").into_inner();
        assert_eq!(trace.message.expect("a message").uncertain, found.contains(&"early".to_owned()));
        let request = pb::IndexedDepthRequest { queue: "q".to_owned(), ..Default::default() };
        let depth = client.indexed_depth(request).await.expect("a response").into_inner();
        assert_eq!(depth.uncertain.is_some(), !depth.losses.is_empty());
        (found, depth.losses)
    };
    assert_eq!(uncertain().await, (vec![], vec![]));
    let queue = |name: &str| QueueName::parse("queue", name).expect("a name");
    let loss = |name: &str| Loss { shard: Shard { queue: queue(name), number: 0 }, lost_to_ms: NOON_MS + 1 };
    server.store.record_losses(&[loss("another")]).await.expect("recorded");
    assert_eq!(uncertain().await, (vec![], vec![]));
    server.store.record_losses(&[loss("q")]).await.expect("recorded");
    let wire = pb::Loss { queue: "q".to_owned(), shard: 0, lost_to_ms: NOON_MS as i64 + 1 };
    assert_eq!(uncertain().await, (vec!["early".to_owned()], vec![wire.clone()]));
    let request = pb::RepairMessagesRequest { settled: vec![wire], ..Default::default() };
    server.client.clone().repair_messages(request).await.expect("settled");
    assert_eq!(uncertain().await, (vec![], vec![]));
}
