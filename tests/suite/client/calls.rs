//! Every call of the client.

use crate::client::harness::{World, soon};
use std::time::Duration;
use tallystone_client::{
    Applied, Cancellation, Client, Code, Completion, Dequeue, Error, Extension, Filter, HindranceKind, LeaseRef,
    MessagePatch, NewMessage, QueueConfig, QueueType, Release, State,
};

#[tokio::test]
async fn q8_the_calls_of_producers_and_workers() {
    let World { client, wire: _wire, .. } = &World::new().await;
    client.create_queue("q", QueueConfig::simple()).await.unwrap();
    let messages: Vec<NewMessage> =
        (0..4).map(|n| NewMessage::new(format!("m{n}"), format!("payload {n}")).priority(-n)).collect();
    let first = client.enqueue("q", messages.clone()).await.unwrap();
    assert_eq!(client.enqueue("q", messages).await.unwrap(), first, "Q10: the same again");

    let dequeue = Dequeue::new("q").worker("me").limit(4).lease_ms(5_000).wait_ms(1_000).request_id("once");
    let leases = client.dequeue(dequeue.clone()).await.unwrap();
    assert_eq!(client.dequeue(dequeue).await.unwrap(), leases, "Q10: the same again");
    let ids: Vec<&str> = leases.iter().map(|lease| lease.id.as_str()).collect();
    assert_eq!(ids, ["m3", "m2", "m1", "m0"], "the most urgent first");
    assert_eq!((leases[0].attempt, &leases[0].payload[..]), (1, &b"payload 3"[..]));
    assert_eq!(leases[0].lease_expires_at_ms - leases[0].leased_at_ms, 5_000);

    let extended = client.extend_lease("q", vec![Extension::of(&leases[0]).lease_ms(9_000)]).await.unwrap();
    assert_eq!(extended[0].as_ref().unwrap().lease_expires_at_ms, leases[0].leased_at_ms + 9_000);
    let stale = LeaseRef { fencing_token: leases[1].fencing_token - 1, ..leases[1].lease_ref() };
    let completed = client.complete("q", vec![Completion::of(&leases[0]).result("done"), stale.into()]).await.unwrap();
    assert_eq!(completed[0].as_ref().unwrap().state, State::Completed);
    let lost = completed[1].as_ref().unwrap_err();
    assert!(lost.is_lease_lost() && lost.code == Code::FailedPrecondition, "{lost:?}");

    assert_eq!(client.get_message("q", "m3").await.unwrap().result, "done");

    let release = Release::of(&leases[1]).reason("busy").delay_ms(60_000);
    let released = client.release("q", vec![release]).await.unwrap();
    assert_eq!(released[0].as_ref().unwrap().state, State::Invisible);
    assert_eq!(client.get_message("q", "m2").await.unwrap().reason, "busy");
    let cancel = vec![
        Cancellation::by_holder(&leases[2]).reason("no more"),
        Cancellation::of("m2"),
        Cancellation::of("m0"),
        Cancellation::of("m0").force(),
    ];
    let canceled = client.cancel("q", cancel).await.unwrap();
    let reasons: Vec<Option<&str>> =
        canceled.iter().map(|item| item.as_ref().err().map(|refused| refused.reason.as_str())).collect();
    assert_eq!(reasons, [None, None, Some("WRONG_STATE"), None]);
    assert!(client.dequeue(Dequeue::new("q")).await.unwrap().is_empty());
}

#[tokio::test]
async fn refusals_have_reason_and_field() {
    let World { client, wire: _wire, .. } = &World::new().await;
    let unknown = client.dequeue(Dequeue::new("nowhere")).await.unwrap_err();
    let refused = unknown.refused().unwrap();
    assert_eq!((refused.code, refused.reason.as_str()), (Code::NotFound, "QUEUE_NOT_FOUND"));

    client.create_queue("q", QueueConfig::exclusive("key")).await.unwrap();
    let messages = vec![
        NewMessage::new("good", "").metadata("key", "a"),
        NewMessage::new("keyless", ""),
        NewMessage::new("", "the client names it").metadata("key", "b"),
        NewMessage::new("large", vec![0; 33 * 1024]).metadata("key", "c"),
    ];
    let results = client.enqueue("q", messages).await.unwrap();
    assert_eq!(results[0].as_ref().unwrap().id, "good");
    assert_eq!(results[2].as_ref().unwrap().id.len(), 36);
    for (item, field) in [(1, "metadata"), (3, "payload")] {
        let refused = results[item].as_ref().unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (Code::InvalidArgument, "INVALID_ARGUMENT"));
        assert!(refused.field.as_ref().unwrap().contains(field), "{refused:?}");
    }
}

#[tokio::test]
async fn the_operators_calls() {
    let World { client, wire: _wire, .. } = &World::new().await;
    let config = QueueConfig { max_attempts: Some(1), lease_ms: Some(7_000), ..QueueConfig::exclusive("key") };
    let made = client.create_queue("q", config.clone()).await.unwrap();
    assert_eq!(client.create_queue("q", config).await.unwrap(), made);
    assert_eq!(made.config.queue_type, Some(QueueType::Exclusive { key: "key".into() }));
    assert_eq!((made.config.lease_ms, made.config.terminal_retention_ms), (Some(7_000), Some(600_000)));
    let patch = QueueConfig { max_depth: Some(10), ..QueueConfig::default() };
    let updated = client.update_queue("q", patch).await.unwrap();
    assert_eq!((updated.revision, updated.config.max_depth), (made.revision + 1, Some(10)));
    assert_eq!(updated.config.lease_ms, Some(7_000), "what the mask leaves out stays");
    assert_eq!(client.get_queue("q").await.unwrap(), updated);

    let message = |id: &str, priority| NewMessage::new(id, id.to_owned()).priority(priority).metadata("key", "a");
    client.enqueue("q", vec![message("first", 1), message("second", 2)]).await.unwrap();
    let page = client.list_queues("", 10, "").await.unwrap();
    assert_eq!((page.items[0].queue.name.as_str(), page.items[0].depth.pending), ("q", 2));
    let lease = client.dequeue(Dequeue::new("q").worker("me")).await.unwrap().remove(0);
    let explained = client.explain("q", "second").await.unwrap();
    let hindrance = &explained.hindrances[0];
    assert_eq!((hindrance.kind, hindrance.blocking_id.as_str()), (HindranceKind::KeyLocked, "first"));
    let later = MessagePatch { visible_at_ms: Some(lease.leased_at_ms + 1_000), ..MessagePatch::default() };
    assert_eq!(client.update_message("q", "second", later).await.unwrap().state, State::Invisible);
    client.release("q", vec![Release::of(&lease)]).await.unwrap();
    assert_eq!(client.list_messages("q", State::Errored, 0, "").await.unwrap().items[0].id, "first");
    let redriven = client.redrive("q", vec!["first".into(), "second".into()]).await.unwrap();
    assert_eq!(redriven[0].as_ref().unwrap().state, State::Pending);
    assert_eq!(redriven[1].as_ref().unwrap_err().reason, "WRONG_STATE");
    let depth = client.depth("q", Some(Filter::equals("key", "a"))).await.unwrap();
    assert_eq!((depth.pending, depth.invisible, depth.live()), (1, 1, 2));
    let step = client.check_queue("q", "").await.unwrap();
    assert_eq!((step.violations, step.checked > 0), (vec![], true));

    let not_empty = client.delete_queue("q", false).await.unwrap_err();
    assert_eq!(not_empty.refused().unwrap().reason, "QUEUE_NOT_EMPTY");
    assert!(client.purge_queue("q", true).await.unwrap().purged >= 2);
    client.delete_queue("q", true).await.unwrap();
    assert_eq!(client.get_queue("q").await.unwrap_err().refused().unwrap().reason, "QUEUE_NOT_FOUND");
}

#[tokio::test]
async fn a_call_survives_a_broken_connection() {
    let world = World::new().await;
    world.client.create_queue("q", QueueConfig::simple()).await.unwrap();
    // The connection breaks during the long poll. The client repeats the call and gets its answer.
    let dequeue = Dequeue::new("q").wait_ms(20_000);
    let polling = tokio::spawn({
        let client = world.client.clone();
        async move { client.dequeue(dequeue).await }
    });
    world.client.depth("q", None).await.unwrap();
    world.wire.cut();
    soon("enqueued over a new connection", world.client.enqueue("q", vec![NewMessage::new("m", "")])).await.unwrap();
    assert_eq!(soon("polled", polling).await.unwrap().unwrap()[0].id, "m");
}

#[tokio::test]
async fn a_server_that_is_not_there() {
    // Bound and dropped, so that no server listens on the port.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    assert!(matches!(Client::connect(&url).await, Err(Error::Connect { .. })));
    assert!(matches!(Client::builder("not a url").connect_lazy(), Err(Error::Connect { .. })));
    for url in ["ftp://127.0.0.1:7600", "httpx://127.0.0.1"] {
        let refused = Client::connect(url).await;
        assert!(matches!(&refused, Err(Error::Connect { message, .. }) if message.contains("http://")), "{refused:?}");
    }
    let client = Client::builder(&url).retry_for(Duration::from_millis(200)).connect_lazy().unwrap();
    let error = client.get_queue("q").await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { applied: Applied::No, .. }), "{error:?}");
}
