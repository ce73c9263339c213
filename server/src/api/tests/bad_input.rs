//! Every kind of bad input: one clear status, nothing changed, and the good items of the same batch go through.

use super::{because, invalid, refused, refused_item};
use crate::config::{QueueTemplate, QueueTemplates};
use crate::testing::*;
use tallystone_model::limits::*;
use tallystone_proto::queue::v1 as pb;
use tallystone_serving::Host;
use tonic::Code;

type ResultOutcome = pb::enqueue_result::Outcome;

fn exclusive(key: &str) -> pb::QueueConfig {
    pb::QueueConfig {
        r#type: pb::QueueType::Exclusive.into(),
        exclusivity_key: key.to_owned(),
        ..pb::QueueConfig::default()
    }
}

fn pairs(count: usize) -> std::collections::BTreeMap<String, String> {
    (0..count).map(|i| (format!("k{i}"), "v".to_owned())).collect()
}

#[tokio::test]
async fn q3_a_bad_message_is_refused_and_its_neighbours_go_through() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let base = || message("bad");
    let bad: Vec<(pb::NewMessage, &str)> = vec![
        (pb::NewMessage { payload: vec![0; PAYLOAD_BYTES_MAX + 1].into(), ..base() }, "payload"),
        (pb::NewMessage { metadata: pairs(5), ..base() }, "metadata"),
        (pb::NewMessage { metadata: [("k".to_owned(), String::new())].into(), ..base() }, "metadata"),
        (pb::NewMessage { metadata: [("k".repeat(65), "v".to_owned())].into(), ..base() }, "metadata"),
        (pb::NewMessage { metadata: [("k".to_owned(), "a\nb".to_owned())].into(), ..base() }, "metadata"),
        (pb::NewMessage { id: "x".repeat(201), ..base() }, "id"),
        (pb::NewMessage { id: "a\u{0}b".to_owned(), ..base() }, "id"),
        (pb::NewMessage { lease_ms: Some(-1), ..base() }, "lease_ms"),
        (pb::NewMessage { lease_ms: Some(0), ..base() }, "lease_ms"),
        (pb::NewMessage { lease_ms: Some(i64::MAX), ..base() }, "lease_ms"),
        (pb::NewMessage { invisibility_ms: Some(-1), ..base() }, "invisibility_ms"),
        (pb::NewMessage { invisibility_ms: Some(i64::MAX), ..base() }, "invisibility_ms"),
        (pb::NewMessage { max_attempts: Some(0), ..base() }, "max_attempts"),
        (pb::NewMessage { max_attempts: Some(i32::MIN), ..base() }, "max_attempts"),
        (pb::NewMessage { max_attempts: Some(1_001), ..base() }, "max_attempts"),
        (pb::NewMessage { priority_class: "urgent".to_owned(), ..base() }, "priority_class"),
        (pb::NewMessage { priority: 1, priority_class: "urgent".to_owned(), ..base() }, "priority_class"),
    ];
    let count = bad.len();
    let fields: Vec<String> = (0..).zip(&bad).map(|(i, (_, field))| format!("messages[{}].{field}", 2 * i)).collect();
    let messages = bad.into_iter().enumerate().flat_map(|(i, (bad, _))| [bad, message(&format!("good-{i}"))]).collect();
    let request = pb::EnqueueRequest { queue: "q".to_owned(), messages };
    let results = server.queue.enqueue(request).await.unwrap().into_inner().results;
    assert_eq!(results.len(), 2 * count);
    for (i, pair) in results.chunks(2).enumerate() {
        let (Some(ResultOutcome::Error(status)), Some(ResultOutcome::Ok(ok))) = (&pair[0].outcome, &pair[1].outcome)
        else {
            panic!("{pair:?}")
        };
        assert_eq!(refused_item(status), invalid(&fields[i]));
        assert_eq!(ok.id, format!("good-{i}"));
    }
    assert_eq!(server.depth("q").await.pending, count as u64);
}

#[tokio::test]
async fn q3_the_extremes_of_int64_sort_exactly_and_a_missing_id_is_made() {
    let mut server = TestServer::start().await;
    let priorities = [i64::MAX, i64::MIN, i64::MAX - 1, i64::MIN + 1, 0];
    let messages = priorities.map(|priority| pb::NewMessage { priority, ..message("") }).to_vec();
    let request = pb::EnqueueRequest { queue: "q".to_owned(), messages };
    for result in server.queue.enqueue(request).await.unwrap().into_inner().results {
        let Some(ResultOutcome::Ok(ok)) = result.outcome else { panic!() };
        assert_eq!(uuid::Uuid::parse_str(&ok.id).unwrap().get_version_num(), 7);
    }
    let leases = server.queue.dequeue(dequeue("q", 10, 0)).await.unwrap().into_inner().leases;
    let order: Vec<i64> = leases.iter().map(|lease| lease.priority).collect();
    assert_eq!(order, [i64::MIN, i64::MIN + 1, 0, i64::MAX - 1, i64::MAX]);
}

#[tokio::test]
async fn q7_calls_as_a_whole() {
    let mut server = TestServer::start().await;
    server.create("q", pb::QueueConfig::default()).await;
    let enqueue = |queue: &str, messages| pb::EnqueueRequest { queue: queue.to_owned(), messages };
    let long = "x".repeat(129);
    let kib_32 = || pb::NewMessage { payload: vec![0; PAYLOAD_BYTES_MAX].into(), ..message("") };
    for (request, field) in [
        (enqueue("", vec![message("a")]), "queue"),
        (enqueue("a b", vec![message("a")]), "queue"),
        (enqueue("a\n", vec![message("a")]), "queue"),
        (enqueue(&long, vec![message("a")]), "queue"),
        (enqueue("q", vec![]), "messages"),
        (enqueue("q", vec![message(""); 1_001]), "messages"),
        (enqueue("q", (0..129).map(|_| kib_32()).collect()), "messages"),
    ] {
        assert_eq!(refused(server.queue.enqueue(request).await), invalid(field));
    }
    let request = || dequeue("q", 1, 0);
    for (request, field) in [
        (dequeue("", 1, 0), "queue"),
        (dequeue("q", 0, 0), "limit"),
        (dequeue("q", -1, 0), "limit"),
        (dequeue("q", 1_001, 0), "limit"),
        (dequeue("q", 1, -1), "wait_ms"),
        (dequeue("q", 1, 300_001), "wait_ms"),
        (pb::DequeueRequest { lease_ms: Some(i64::MIN), ..request() }, "lease_ms"),
        (pb::DequeueRequest { lease_ms: Some(999), ..request() }, "lease_ms"),
        (pb::DequeueRequest { worker: long.clone(), ..request() }, "worker"),
        (pb::DequeueRequest { worker: "a\tb".to_owned(), ..request() }, "worker"),
        (pb::DequeueRequest { request_id: long.clone(), ..request() }, "request_id"),
        (pb::DequeueRequest { filters: vec![filter("k", "v"); 17], ..request() }, "filters"),
        (pb::DequeueRequest { filters: vec![filter("k", "v"), pb::Filter::default()], ..request() }, "filters[1]"),
        (pb::DequeueRequest { filters: vec![filter("", "v")], ..request() }, "filters[0]"),
    ] {
        assert_eq!(refused(server.queue.dequeue(request).await), invalid(field));
    }
    let complete = |leases| pb::CompleteRequest { queue: "q".to_owned(), leases };
    assert_eq!(refused(server.queue.complete(complete(vec![])).await), invalid("leases"));
    let release = pb::ReleaseRequest { queue: "q".to_owned(), releases: vec![pb::LeaseRelease::default(); 1_001] };
    assert_eq!(refused(server.queue.release(release).await), invalid("releases"));
    let extend = pb::ExtendLeaseRequest {
        queue: "q".to_owned(),
        extensions: vec![pb::LeaseExtension::default()],
        request_id: long.clone(),
    };
    assert_eq!(refused(server.queue.extend_lease(extend).await), invalid("request_id"));
    let cancel = pb::CancelRequest { queue: "q".to_owned(), cancellations: vec![] };
    assert_eq!(refused(server.queue.cancel(cancel).await), invalid("cancellations"));
    assert_eq!(server.depth("q").await, pb::StateCounts::default());
    assert_eq!(server.store.calls("enqueue"), 0, "nothing has reached the store");
}

#[tokio::test]
async fn q11_bad_items_of_the_lease_verbs() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a", "b", "c", "d"]).await;
    let leases = server.queue.dequeue(dequeue("q", 4, 0)).await.unwrap().into_inner().leases;
    let fencing_token: Vec<u64> = leases.iter().map(|lease| lease.fencing_token).collect();
    let long = "r".repeat(256);
    let lost = because(Code::FailedPrecondition, "LEASE_LOST");

    let lease = |id: &str, fencing_token| pb::LeaseRef { id: id.to_owned(), fencing_token, ..Default::default() };
    let leases = vec![lease("", 1), lease("a", fencing_token[0]), lease("b", fencing_token[1] + 9), lease("z", 1)];
    let large = pb::LeaseRef { result: vec![0; 1_025].into(), ..lease("b", fencing_token[1]) };
    let leases = leases.into_iter().chain([large]).collect();
    let request = pb::CompleteRequest { queue: "q".to_owned(), leases };
    let results = server.queue.complete(request).await.unwrap().into_inner().results;
    let ids: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
    assert_eq!(ids, ["", "a", "b", "z", "b"]);
    assert_eq!(item(&results[0]).unwrap_err(), invalid("leases[0].id"));
    assert_eq!(item(&results[1]).unwrap().state(), pb::State::Completed);
    assert_eq!(item(&results[2]).unwrap_err(), lost);
    assert_eq!(item(&results[3]).unwrap_err(), because(Code::NotFound, "MESSAGE_NOT_FOUND"));
    assert_eq!(item(&results[4]).unwrap_err(), invalid("leases[4].result"));

    let release = |id: &str, fencing_token| pb::LeaseRelease { id: id.to_owned(), fencing_token, ..Default::default() };
    let releases = vec![
        pb::LeaseRelease { delay_ms: Some(-1), ..release("b", fencing_token[1]) },
        pb::LeaseRelease { delay_ms: Some(i64::MAX), ..release("b", fencing_token[1]) },
        pb::LeaseRelease { reason: long.clone(), ..release("b", fencing_token[1]) },
        pb::LeaseRelease { verdict: 4, ..release("b", fencing_token[1]) },
        pb::LeaseRelease { verdict: 2, delay_ms: Some(0), ..release("b", fencing_token[1]) },
        pb::LeaseRelease { delay_ms: Some(0), ..release("b", fencing_token[1]) },
    ];
    let request = pb::ReleaseRequest { queue: "q".to_owned(), releases };
    let results = server.queue.release(request).await.unwrap().into_inner().results;
    for (i, field) in ["delay_ms", "delay_ms", "reason", "verdict", "delay_ms"].into_iter().enumerate() {
        assert_eq!(item(&results[i]).unwrap_err(), invalid(&format!("releases[{i}].{field}")));
    }
    assert_eq!(item(&results[5]).unwrap().state(), pb::State::Pending);

    let extend = |lease_ms| pb::LeaseExtension { id: "c".to_owned(), fencing_token: fencing_token[2], lease_ms };
    let extensions = vec![extend(Some(0)), extend(Some(i64::MAX)), extend(Some(60_000))];
    let request = pb::ExtendLeaseRequest { queue: "q".to_owned(), extensions, request_id: String::new() };
    let results = server.queue.extend_lease(request).await.unwrap().into_inner().results;
    for (i, result) in results[..2].iter().enumerate() {
        let Some(pb::lease_extension_result::Outcome::Error(status)) = &result.outcome else { panic!() };
        assert_eq!(refused_item(status), invalid(&format!("extensions[{i}].lease_ms")));
    }
    let now_ms = server.store.clock_ms.load(std::sync::atomic::Ordering::SeqCst) as i64;
    let extended = pb::LeaseExtended { lease_expires_at_ms: now_ms + 60_000 };
    assert_eq!(results[2].outcome, Some(pb::lease_extension_result::Outcome::Ok(extended)));

    let cancel = |id: &str| pb::Cancellation { id: id.to_owned(), ..Default::default() };
    let cancellations = vec![
        pb::Cancellation { reason: "a\nb".to_owned(), ..cancel("d") },
        pb::Cancellation { fencing_token: 1, ..cancel("d") },
        cancel("d"),
        cancel("a"),
        pb::Cancellation { force: true, ..cancel("d") },
    ];
    let request = pb::CancelRequest { queue: "q".to_owned(), cancellations };
    let results = server.queue.cancel(request).await.unwrap().into_inner().results;
    let wrong_state = because(Code::FailedPrecondition, "WRONG_STATE");
    assert_eq!(item(&results[0]).unwrap_err(), invalid("cancellations[0].reason"));
    assert_eq!(item(&results[1]).unwrap_err(), lost);
    assert_eq!(item(&results[2]).unwrap_err(), wrong_state, "it is running");
    assert_eq!(item(&results[3]).unwrap_err(), wrong_state, "it has completed");
    assert_eq!(item(&results[4]).unwrap().state(), pb::State::Canceled);
    let depth = pb::StateCounts { pending: 1, running: 1, completed: 1, canceled: 1, ..Default::default() };
    assert_eq!(server.depth("q").await, depth);
}

fn item(result: &pb::TransitionResult) -> Result<pb::Transition, (Code, String, String)> {
    match result.outcome.clone().unwrap() {
        pb::transition_result::Outcome::Ok(transition) => Ok(transition),
        pb::transition_result::Outcome::Error(status) => Err(refused_item(&status)),
    }
}

#[tokio::test]
async fn q2_blocked_full_unknown_and_conflicting() {
    let mut server = TestServer::start().await;
    let config = pb::QueueConfig { max_depth: Some(1), ..Default::default() };
    server.create("full", config).await;
    let results = server.enqueue("full", &["a", "b"]).await;
    let Some(ResultOutcome::Error(status)) = &results[1].outcome else { panic!() };
    assert_eq!(refused_item(status), because(Code::ResourceExhausted, "QUEUE_FULL"));

    let other = pb::NewMessage { priority: 7, ..message("a") };
    let request = pb::EnqueueRequest { queue: "full".to_owned(), messages: vec![other] };
    let results = server.queue.enqueue(request).await.unwrap().into_inner().results;
    let Some(ResultOutcome::Error(status)) = &results[0].outcome else { panic!() };
    assert_eq!(refused_item(status), because(Code::AlreadyExists, "ID_CONFLICT"));

    let blocked = pb::QueueConfig { enqueue_blocked: Some(true), dequeue_blocked: Some(true), ..Default::default() };
    server.create("blocked", blocked).await;
    let request = pb::EnqueueRequest { queue: "blocked".to_owned(), messages: vec![message("a")] };
    let blocked = because(Code::FailedPrecondition, "ENQUEUE_BLOCKED");
    assert_eq!(refused(server.queue.enqueue(request).await), blocked);
    let paused = because(Code::FailedPrecondition, "DEQUEUE_BLOCKED");
    assert_eq!(refused(server.queue.dequeue(dequeue("blocked", 1, 60_000)).await), paused);

    let unknown = because(Code::NotFound, "QUEUE_NOT_FOUND");
    assert_eq!(refused(server.queue.dequeue(dequeue("none", 1, 60_000)).await), unknown);
    let lease = pb::LeaseRef { id: "a".to_owned(), fencing_token: 1, ..Default::default() };
    let request = pb::CompleteRequest { queue: "none".to_owned(), leases: vec![lease] };
    assert_eq!(refused(server.queue.complete(request).await), unknown);
    let request = pb::GetMessageRequest { queue: "full".to_owned(), id: "z".to_owned() };
    assert_eq!(refused(server.admin.get_message(request).await), because(Code::NotFound, "MESSAGE_NOT_FOUND"));

    let request = pb::DeleteQueueRequest { name: "full".to_owned(), force: false };
    let not_empty = because(Code::FailedPrecondition, "QUEUE_NOT_EMPTY");
    assert_eq!(refused(server.admin.delete_queue(request).await), not_empty);
    let request = pb::CreateQueueRequest { name: "full".to_owned(), config: None };
    assert_eq!(refused(server.admin.create_queue(request).await), because(Code::AlreadyExists, "QUEUE_EXISTS"));
}

#[tokio::test]
async fn q4_an_exclusive_queue_takes_only_messages_with_its_key() {
    let template = tallystone_model::QueueConfig {
        queue_type: tallystone_model::QueueType::Exclusive { key: "tail".to_owned() },
        ..Default::default()
    };
    let templates = QueueTemplates(vec![QueueTemplate { prefix: "flights".to_owned(), config: template }]);
    let mut server = TestServer::start_with(Host::new(), TestStore::new(), templates).await;
    let keyed = pb::NewMessage { metadata: [("tail".to_owned(), "N1".to_owned())].into(), ..message("b") };
    let request = pb::EnqueueRequest { queue: "flights/1".to_owned(), messages: vec![message("a"), keyed] };
    let results = server.queue.enqueue(request).await.unwrap().into_inner().results;
    let Some(ResultOutcome::Error(status)) = &results[0].outcome else { panic!() };
    assert_eq!(refused_item(status), invalid("messages[0].metadata"));
    assert!(matches!(results[1].outcome, Some(ResultOutcome::Ok(_))));
    assert_eq!(server.depth("flights/1").await.pending, 1);
}

#[tokio::test]
async fn q2_bad_configurations() {
    let mut server = TestServer::start().await;
    let base = pb::QueueConfig::default;
    let backoff = |kind, base_ms, max_ms, jitter_percent| pb::QueueConfig {
        retry_backoff: Some(pb::RetryBackoff { kind, base_ms, max_ms, jitter_percent }),
        ..base()
    };
    let index = |keys: &[&str]| pb::FilterIndex { keys: keys.iter().map(|key| (*key).to_owned()).collect() };
    let classes = |name: &str, offset_ms, override_key: &str| pb::QueueConfig {
        priority_classes: Some(pb::PriorityClasses {
            offsets_ms: [(name.to_owned(), offset_ms)].into(),
            override_key: override_key.to_owned(),
        }),
        ..base()
    };
    for (config, field) in [
        (pb::QueueConfig { r#type: 9, ..base() }, "config.type"),
        (exclusive(""), "config.exclusivity_key"),
        (exclusive(&"k".repeat(65)), "config.exclusivity_key"),
        (pb::QueueConfig { r#type: 0, ..exclusive("k") }, "config.exclusivity_key"),
        (pb::QueueConfig { r#type: 1, ..exclusive("k") }, "config.exclusivity_key"),
        (pb::QueueConfig { lease_ms: Some(-5), ..base() }, "config.lease_ms"),
        (pb::QueueConfig { lease_ms: Some(i64::MAX), ..base() }, "config.lease_ms"),
        (pb::QueueConfig { invisibility_ms: Some(-1), ..base() }, "config.invisibility_ms"),
        (pb::QueueConfig { max_attempts: Some(0), ..base() }, "config.max_attempts"),
        (pb::QueueConfig { terminal_retention_ms: Some(-1), ..base() }, "config.terminal_retention_ms"),
        (pb::QueueConfig { errored_retention_ms: Some(-1), ..base() }, "config.errored_retention_ms"),
        (pb::QueueConfig { max_errored: Some(0), ..base() }, "config.max_errored"),
        (pb::QueueConfig { max_errored_bytes: Some(0), ..base() }, "config.max_errored_bytes"),
        (pb::QueueConfig { id_window_ms: Some(-1), ..base() }, "config.id_window_ms"),
        (pb::QueueConfig { shards: Some(65), ..base() }, "config.shards"),
        (pb::QueueConfig { shards: Some(65_537), ..base() }, "config.shards"),
        (pb::QueueConfig { max_depth: Some(-1), ..base() }, "config.max_depth"),
        (backoff(0, 1, 1, 0), "config.retry_backoff.kind"),
        (backoff(7, 1, 1, 0), "config.retry_backoff.kind"),
        (backoff(2, -1, 1, 0), "config.retry_backoff.base_ms"),
        (backoff(3, 10, 5, 0), "config.retry_backoff.max_ms"),
        (backoff(3, 10, 50, 101), "config.retry_backoff.jitter_percent"),
        (classes("c", i64::MIN, ""), "config.priority_classes.offsets_ms"),
        (classes("", 0, ""), "config.priority_classes.offsets_ms"),
        (classes("c", 0, &"k".repeat(65)), "config.priority_classes.override_key"),
        (pb::QueueConfig { indexes: vec![index(&[])], ..base() }, "config.indexes"),
        (
            pb::QueueConfig { indexes: (0..17).map(|i| index(&[&format!("k{i}")])).collect(), ..base() },
            "config.indexes",
        ),
    ] {
        let request = pb::CreateQueueRequest { name: "q".to_owned(), config: Some(config) };
        assert_eq!(refused(server.admin.create_queue(request).await), invalid(field));
    }
    let request = pb::GetQueueRequest { name: "q".to_owned() };
    assert_eq!(refused(server.admin.get_queue(request).await), because(Code::NotFound, "QUEUE_NOT_FOUND"));

    server.create("q", base()).await;
    for paths in [&[][..], &["nonsense"], &["type"], &["exclusivity_key"], &["lease_ms", "lease"]] {
        let paths = paths.iter().map(|path| (*path).to_owned()).collect();
        let update_mask = Some(prost_types::FieldMask { paths });
        let request = pb::UpdateQueueRequest { name: "q".to_owned(), config: None, update_mask };
        assert_eq!(refused(server.admin.update_queue(request).await), invalid("update_mask"));
    }
    for (shards, field) in [(None, "config.shards"), (Some(0), "config.shards"), (Some(65), "config.shards")] {
        let update_mask = Some(prost_types::FieldMask { paths: vec!["shards".to_owned()] });
        let config = Some(pb::QueueConfig { shards, ..base() });
        let request = pb::UpdateQueueRequest { name: "q".to_owned(), config, update_mask };
        assert_eq!(refused(server.admin.update_queue(request).await), invalid(field), "{shards:?}");
    }
    let update_mask = Some(prost_types::FieldMask { paths: vec!["lease_ms".to_owned()] });
    let config = Some(pb::QueueConfig { lease_ms: Some(5), ..base() });
    let request = pb::UpdateQueueRequest { name: "q".to_owned(), config, update_mask };
    assert_eq!(refused(server.admin.update_queue(request).await), invalid("config.lease_ms"));
    let request = pb::GetQueueRequest { name: "q".to_owned() };
    assert_eq!(server.admin.get_queue(request).await.unwrap().into_inner().queue.unwrap().revision, 1);
}

#[tokio::test]
async fn q7_bad_input_of_the_operators_verbs() {
    let mut server = TestServer::start().await;
    server.enqueue("q", &["a"]).await;
    let queue = || "q".to_owned();
    let list = |state, page_size, page_token: &str| pb::ListMessagesRequest {
        queue: queue(),
        state,
        page_size,
        page_token: page_token.to_owned(),
    };
    for (request, field) in [
        (list(0, 0, ""), "state"),
        (list(7, 0, ""), "state"),
        (list(-1, 0, ""), "state"),
        (list(2, -1, ""), "page_size"),
        (list(2, 1_001, ""), "page_size"),
        (list(2, 0, "\u{7}"), "page_token"),
    ] {
        assert_eq!(refused(server.admin.list_messages(request).await), invalid(field));
    }
    let queues = |prefix: &str, page_size| pb::ListQueuesRequest {
        prefix: prefix.to_owned(),
        page_size,
        page_token: String::new(),
    };
    assert_eq!(refused(server.admin.list_queues(queues("a\nb", 0)).await), invalid("prefix"));
    assert_eq!(refused(server.admin.list_queues(queues("", i32::MIN)).await), invalid("page_size"));
    let update = |id: &str, priority, visible_at_ms| pb::UpdateMessageRequest {
        queue: queue(),
        id: id.to_owned(),
        priority,
        visible_at_ms,
    };
    assert_eq!(refused(server.admin.update_message(update("a", None, None)).await), invalid("priority"));
    assert_eq!(refused(server.admin.update_message(update("a", None, Some(-1))).await), invalid("visible_at_ms"));
    assert_eq!(refused(server.admin.update_message(update("a", None, Some(i64::MAX))).await), invalid("visible_at_ms"));
    assert_eq!(refused(server.admin.update_message(update("", Some(1), None)).await), invalid("id"));
    let depth = pb::DepthRequest { queue: queue(), filter: Some(filter("k", "")) };
    assert_eq!(refused(server.admin.depth(depth).await), invalid("filter"));
    let request = pb::RedriveRequest { queue: queue(), ids: vec![] };
    assert_eq!(refused(server.admin.redrive(request).await), invalid("ids"));
    let request = pb::RedriveRequest { queue: queue(), ids: vec!["".to_owned(), "a".to_owned()] };
    let results = server.admin.redrive(request).await.unwrap().into_inner().results;
    assert_eq!(item(&results[0]).unwrap_err(), invalid("ids[0].id"));
    assert_eq!(item(&results[1]).unwrap_err(), because(Code::FailedPrecondition, "WRONG_STATE"));
    for name in ["", "a b"] {
        let name = name.to_owned();
        let request = pb::PurgeQueueRequest { name: name.clone(), include_running: false };
        assert_eq!(refused(server.admin.purge_queue(request).await), invalid("name"));
        let request = pb::CheckQueueRequest { queue: name, cursor: String::new() };
        assert_eq!(refused(server.admin.check_queue(request).await), invalid("queue"));
    }
    assert_eq!(server.depth("q").await.pending, 1);
}
