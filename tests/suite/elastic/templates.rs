//! Templates and mappings.

use super::*;
use serde_json::json;

#[tokio::test]
async fn q19_what_is_not_there_is_made_with_the_first_write() {
    let place = Place::new("fresh").await;
    record(&place.store(), &[event("m", 1, 1)]).await;
    let current = place.get(&format!("{}-current", place.prefix)).await;
    let current = &current[format!("{}-current", place.prefix)];
    let fields = &current["mappings"]["properties"];
    assert_eq!(fields["worker"]["type"], "keyword");
    assert_eq!(fields["changed_at_ms"]["fields"]["date"]["type"], "date_nanos");
    assert_eq!(fields["metadata"]["enabled"], false);
    assert_eq!(current["mappings"]["dynamic"], "false");
    assert_eq!(current["settings"]["index"]["refresh_interval"], "1s");
    let day = place.get(&format!("{}-historic-2026.11.20", place.prefix)).await;
    let fields = &day[format!("{}-historic-2026.11.20", place.prefix)]["mappings"]["properties"];
    assert_eq!((&fields["reason"]["type"], &fields["left"]["type"]), (&json!("keyword"), &json!("keyword")));
    place.leave().await;
}

fn template(pattern: String, version: u64) -> Value {
    json!({ "index_patterns": [pattern], "priority": 500, "version": version, "template": {} })
}

async fn version(place: &Place, kind: &str) -> u64 {
    let found = place.get(&format!("_index_template/{}-{kind}", place.prefix)).await;
    found["index_templates"][0]["index_template"]["version"].as_u64().expect("a version")
}

#[tokio::test]
async fn q19_older_templates_and_mappings_are_upgraded_and_newer_ones_left_alone() {
    let place = Place::new("upgrade").await;
    let put = async |path: String, body| place.ask(Method::Put, &path, Some(body)).await;
    let (prefix, old) = (&place.prefix, json!({ "_meta": { "version": 0 }, "properties": {} }));
    put(format!("_index_template/{prefix}-historic"), template(format!("{prefix}-historic-*"), 99)).await;
    put(format!("_index_template/{prefix}-current"), template(format!("{prefix}-current"), 0)).await;
    put(format!("{prefix}-current"), json!({ "mappings": old })).await;
    place.store().prepare().await.expect("templates");
    assert_eq!(version(&place, "historic").await, 99, "a newer program's");
    assert_eq!((version(&place, "current").await, version(&place, "progress").await), (1, 1));
    let mapping = place.get(&format!("{prefix}-current/_mapping")).await;
    let mapping = &mapping[format!("{prefix}-current")]["mappings"];
    assert_eq!(mapping["_meta"]["version"], 1, "{mapping}");
    assert_eq!(mapping["properties"]["metadata_pairs"]["type"], "keyword", "{mapping}");
    // A second indexer finds nothing to do.
    place.store().prepare().await.expect("templates");
    place.leave().await;
}

#[tokio::test]
async fn q19_a_server_that_lost_its_data_gets_its_templates_again() {
    let place = Place::new("lost").await;
    let store = place.store();
    record(&store, &[event("m", 1, 1)]).await;
    place.set("current", "index.blocks.write", json!(true)).await;
    assert!(store.record(&[event("m", 1, 2)]).await.is_err(), "unavailable, as a server that starts anew is first");
    let prefix = place.prefix.clone();
    for path in ["current", "historic-2026.11.20"] {
        place.ask(Method::Delete, &format!("{prefix}-{path}"), None).await;
    }
    place.ask(Method::Delete, &format!("_index_template/{prefix}-current"), None).await;
    record(&store, &[event("m", 1, 1), event("m", 1, 2)]).await;
    let mapping = place.get(&format!("{prefix}-current/_mapping")).await;
    assert_eq!(mapping[format!("{prefix}-current")]["mappings"]["properties"]["worker"]["type"], "keyword");
    place.leave().await;
}
