//! What the answers carry.

use super::*;
use std::time::{SystemTime, UNIX_EPOCH};
use tallystone_indexer::Source;

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as u64
}

/// The watermark of an answer of every RPC.
async fn watermarks(desk: &Desk) -> [pb::Watermark; 4] {
    let mut client = desk.client.clone();
    let queue = || "q".to_owned();
    let trace = client.trace_message(trace_of("m")).await.expect("an answer").into_inner();
    let search = client.search_messages(pb::SearchMessagesRequest::default()).await.expect("an answer").into_inner();
    let request = pb::QueueStatsRequest { queue: queue(), ..Default::default() };
    let stats = client.queue_stats(request).await.expect("an answer").into_inner();
    let request = pb::IndexedDepthRequest { queue: queue(), ..Default::default() };
    let depth = client.indexed_depth(request).await.expect("an answer").into_inner();
    [trace.watermark, search.watermark, stats.watermark, depth.watermark].map(|watermark| watermark.expect("always"))
}

#[tokio::test]
async fn q20_every_answer_says_how_far_it_goes() {
    let desk = Desk::open().await;
    for watermark in watermarks(&desk).await {
        assert_eq!(watermark, pb::Watermark::default(), "nothing is known yet");
    }
    let only = Source { number: 0, of: 1 };
    desk.store.advance(only, now_ms() - 60_000).await.expect("progress");
    for watermark in watermarks(&desk).await {
        let behind_ms = watermark.behind_ms.expect("known");
        assert!((60_000..90_000).contains(&behind_ms), "{watermark:?}");
    }
    desk.store.advance(only, now_ms() + 60_000).await.expect("progress");
    for watermark in watermarks(&desk).await {
        assert_eq!(watermark.behind_ms, Some(0), "another clock is ahead of ours");
    }
}

#[tokio::test]
async fn q20_the_watermark_is_read_before_the_question_is_asked() {
    let desk = Desk::open().await;
    watermarks(&desk).await;
    let asked = desk.store.asked.lock().expect("unpoisoned").clone();
    let kinds: Vec<&str> = asked.iter().map(|what| what.split(' ').next().expect("a word")).collect();
    let questions = ["TraceQuery", "SearchQuery", "StatsQuery", "DepthQuery"];
    assert_eq!(kinds, questions.map(|question| ["watermark", question]).concat());
}

#[tokio::test]
async fn q20_a_trace_names_the_versions_that_are_missing() {
    let desk = Desk::open().await;
    desk.record(&[event("m", 7, 2), event("m", 7, 3), event("m", 7, 6), event("m", 9, 1)]).await;
    let mut client = desk.client.clone();
    let answer = client.trace_message(trace_of("m")).await.expect("an answer").into_inner();
    let gap = |sequence, first_version, last_version| pb::Gap { sequence, first_version, last_version };
    assert_eq!(answer.gaps, [gap(7, 1, 1), gap(7, 4, 5)]);
    let versions: Vec<_> = answer.transitions.iter().map(|row| (row.sequence, row.version)).collect();
    assert_eq!(versions, [(7, 2), (7, 3), (7, 6), (9, 1)]);
    assert_eq!(answer.message.expect("it is known").sequence, 9);
    let request = pb::TraceMessageRequest { sequence: 9, ..trace_of("m") };
    let answer = client.trace_message(request).await.expect("an answer").into_inner();
    assert_eq!((answer.transitions.len(), answer.gaps), (1, vec![]));
    let answer = client.trace_message(trace_of("unknown")).await.expect("an answer, not an error").into_inner();
    assert_eq!((answer.transitions, answer.message, answer.next_page_token), (vec![], None, String::new()));
}

#[tokio::test]
async fn q20_stats_are_of_the_last_hour_unless_asked_otherwise() {
    let desk = Desk::open().await;
    let mut client = desk.client.clone();
    let up_to_ms = now_ms() - 5_000;
    desk.store.advance(Source { number: 0, of: 1 }, up_to_ms).await.expect("progress");
    let request = pb::QueueStatsRequest { queue: "q".to_owned(), interval_ms: 1_000_000, ..Default::default() };
    let answer = client.queue_stats(request).await.expect("an answer").into_inner();
    let total = answer.total.expect("always");
    let up_to_ms = up_to_ms as i64;
    assert_eq!((total.from_ms, total.to_ms), (up_to_ms - 3_600_000, up_to_ms));
    assert_eq!(answer.intervals.len(), 4);
    assert_eq!(answer.intervals.last().map(|last| (last.from_ms, last.to_ms)), Some((up_to_ms - 600_000, up_to_ms)));
}
