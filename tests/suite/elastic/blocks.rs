//! Indices that refuse writes for a while.

use super::*;
use serde_json::json;
use tallystone_indexer::{DepthQuery, HistoryError, Queues};

/// Blocks one index: events are neither recorded nor rejected. After the end of the block they are recorded.
async fn blocked(test: &str, index: &str, setting: &str) {
    let indices = TestIndices::new(test).await;
    let store = indices.store();
    let events = [event("m", 1, 1), event("m", 1, 2), event("n", 2, 1)];
    record(&store, &events[..1]).await;
    indices.set(index, setting, json!(true)).await;
    for _ in 0..3 {
        let refused = store.record(&events).await;
        assert!(matches!(&refused, Err(HistoryError::Unavailable(why)) if why.contains("block")), "{refused:?}");
    }
    // Queries still work.
    let queues = Queues::One(events[0].shard.queue.clone());
    store.depth(&DepthQuery::of(queues)).await.expect("a response");
    indices.set(index, setting, Value::Null).await;
    record(&store, &events).await;
    let documents = indices.documents().await;
    let names: Vec<&str> = documents.iter().map(|(_, id, _)| id.as_str()).collect();
    assert_eq!(names, ["q/0/1", "q/0/2", "q/0/1/1", "q/0/1/2", "q/0/2/1"]);
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_disk_above_its_flood_stage_is_transient() {
    blocked("flood-current", "current-2026.11.20", "index.blocks.read_only_allow_delete").await;
    blocked("flood-day", "historic-2026.11.20", "index.blocks.read_only_allow_delete").await;
}

#[tokio::test]
async fn q19_an_index_that_an_operator_made_read_only_is_transient() {
    blocked("read-only", "current-2026.11.20", "index.blocks.read_only").await;
    blocked("write-block", "historic-2026.11.20", "index.blocks.write").await;
}

#[tokio::test]
async fn q19_a_closed_day_is_transient() {
    let indices = TestIndices::new("closed").await;
    let store = indices.store();
    record(&store, &[event("m", 1, 1)]).await;
    let day = format!("{}-historic-2026.11.20", indices.prefix);
    indices.call(Method::Post, &format!("{day}/_close"), None).await;
    let refused = store.record(&[event("m", 1, 2)]).await;
    assert!(matches!(&refused, Err(HistoryError::Unavailable(why)) if why.contains("closed")), "{refused:?}");
    indices.call(Method::Post, &format!("{day}/_open"), None).await;
    record(&store, &[event("m", 1, 2)]).await;
    indices.remove().await;
}
