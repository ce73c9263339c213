//! Records that cannot be counted become dead letters with the reason, and the others go through.

use super::stage::{NAMESPACE, Stage};
use super::topics::{Written, header, now_ms};
use rdkafka::Message;
use std::collections::BTreeMap;
use tallystone_client::{CounterType, NamespaceConfig};

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
