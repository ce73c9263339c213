//! Records that cannot be counted become dead letters with the reason, and the others go through.

use super::stage::{NAMESPACE, Stage};
use super::topics::{Written, header, now_ms};
use rdkafka::Message;
use std::collections::BTreeMap;
use tallystone_client::{CounterType, NamespaceConfig};
use tallystone_model::limits::{COUNTER_BYTES_MAX, LABEL_BYTES_MAX, NAMESPACE_BYTES_MAX};

#[tokio::test(flavor = "multi_thread")]
async fn n17_bad_records_become_dead_letters_and_others_go_through() {
    let mut stage = Stage::start("bad", 2, 600_000).await;
    let best_effort = NamespaceConfig { counter_type: Some(CounterType::BestEffort), ..NamespaceConfig::default() };
    stage.client.put_namespace("rough", best_effort).await.expect("a namespace");
    let good = |number: i32| Written::add(number % 2, now_ms(), "good", 1);
    let cases = [
        ("no JSON", "MALFORMED"),
        (r#"{"counter":"c"}"#, "MALFORMED"),
        (r#"{"counter":"c","delta":"x"}"#, "MALFORMED"),
        (r#"{"counter":"c","delta":1,"max":5}"#, "MALFORMED"),
        (r#"{"counter":"","delta":1}"#, "INVALID_ARGUMENT"),
        (r#"{"namespace":"no/name","counter":"c","delta":1}"#, "INVALID_ARGUMENT"),
        (r#"{"namespace":"rough","counter":"c","delta":1}"#, "INVALID_ARGUMENT"),
        (r#"{"namespace":"missing","counter":"c","delta":1}"#, "NAMESPACE_NOT_FOUND"),
        (r#"{"counter":"c","delta":9223372036854775807}"#, "OVERFLOW"),
    ];
    let mut records: Vec<Written> = (0..50).map(good).collect();
    for (value, _) in cases {
        let bad = Written { partition: 0, at_ms: now_ms(), key: "bad".to_owned(), value: value.to_owned() };
        records.push(bad);
        records
            .push(Written { value: r#"{"namespace":"adds","counter_name":"good","delta":"1"}"#.to_owned(), ..good(1) });
    }
    records.push(Written { value: "x".repeat(900_000), ..good(0) });
    stage.topics.write(&records).await;
    stage.expect(&(0..59).map(good).collect::<Vec<_>>());
    stage.ingest(None).await;
    stage.assert_exact().await;

    let letters = stage.topics.records(&stage.topics.dead(), 1).await;
    let mut found: BTreeMap<(String, String), usize> = BTreeMap::new();
    for letter in &letters {
        let of = |name: &str| header(letter, name).expect("a header");
        let value = String::from_utf8_lossy(letter.payload().unwrap_or_default()).into_owned();
        let reason = of("tallystone-reason");
        *found.entry((value, reason.split(':').next().unwrap_or_default().to_owned())).or_default() += 1;
        assert_eq!(
            (of("tallystone-source-topic"), of("tallystone-source-partition")),
            (stage.topics.source.clone(), "0".to_owned())
        );
        assert!(of("tallystone-source-offset").parse::<i64>().is_ok() && reason.contains(": "), "{reason}");
    }
    let mut expected: BTreeMap<(String, String), usize> =
        cases.iter().map(|(value, reason)| (((*value).to_owned(), (*reason).to_owned()), 1)).collect();
    // Without its value, because that is too large.
    expected.insert((String::new(), "MALFORMED".to_owned()), 1);
    assert_eq!(found, expected);
    assert_eq!(stage.client.get(NAMESPACE, "c").await.expect("a count").count, 0);
}

/// The counters refuse a call that is too large as a whole. It would be sent for ever, and none of its records be decided.
#[tokio::test(flavor = "multi_thread")]
async fn n17_records_with_long_names_become_dead_letters_and_others_go_through() {
    const PARTITIONS: i32 = 7;
    let mut stage = Stage::start("long", PARTITIONS, 600_000).await;
    // Together they have more than the counters read. They are in some partitions, so that one fetch may have all.
    let long = format!(r#"{{"counter":"{}","delta":1}}"#, "c".repeat(64_000));
    let bad = |number: i32| Written { value: long.clone(), ..Written::add(number % PARTITIONS, now_ms(), "bad", 1) };
    stage.topics.write(&(0..70).map(bad).collect::<Vec<_>>()).await;
    // What the counters just accept is sent to them.
    let unknown = format!(r#"{{"namespace":"{}","counter":"c","delta":1}}"#, "n".repeat(NAMESPACE_BYTES_MAX));
    stage.topics.write(&[Written { value: unknown, ..bad(0) }]).await;
    let (counter, label) = ("c".repeat(COUNTER_BYTES_MAX), "l".repeat(LABEL_BYTES_MAX));
    let value = format!(r#"{{"counter":"{counter}","delta":1,"source":"{label}","event_item_key":"{label}"}}"#);
    let longest = Written { value, ..Written::add(0, now_ms(), &counter, 1) };
    stage.write(&[longest, Written::add(1, now_ms(), "good", 1)]).await;
    stage.ingest(None).await;
    stage.assert_exact().await;
    let expected = [("INVALID_ARGUMENT".to_owned(), 70), ("NAMESPACE_NOT_FOUND".to_owned(), 1)];
    assert_eq!(stage.topics.dead_letters().await, BTreeMap::from(expected));
}
