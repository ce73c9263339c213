//! Each verb once as it should go, combining, idempotence, retries over an outage.

use super::{because, refused};
use crate::testing::*;
use std::sync::atomic::Ordering;
use tallystone_proto::queue::v1 as pb;
use tonic::Code;

#[tokio::test]
async fn q5_a_message_goes_through_its_life() {
    let mut server = TestServer::start().await;
    let metadata = std::collections::BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let sent = pb::NewMessage { payload: vec![1, 2, 3].into(), metadata: metadata.clone(), ..message("a") };
    let request = pb::EnqueueRequest { queue: "q".to_owned(), messages: vec![sent] };
    let mut first = server.queue.enqueue(request.clone()).await.unwrap().into_inner();
    let Some(pb::enqueue_result::Outcome::Ok(enqueued)) = &mut first.results[0].outcome else { panic!() };
    assert!(std::mem::take(&mut enqueued.queue_created), "Q1: the first Enqueue creates the queue, and says so");
    assert_eq!(server.queue.enqueue(request).await.unwrap().into_inner(), first, "Q10: the same answer");

    let request = pb::DequeueRequest { request_id: "r1".to_owned(), ..dequeue("q", 5, 0) };
    let leases = server.queue.dequeue(request.clone()).await.unwrap().into_inner().leases;
    assert_eq!((leases[0].payload.as_ref(), &leases[0].metadata), (&[1_u8, 2, 3][..], &metadata));
    assert_eq!(server.queue.dequeue(request).await.unwrap().into_inner().leases, leases, "Q10: the same leases");

    let explain = pb::ExplainRequest { queue: "q".to_owned(), id: "a".to_owned() };
    let explained = server.admin.explain(explain).await.unwrap().into_inner();
    assert_eq!(explained.hindrances[0].kind(), pb::hindrance::Kind::Running);
    assert_eq!(explained.message.unwrap().worker, "w");

    let lease = pb::LeaseRef { id: "a".to_owned(), fencing_token: leases[0].fencing_token, ..Default::default() };
    let complete = pb::CompleteRequest { queue: "q".to_owned(), leases: vec![lease] };
    let completed = server.queue.complete(complete.clone()).await.unwrap().into_inner();
    assert_eq!(server.queue.complete(complete).await.unwrap().into_inner(), completed, "Q10");
    let list =
        pb::ListMessagesRequest { queue: "q".to_owned(), state: pb::State::Completed.into(), ..Default::default() };
    let listed = server.admin.list_messages(list).await.unwrap().into_inner().messages;
    assert_eq!((listed.len(), listed[0].state()), (1, pb::State::Completed));

    let cancel = pb::Cancellation { id: "b".to_owned(), ..Default::default() };
    server.enqueue("q", &["b"]).await;
    let request = pb::CancelRequest { queue: "q".to_owned(), cancellations: vec![cancel] };
    server.queue.cancel(request).await.unwrap();
    let request = pb::RedriveRequest { queue: "q".to_owned(), ids: vec!["b".to_owned()] };
    server.admin.redrive(request).await.unwrap();
    let request =
        pb::UpdateMessageRequest { queue: "q".to_owned(), id: "b".to_owned(), priority: Some(-9), visible_at_ms: None };
    server.admin.update_message(request).await.unwrap();
    let request = pb::GetMessageRequest { queue: "q".to_owned(), id: "b".to_owned() };
    let b = server.admin.get_message(request).await.unwrap().into_inner().message.unwrap();
    assert_eq!((b.state(), b.priority), (pb::State::Pending, -9));

    let request = pb::CheckQueueRequest { queue: "q".to_owned(), cursor: String::new() };
    let checked = server.admin.check_queue(request).await.unwrap().into_inner();
    assert_eq!((checked.checked, checked.violations.len()), (2, 0));
    let request = pb::PurgeQueueRequest { name: "q".to_owned(), include_running: false };
    let purged = server.admin.purge_queue(request).await.unwrap().into_inner();
    assert!(!purged.more);
    assert_eq!(server.depth("q").await, pb::StateCounts::default());
    let request = pb::ListQueuesRequest::default();
    let listed = server.admin.list_queues(request).await.unwrap().into_inner().queues;
    assert_eq!(listed[0].queue.as_ref().unwrap().name, "q");
    assert_eq!(listed[0].depth, Some(pb::StateCounts::default()));
}

#[tokio::test]
async fn q2_a_configuration_comes_back_as_it_was_given() {
    let mut server = TestServer::start().await;
    let config = pb::QueueConfig {
        r#type: pb::QueueType::Exclusive.into(),
        exclusivity_key: "tail".to_owned(),
        lease_ms: Some(5_000),
        invisibility_ms: Some(7),
        max_attempts: Some(3),
        enqueue_blocked: Some(false),
        dequeue_blocked: Some(true),
        terminal_retention_ms: Some(0),
        errored_retention_ms: Some(1),
        max_errored: Some(2),
        max_errored_bytes: Some(3),
        id_window_ms: Some(4),
        shards: Some(1),
        retry_backoff: Some(pb::RetryBackoff {
            kind: pb::retry_backoff::Kind::Exponential.into(),
            base_ms: 100,
            max_ms: 1_000,
            jitter_percent: 10,
        }),
        max_depth: Some(9),
        indexes: vec![pb::FilterIndex { keys: vec!["carrier".to_owned(), "origin".to_owned()] }],
        priority_classes: Some(pb::PriorityClasses {
            offsets_ms: [("urgent".to_owned(), -5)].into(),
            override_key: "tier".to_owned(),
        }),
    };
    server.create("q", config.clone()).await;
    server.create("q", config.clone()).await;
    let request = pb::GetQueueRequest { name: "q".to_owned() };
    let info = server.admin.get_queue(request).await.unwrap().into_inner().queue.unwrap();
    assert_eq!(info.config, Some(config.clone()));
    // What GetQueue answers may be sent back, and a named field that is absent goes back to its default.
    let paths = ["max_attempts", "dequeue_blocked", "indexes"].map(str::to_owned).to_vec();
    let changed = pb::QueueConfig { max_attempts: None, dequeue_blocked: Some(false), indexes: vec![], ..config };
    let request = pb::UpdateQueueRequest {
        name: "q".to_owned(),
        config: Some(changed.clone()),
        update_mask: Some(prost_types::FieldMask { paths }),
    };
    let info = server.admin.update_queue(request).await.unwrap().into_inner().queue.unwrap();
    assert_eq!(info.config, Some(pb::QueueConfig { max_attempts: Some(5), ..changed }));
    assert_eq!(info.revision, 2);
}

#[tokio::test]
async fn concurrent_calls_travel_together() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    server.store.gate.send_replace(false);
    let call = |server: &TestServer, id: String| {
        let mut queue = server.queue.clone();
        tokio::spawn(async move {
            let request = pb::EnqueueRequest { queue: "q".to_owned(), messages: vec![message(&id)] };
            queue.enqueue(request).await.unwrap().into_inner().results
        })
    };
    // Two flushes are in the store; whatever comes now waits for one of them.
    let mut calls = vec![call(&server, "0".to_owned())];
    server.store.called("enqueue", 1).await;
    calls.push(call(&server, "1".to_owned()));
    server.store.called("enqueue", 2).await;
    calls.extend((2..100).map(|i| call(&server, i.to_string())));
    // A call that is answered without the store is behind them all on the same connection.
    for _ in 0..3 {
        assert!(server.queue.enqueue(pb::EnqueueRequest::default()).await.is_err());
    }
    server.store.gate.send_replace(true);
    for (i, call) in calls.into_iter().enumerate() {
        let results = call.await.unwrap();
        let Some(pb::enqueue_result::Outcome::Ok(ok)) = &results[0].outcome else { panic!() };
        assert_eq!(ok.id, i.to_string(), "each caller gets its own");
    }
    assert_eq!(server.depth("q").await.pending, 100);
    let calls = server.store.calls("enqueue");
    assert!(calls < 20, "{calls} store calls for 100 callers");
}

#[tokio::test]
async fn q1_delete_and_enqueue_again_creates_the_queue_again() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a", "b"]).await;
    server.queue.dequeue(dequeue("q", 1, 0)).await.unwrap();
    let request = pb::DeleteQueueRequest { name: "q".to_owned(), force: true };
    server.admin.delete_queue(request).await.unwrap();
    let request = pb::GetQueueRequest { name: "q".to_owned() };
    assert_eq!(refused(server.admin.get_queue(request).await), because(Code::NotFound, "QUEUE_NOT_FOUND"));
    server.enqueue("q", &["a"]).await;
    assert_eq!(server.depth("q").await.pending, 1);
}

#[tokio::test]
async fn a_store_that_is_unavailable_says_whether_it_wrote_and_comes_back_by_itself() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    server.store.away.store(true, Ordering::SeqCst);
    let request = pb::EnqueueRequest { queue: "q".to_owned(), messages: vec![message("a")] };
    let status = server.queue.enqueue(request).await.unwrap_err();
    let details = tonic_types::StatusExt::get_error_details(&status);
    let info = details.error_info().unwrap();
    assert_eq!((status.code(), info.reason.as_str()), (Code::Unavailable, "STORE_UNAVAILABLE"));
    assert_eq!(info.metadata["applied"], "no");
    // A call that may wait also waits for the store; another one gets the error.
    let away = because(Code::Unavailable, "STORE_UNAVAILABLE");
    assert_eq!(refused(server.queue.dequeue(dequeue("q", 1, 0)).await), away);
    assert_eq!(refused(server.queue.dequeue(dequeue("q", 1, 50)).await), away);
    let mut queue = server.queue.clone();
    let waiting = tokio::spawn(async move { queue.dequeue(dequeue("q", 1, 60_000)).await });
    server.store.called("dequeue", server.store.calls("dequeue") + 2).await;
    server.store.away.store(false, Ordering::SeqCst);
    server.enqueue("q", &["a"]).await;
    assert_eq!(waiting.await.unwrap().unwrap().into_inner().leases[0].id, "a");
}

#[tokio::test]
async fn q17_a_redrive_of_which_a_shard_is_unavailable_is_to_be_repeated() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig { shards: Some(4), ..pb::QueueConfig::default() }).await;
    let ids: Vec<String> = (0..20).map(|n| format!("m{n}")).collect();
    server.enqueue("q", &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let cancellations = ids.iter().map(|id| pb::Cancellation { id: id.clone(), ..Default::default() }).collect();
    server.queue.cancel(pb::CancelRequest { queue: "q".to_owned(), cancellations }).await.unwrap();
    let request = pb::RedriveRequest { queue: "q".to_owned(), ids };
    server.store.away_shards.store(0b100, Ordering::SeqCst);
    let refused = server.admin.redrive(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    server.store.away_shards.store(0, Ordering::SeqCst);
    server.admin.redrive(request).await.unwrap();
    assert_eq!(server.depth("q").await.pending, 20);
}

#[tokio::test]
async fn q17_the_number_of_shards_of_a_simple_queue_changes() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig { shards: Some(4), ..pb::QueueConfig::default() }).await;
    server.enqueue("q", &["a"]).await;
    let update = |shards| pb::UpdateQueueRequest {
        name: "q".to_owned(),
        config: Some(pb::QueueConfig { shards: Some(shards), ..pb::QueueConfig::default() }),
        update_mask: Some(prost_types::FieldMask { paths: vec!["shards".to_owned()] }),
    };
    let changed = server.admin.update_queue(update(7)).await.unwrap().into_inner().queue.unwrap();
    assert_eq!((changed.config.as_ref().unwrap().shards, changed.shards_draining), (Some(7), 4));
    let again = server.admin.update_queue(update(7)).await.unwrap().into_inner().queue.unwrap();
    assert_eq!(again, changed);
    let refused = server.admin.update_queue(update(3)).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "{refused:?}");
    // What GetQueue answers may be sent back.
    let config = pb::QueueConfig { lease_ms: Some(7_000), ..changed.config.unwrap() };
    let update_mask = Some(prost_types::FieldMask { paths: vec!["lease_ms".to_owned()] });
    let request = pb::UpdateQueueRequest { name: "q".to_owned(), config: Some(config), update_mask };
    let changed = server.admin.update_queue(request).await.unwrap().into_inner().queue.unwrap();
    assert_eq!((changed.config.unwrap().shards, changed.shards_draining), (Some(7), 4));
    server.enqueue("q", &["a", "b", "c"]).await;
    assert_eq!(server.depth("q").await.pending, 3);
    let leased = server.queue.dequeue(dequeue("q", 9, 0)).await.unwrap().into_inner().leases;
    assert!(!leased.is_empty());
}
