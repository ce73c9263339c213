//! Malformed requests are refused with the field that is wrong. (Unit tests next to the code have more of them.)

use super::*;
use tonic::{Code, Status};
use tonic_types::StatusExt;

fn assert_invalid(refused: Status, field: &str) {
    assert_eq!(refused.code(), Code::InvalidArgument, "{field}: {refused:?}");
    let info = refused.get_details_error_info().expect("ErrorInfo");
    assert_eq!((info.domain.as_str(), info.reason.as_str()), ("tallystone", "INVALID_ARGUMENT"), "{field}");
    let violations = refused.get_details_bad_request().expect("BadRequest").field_violations;
    assert_eq!(violations.iter().map(|violation| violation.field.as_str()).collect::<Vec<_>>(), [field]);
    assert!(refused.message().starts_with(&format!("{field}: ")), "{refused:?}");
}

#[tokio::test]
async fn q20_malformed_requests_are_refused_without_a_call_of_the_store() {
    let server = TestServer::open().await;
    let mut client = server.client.clone();
    let queue = || "q".to_owned();
    for (field, request) in [
        ("queue", pb::TraceMessageRequest { queue: String::new(), ..trace_of("m") }),
        ("id", trace_of("")),
        ("id", trace_of(&"x".repeat(201))),
        ("limit", pb::TraceMessageRequest { limit: 10_001, ..trace_of("m") }),
        ("limit", pb::TraceMessageRequest { limit: -1, ..trace_of("m") }),
    ] {
        assert_invalid(client.trace_message(request).await.expect_err(field), field);
    }
    for (field, request) in [
        ("queue", pb::SearchMessagesRequest { queue: "{}".to_owned(), ..Default::default() }),
        ("states[0]", pb::SearchMessagesRequest { states: vec![99], ..Default::default() }),
        ("page_size", pb::SearchMessagesRequest { page_size: 1_001, ..Default::default() }),
        ("reason_contains", pb::SearchMessagesRequest { reason_contains: "\0".to_owned(), ..Default::default() }),
    ] {
        assert_invalid(client.search_messages(request).await.expect_err(field), field);
    }
    for (field, request) in [
        ("queue", pb::QueueStatsRequest::default()),
        ("from_ms", pb::QueueStatsRequest { queue: queue(), from_ms: i64::MIN, ..Default::default() }),
        ("from_ms", pb::QueueStatsRequest { queue: queue(), from_ms: 2, to_ms: 1, interval_ms: 0 }),
        ("interval_ms", pb::QueueStatsRequest { queue: queue(), interval_ms: 1, ..Default::default() }),
    ] {
        assert_invalid(client.queue_stats(request).await.expect_err(field), field);
    }
    let request = pb::IndexedDepthRequest {
        queue: queue(),
        metadata: [(String::new(), "v".to_owned())].into(),
        ..Default::default()
    };
    assert_invalid(client.indexed_depth(request).await.expect_err("metadata"), "metadata");
    let message = pb::IndexedMessage { queue: queue(), id: "m".to_owned(), state: 2, ..Default::default() };
    let request = pb::RepairMessagesRequest { messages: vec![message], settled: vec![] };
    assert_invalid(client.repair_messages(request).await.expect_err("version"), "version");
    let loss = pb::Loss { queue: queue(), shard: 0, lost_to_ms: -1 };
    let request = pb::RepairMessagesRequest { messages: vec![], settled: vec![loss.clone()] };
    assert_invalid(client.repair_messages(request).await.expect_err("lost_to_ms"), "lost_to_ms");
    let request = pb::RepairMessagesRequest { messages: vec![], settled: vec![loss; 1_001] };
    assert_invalid(client.repair_messages(request).await.expect_err("settled"), "settled");
    assert_eq!(*server.store.queries.lock().expect("unpoisoned"), Vec::<String>::new());
}
