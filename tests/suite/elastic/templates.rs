//! Templates and mappings.

use super::*;
use serde_json::json;

#[tokio::test]
async fn q19_the_first_write_creates_templates_and_indices() {
    let indices = TestIndices::new("fresh").await;
    record(&indices.store(), &[event("m", 1, 1)]).await;
    let current = indices.get(&format!("{}-current-2026.11.20", indices.prefix)).await;
    let current = &current[format!("{}-current-2026.11.20", indices.prefix)];
    let fields = &current["mappings"]["properties"];
    assert_eq!(fields["worker"]["type"], "keyword");
    assert_eq!(fields["changed_at_ms"]["fields"]["date"]["type"], "date_nanos");
    assert_eq!(fields["metadata"]["enabled"], false);
    assert_eq!(current["mappings"]["dynamic"], "false");
    assert_eq!(current["settings"]["index"]["refresh_interval"], "1s");
    let day = indices.get(&format!("{}-historic-2026.11.20", indices.prefix)).await;
    let fields = &day[format!("{}-historic-2026.11.20", indices.prefix)]["mappings"]["properties"];
    assert_eq!((&fields["reason"]["type"], &fields["left"]["type"]), (&json!("keyword"), &json!("keyword")));
    indices.remove().await;
}

fn template(pattern: String, version: u64) -> Value {
    json!({ "index_patterns": [pattern], "priority": 500, "version": version, "template": {} })
}

async fn version(indices: &TestIndices, kind: &str) -> u64 {
    let found = indices.get(&format!("_index_template/{}-{kind}", indices.prefix)).await;
    found["index_templates"][0]["index_template"]["version"].as_u64().expect("a version")
}

#[tokio::test]
async fn q19_older_templates_and_mappings_are_upgraded_and_newer_ones_kept() {
    let indices = TestIndices::new("upgrade").await;
    let put = async |path: String, body| indices.call(Method::Put, &path, Some(body)).await;
    let (prefix, old) = (&indices.prefix, json!({ "_meta": { "version": 0 }, "properties": {} }));
    put(format!("_index_template/{prefix}-historic"), template(format!("{prefix}-historic-*"), 99)).await;
    put(format!("_index_template/{prefix}-current"), template(format!("{prefix}-current"), 0)).await;
    put(format!("{prefix}-current"), json!({ "mappings": old })).await;
    indices.store().prepare().await.expect("templates");
    assert_eq!(version(&indices, "historic").await, 99, "a newer program's");
    assert_eq!((version(&indices, "current").await, version(&indices, "progress").await), (2, 2));
    let mapping = indices.get(&format!("{prefix}-current/_mapping")).await;
    let mapping = &mapping[format!("{prefix}-current")]["mappings"];
    assert_eq!(mapping["_meta"]["version"], 2, "{mapping}");
    assert_eq!(mapping["properties"]["metadata_pairs"]["type"], "keyword", "{mapping}");
    // A second indexer changes nothing.
    indices.store().prepare().await.expect("templates");
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_server_that_lost_its_data_gets_its_templates_again() {
    let indices = TestIndices::new("lost").await;
    let store = indices.store();
    record(&store, &[event("m", 1, 1)]).await;
    indices.set("current-2026.11.20", "index.blocks.write", json!(true)).await;
    assert!(store.record(&[event("m", 1, 2)]).await.is_err(), "unavailable, as a server is while it starts");
    let prefix = indices.prefix.clone();
    for path in ["current-2026.11.20", "historic-2026.11.20", "hours"] {
        indices.call(Method::Delete, &format!("{prefix}-{path}"), None).await;
    }
    indices.call(Method::Delete, &format!("_index_template/{prefix}-current"), None).await;
    record(&store, &[event("m", 1, 1), event("m", 1, 2)]).await;
    let mapping = indices.get(&format!("{prefix}-current-2026.11.20/_mapping")).await;
    let mapping = &mapping[format!("{prefix}-current-2026.11.20")]["mappings"];
    assert_eq!(mapping["properties"]["worker"]["type"], "keyword");
    indices.remove().await;
}
