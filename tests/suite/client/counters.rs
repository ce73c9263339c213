//! What the client of counters sends, and repeats when no answer comes. The server is scripted; the tests of the counters
//! use a real one.

use crate::client::script::{RETRY_AFTER, Script};
use std::time::{Duration, Instant, SystemTime};
use tallystone_client::{
    Applied, Cardinality, Code, CounterType, Crossing, CrossingDirection, Error, IdempotencyToken, NamespaceConfig,
    NewAdd, NewClear, PublishedTo, Threshold,
};
use tallystone_proto::counter::v1 as wire;

fn now_ms() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64
}

#[tokio::test]
async fn n3_an_add_is_repeated_with_the_token_that_was_drawn_before_its_first_attempt() {
    let (script, client, _tasks) = Script::unavailable_times(2).serve().await;
    let before = now_ms();
    let added = client.add("ns", NewAdd::new("c", -3)).await.unwrap();
    let received = script.received.lock().unwrap();
    let [first, rest @ ..] = received.adds.as_slice() else { panic!("nothing was sent") };
    assert_eq!(rest, [first.clone(), first.clone()], "the same request three times");
    assert_eq!((first.namespace.as_str(), first.counter.as_str(), first.delta), ("ns", "c", -3));
    let token = first.token.as_ref().unwrap();
    assert_eq!(token.token.len(), 32);
    assert!((before..=now_ms()).contains(&token.generation_time_ms));
    assert_eq!((added.event_time_ms as i64, added.duplicate), (token.generation_time_ms, true));
}

#[tokio::test]
async fn n3_two_adds_are_two_events_unless_they_bring_the_same_token() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    let own = IdempotencyToken::new("view-1", 1_000);
    let adds = vec![NewAdd::new("c", 1), NewAdd::new("c", 1), NewAdd::new("c", i64::MAX).token(own)];
    let results = client.add_many("ns", adds).await.unwrap();
    assert_eq!(results[0].as_ref().unwrap().event_time_ms, 1);
    let refused = results[1].as_ref().unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (Code::OutOfRange, "TOO_OLD"));
    assert_eq!(results[2].as_ref().unwrap_err().code, Code::Internal, "a result without an outcome");

    let received = script.received.lock().unwrap();
    let [first, second] = received.add_batches.as_slice() else { panic!("{} attempts", received.add_batches.len()) };
    assert_eq!(first, second);
    let tokens: Vec<_> = first.adds.iter().map(|add| add.token.clone().unwrap()).collect();
    assert_ne!(tokens[0].token, tokens[1].token);
    assert_eq!(tokens[2], wire::IdempotencyToken { token: "view-1".to_owned(), generation_time_ms: 1_000 });
    assert_eq!(first.adds[2].delta, i64::MAX);
}

#[tokio::test]
async fn n3_a_clear_is_repeated_as_the_same_event() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    assert_eq!(client.clear("ns", NewClear::new("c")).await.unwrap().event_time_ms, 5);
    let received = script.received.lock().unwrap();
    assert_eq!(received.clears.len(), 2);
    assert_eq!(received.clears[0], received.clears[1]);
    assert!(received.clears[0].token.is_some());
}

#[tokio::test]
async fn n14_a_deletion_is_repeated_as_the_same_one() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    let deleted = client.delete("ns", NewClear::new("c")).await.unwrap();
    assert_eq!((deleted.event_time_ms, deleted.duplicate), (6, true));
    let namespace = client.put_namespace("ns", NamespaceConfig::default()).await.unwrap();
    assert_eq!(namespace.incarnation, 3);
    client.delete_namespace(&namespace).await.unwrap();
    let received = script.received.lock().unwrap();
    assert_eq!(received.deletions.len(), 2);
    assert_eq!(received.deletions[0], received.deletions[1]);
    assert!(received.deletions[0].token.is_some());
    let expected = wire::DeleteNamespaceRequest { name: "ns".to_owned(), incarnation: Some(3) };
    assert_eq!(received.deleted_namespaces, [expected]);
}

#[tokio::test]
async fn a_client_without_retries_calls_once() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    let error = client.with_retry_for(Duration::ZERO).add("ns", NewAdd::new("c", 1)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { applied: Applied::Unknown, .. }), "{error:?}");
    assert_eq!(script.received.lock().unwrap().adds.len(), 1);
}

#[tokio::test]
async fn q10_an_error_speaks_for_every_attempt() {
    let (script, client, _tasks) = Script::unavailable_times(u32::MAX).serve().await;
    let error = client.with_retry_for(Duration::from_secs(1)).add("ns", NewAdd::new("c", 1)).await.unwrap_err();
    assert!(script.received.lock().unwrap().adds.len() > 1, "repeated");
    assert!(matches!(error, Error::Unavailable { applied: Applied::Unknown, .. }), "{error:?}");
}

#[tokio::test]
async fn o8_a_call_that_was_refused_for_overload_is_repeated_after_the_time_that_the_refusal_names() {
    let (script, client, _tasks) = Script::overloaded_times(2).serve().await;
    let began = Instant::now();
    client.add("ns", NewAdd::new("c", 1)).await.unwrap();
    assert!(began.elapsed() >= 2 * RETRY_AFTER);
    assert_eq!(script.received.lock().unwrap().adds.len(), 3);

    let (_script, client, _tasks) = Script::overloaded_times(u32::MAX).serve().await;
    let error = client.with_retry_for(Duration::from_secs(1)).add("ns", NewAdd::new("c", 1)).await.unwrap_err();
    let refused = error.refused().expect("nothing was written");
    assert_eq!((refused.reason.as_str(), refused.retry_after), ("OVERLOADED", Some(RETRY_AFTER)));
}

#[tokio::test]
async fn responses_that_break_the_protocol_are_errors() {
    let (_script, client, _tasks) = Script::default().serve().await;
    let counts = client.get_many("ns", vec!["a".to_owned(), "b".to_owned()]).await.unwrap();
    let count = counts[0].as_ref().unwrap();
    assert_eq!((count.count, count.exact_to_ms, count.counter_type), (i64::MIN, 9, CounterType::Accurate));
    assert_eq!(counts[1].as_ref().unwrap_err().code, Code::Internal, "a type from another version");
    let short = client.get_many("ns", vec!["a".to_owned()]).await.unwrap_err();
    assert!(matches!(short, Error::Protocol(_)), "two counts for one counter: {short:?}");
}

#[tokio::test]
async fn n16_a_page_of_crossings_is_read_again_from_the_same_position() {
    let (script, client, _tasks) = Script::unavailable_times(1).serve().await;
    let page = client.crossings("ns", "from", 50, Duration::from_millis(20)).await.unwrap();
    let (threshold, direction, count) = (10, CrossingDirection::Down, -3);
    let counter = "c".to_owned();
    let expected = Crossing { counter, threshold, direction, count, exact_to_ms: 5, committed_at_ms: 6 };
    assert_eq!((page.crossings, page.position.as_str(), page.complete_to_ms), (vec![expected], "p", 7));
    let (namespace, after) = ("ns".to_owned(), "from".to_owned());
    let sent = wire::ListCrossingsRequest { namespace, after, limit: 50, wait_ms: 20 };
    assert_eq!(script.received.lock().unwrap().crossings, [sent.clone(), sent]);
    let unknown = client.crossings("ns", "", 0, Duration::ZERO).await.unwrap_err();
    assert_eq!(unknown.refused().map(|refused| refused.code), Some(Code::Internal), "a direction of another version");
}

#[tokio::test]
async fn n1_every_field_of_a_namespace_is_sent_and_read() {
    let (script, client, _tasks) = Script::default().serve().await;
    let config = NamespaceConfig {
        counter_type: Some(CounterType::BestEffort),
        cardinality: Some(Cardinality::Low),
        ttl_ms: Some(1),
        coalesce_ms: Some(2),
        rollup_batch_count: Some(3),
        num_queues: Some(4),
        capacity_bytes: Some(5),
        buckets_per_id: Some(6),
        seconds_per_bucket: Some(7),
        seconds_per_slice: Some(8),
        accept_limit_ms: Some(9),
        close_after_ms: Some(10),
        delete_after_ms: Some(11),
        expire_after_ms: Some(12),
        published_to: Some(PublishedTo { key: "13".to_owned(), field: "14".to_owned() }),
        archived: Some(true),
        thresholds: Some(vec![Threshold { prefix: "15".to_owned(), count: 16 }]),
        regions: Some(vec!["17".to_owned(), "18".to_owned()]),
    };
    let made = client.put_namespace("ns", config.clone()).await.unwrap();
    assert_eq!((made.name.as_str(), made.revision, made.config), ("ns", 2, config));
    let little = NamespaceConfig { ttl_ms: Some(0), ..NamespaceConfig::default() };
    assert_eq!(client.put_namespace("ns", little.clone()).await.unwrap().config, little, "absent stays absent");
    client.put_persistence_configuration("ns", "{}").await.unwrap();

    let received = script.received.lock().unwrap();
    let sent = wire::NamespaceConfig {
        counter_type: Some(wire::CounterType::BestEffort.into()),
        cardinality: Some(wire::Cardinality::Low.into()),
        ttl_ms: Some(1),
        coalesce_ms: Some(2),
        rollup_batch_count: Some(3),
        num_queues: Some(4),
        capacity_bytes: Some(5),
        buckets_per_id: Some(6),
        seconds_per_bucket: Some(7),
        seconds_per_slice: Some(8),
        accept_limit_ms: Some(9),
        close_after_ms: Some(10),
        delete_after_ms: Some(11),
        expire_after_ms: Some(12),
        published_to: Some(wire::PublishedTo { key: "13".to_owned(), field: "14".to_owned() }),
        archived: Some(true),
        thresholds: Some(wire::Thresholds { thresholds: vec![wire::Threshold { prefix: "15".to_owned(), count: 16 }] }),
        regions: Some(wire::Regions { names: vec!["17".to_owned(), "18".to_owned()] }),
    };
    assert_eq!(received.puts[0].config.as_ref(), Some(&sent));
    assert_eq!((received.puts[2].config.as_ref(), received.puts[2].persistence_configuration.as_str()), (None, "{}"));
}
