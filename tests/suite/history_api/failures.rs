//! A store that is away, broken or slow.

use super::*;
use std::time::Duration;
use tallystone_indexer::HistoryError;
use tonic::{Code, Request};
use tonic_types::StatusExt;

#[tokio::test]
async fn q20_a_store_that_fails_is_a_status_with_its_reason() {
    let desk = Desk::open().await;
    let mut client = desk.client.clone();
    for (failure, code, reason) in [
        (HistoryError::Unavailable("away".to_owned()), Code::Unavailable, "HISTORY_UNAVAILABLE"),
        (HistoryError::Failed("broken".to_owned()), Code::Internal, "HISTORY_FAILED"),
    ] {
        *desk.store.failure.lock().expect("unpoisoned") = Some(failure);
        let failed = client.trace_message(trace_of("m")).await.expect_err(reason);
        let info = failed.get_details_error_info().expect("ErrorInfo");
        assert_eq!((failed.code(), info.reason.as_str(), info.domain.as_str()), (code, reason, "tallystone"));
    }
    *desk.store.failure.lock().expect("unpoisoned") = None;
    client.trace_message(trace_of("m")).await.expect("it is back");
}

#[tokio::test]
async fn q20_a_callers_deadline_ends_the_work_for_it() {
    let desk = Desk::open().await;
    let mut client = desk.client.clone();
    let closed = desk.store.gate.lock().await;
    let mut request = Request::new(trace_of("m"));
    // As a header, which the server reads, rather than as a timeout, which ends the wait here.
    request.metadata_mut().insert("grpc-timeout", "500m".parse().expect("a header"));
    let waited = tokio::time::timeout(Duration::from_secs(20), client.trace_message(request));
    let late = waited.await.expect("an answer in time").expect_err("the gate is closed");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert_eq!(late.get_details_error_info().expect("ErrorInfo").reason, "HISTORY_TOO_SLOW");
    drop(closed);
    client.trace_message(trace_of("m")).await.expect("the gate is open");
}
