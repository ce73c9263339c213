//! A store that is unavailable, broken or slow.

use super::*;
use std::time::Duration;
use tallystone_indexer::HistoryError;
use tonic::{Code, Request};
use tonic_types::StatusExt;

#[tokio::test]
async fn q20_a_failing_store_becomes_a_status_with_its_reason() {
    let server = TestServer::open().await;
    let mut client = server.client.clone();
    for (failure, code, reason) in [
        (HistoryError::Unavailable("away".to_owned()), Code::Unavailable, "HISTORY_UNAVAILABLE"),
        (HistoryError::Failed("broken".to_owned()), Code::Internal, "HISTORY_FAILED"),
    ] {
        *server.store.failure.lock().expect("unpoisoned") = Some(failure);
        let failed = client.trace_message(trace_of("m")).await.expect_err(reason);
        let info = failed.get_details_error_info().expect("ErrorInfo");
        assert_eq!((failed.code(), info.reason.as_str(), info.domain.as_str()), (code, reason, "tallystone"));
    }
    *server.store.failure.lock().expect("unpoisoned") = None;
    client.trace_message(trace_of("m")).await.expect("the store is available again");
}

#[tokio::test]
async fn q20_the_callers_deadline_cancels_the_query() {
    let server = TestServer::open().await;
    let mut client = server.client.clone();
    let closed = server.store.gate.lock().await;
    let mut request = Request::new(trace_of("m"));
    // Set as a header, which the server reads, and not as a timeout, which would end the call in the client.
    request.metadata_mut().insert("grpc-timeout", "500m".parse().expect("a header"));
    let waited = tokio::time::timeout(Duration::from_secs(20), client.trace_message(request));
    let late = waited.await.expect("a response in time").expect_err("the gate is closed");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(late.get_details_error_info().expect("ErrorInfo").reason, "HISTORY_TOO_SLOW");
    drop(closed);
    client.trace_message(trace_of("m")).await.expect("the gate is open");
}
