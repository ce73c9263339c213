//! Groups of queues, each with its own indices and retention.

use super::*;
use tallystone_indexer::{
    DepthQuery, ElasticGroup, GroupBy, Grouping, HistoryError, Queues, StatsQuery, Trace, TraceQuery,
};

fn group(indices: &TestIndices, name: &str, queue_prefix: &str, retention_ms: u64) -> ElasticGroup {
    let prefix = format!("{}-{name}", indices.prefix);
    ElasticGroup { queue_prefix: queue_prefix.to_owned(), prefix, retention_ms, index_days: 1, has_topic: false }
}

fn store(indices: &TestIndices, groups: Vec<ElasticGroup>) -> Elastic {
    Elastic::new(ElasticOptions { groups, retention_ms: 3 * DAY_MS, ..indices.options() }).expect("good options")
}

fn of_queue(queue: &str, recorded: Recorded) -> Recorded {
    let queue = QueueName::parse("queue", queue).expect("a queue");
    Recorded { shard: Shard { queue, number: 0 }, ..recorded }
}

/// The queues of messages of a search, and how often each is there.
async fn queues(store: &Elastic, queue: Option<&str>) -> Vec<String> {
    let queue = queue.map(|name| QueueName::parse("queue", name).expect("a queue"));
    let queues = queue.map_or_else(Queues::default, Queues::One);
    let query = SearchQuery { queues, include_gone: true, limit: 100, ..SearchQuery::default() };
    let mut found: Vec<String> =
        store.search(&query).await.expect("a response").into_iter().map(|message| message.queue).collect();
    found.sort();
    found
}

async fn depth(store: &Elastic, queues: Queues) -> u64 {
    store.depth(&DepthQuery::of(queues)).await.expect("a depth").iter().sum()
}

async fn trace(store: &Elastic, recorded: &Recorded) -> Trace {
    let (queue, id) = (recorded.shard.queue.clone(), recorded.event.id.clone());
    store.trace(&TraceQuery { queue, id, sequence: None, limit: 10, after: None }).await.expect("a trace")
}

const QUEUES: [(&str, &str); 4] = [("orders", ""), ("a", ""), ("a/x", "a-"), ("a/b/y", "ab-")];

#[tokio::test]
async fn q19_each_group_has_its_own_indices_and_queries_find_all() {
    let indices = TestIndices::new("groups").await;
    let store = store(&indices, vec![group(&indices, "a", "a/", DAY_MS), group(&indices, "ab", "a/b/", DAY_MS)]);
    let payload = |recorded| changed(recorded, |event| event.payload = Some(vec![7].into()));
    let events: Vec<Recorded> = QUEUES
        .iter()
        .flat_map(|(queue, _)| [of_queue(queue, payload(event("m", 1, 1))), of_queue(queue, event("m", 1, 2))])
        .collect();
    record(&store, &events).await;
    store.advance(ONLY, NOON_MS).await.expect("visible");
    let documents = indices.indices().await;
    for (queue, name) in QUEUES {
        let historic = format!("{}-{name}historic-2026.11.20", indices.prefix);
        let found = indices.get(&format!("{historic}/_count?q=queue:%22{}%22", queue.replace('/', "%2F"))).await;
        assert_eq!(found["count"], 2, "{queue}: {documents:?}");
        // One queue.
        assert_eq!(queues(&store, Some(queue)).await, [queue]);
        let recorded = of_queue(queue, event("m", 1, 2));
        let traced = trace(&store, &recorded).await;
        assert_eq!(traced.transitions.len(), 2);
        assert_eq!(traced.message.and_then(|message| message.payload).as_deref(), Some(&[7][..]));
        let queue = recorded.shard.queue.clone();
        assert_eq!(depth(&store, Queues::One(queue.clone())).await, 1);
        let span = StatsQuery { queue, from_ms: NOON_MS, to_ms: NOON_MS + DAY_MS, interval_ms: None };
        assert_eq!(store.stats(&span).await.expect("statistics")[0].states.len(), 2);
    }
    // All queues, and those with a prefix.
    assert_eq!(queues(&store, None).await, ["a", "a/b/y", "a/x", "orders"]);
    for (prefix, count) in [("", 4), ("a", 3), ("a/", 2), ("a/b/", 1), ("o", 1)] {
        assert_eq!(depth(&store, Queues::WithPrefix(prefix.to_owned())).await, count, "{prefix}");
    }
    let by_queue = Grouping { by: GroupBy::Queue, after: None, limit: 10 };
    let groups = store.depth_by(&DepthQuery::of(Queues::WithPrefix(String::new())), &by_queue).await.expect("groups");
    let names: Vec<&str> = groups.iter().map(|(queue, _)| queue.as_str()).collect();
    assert_eq!(names, ["a", "a/b/y", "a/x", "orders"]);
    indices.remove().await;
}

#[tokio::test]
async fn q19_a_message_that_changes_its_group_is_found_once() {
    let indices = TestIndices::new("moved").await;
    // Before there were groups.
    record(&store(&indices, vec![]), &[of_queue("a/x", event("m", 1, 1)), of_queue("orders", event("m", 1, 1))]).await;
    let grouped = store(&indices, vec![group(&indices, "a", "a/", DAY_MS), group(&indices, "ab", "a/b/", DAY_MS)]);
    let later = [of_queue("a/x", event("m", 1, 2)), of_queue("a/b/y", event("m", 1, 1))];
    record(&grouped, &later).await;
    grouped.advance(ONLY, NOON_MS).await.expect("visible");
    let all = all(&grouped).await;
    let mut found: Vec<(&str, u32)> = all.iter().map(|message| (message.queue.as_str(), message.version)).collect();
    found.sort();
    assert_eq!(found, [("a/b/y", 1), ("a/x", 2), ("orders", 1)]);
    assert_eq!(depth(&grouped, Queues::WithPrefix("a/".to_owned())).await, 2);

    // A group that has fewer queues than before.
    let narrow = store(&indices, vec![group(&indices, "a", "a/b/", DAY_MS)]);
    record(&narrow, &[of_queue("a/x", event("m", 1, 3)), of_queue("a/b/y", event("m", 1, 2))]).await;
    narrow.advance(ONLY, NOON_MS).await.expect("visible");
    assert_eq!(queues(&narrow, None).await, ["a/b/y", "a/x", "orders"]);
    assert_eq!(depth(&narrow, Queues::WithPrefix(String::new())).await, 3);
    indices.remove().await;
}

#[tokio::test]
async fn q19_each_group_has_its_own_retention() {
    let indices = TestIndices::new("retentions").await;
    let store = store(&indices, vec![group(&indices, "a", "a/", DAY_MS)]);
    let gone = |queue| of_queue(queue, changed(event("m", 1, 1), |event| event.to = None));
    record(&store, &[gone("a/x"), gone("orders")]).await;
    let midnight = NOON_MS + DAY_MS / 2;
    let left = async |now_ms| {
        while store.prune(now_ms).await.expect("pruned") {}
        store.advance(ONLY, NOON_MS).await.expect("visible");
        let traced = [trace(&store, &gone("a/x")).await, trace(&store, &gone("orders")).await];
        (queues(&store, None).await, traced.map(|trace| trace.transitions.len()))
    };
    assert_eq!(left(midnight + DAY_MS - 1).await, (vec!["a/x".to_owned(), "orders".to_owned()], [1, 1]));
    assert_eq!(left(midnight + DAY_MS).await, (vec!["orders".to_owned()], [0, 1]));
    assert_eq!(left(midnight + 3 * DAY_MS).await, (vec![], [0, 0]));
    indices.remove().await;
}

#[tokio::test]
async fn q20_the_watermark_is_that_of_the_slowest_topic() {
    let indices = TestIndices::new("topics").await;
    let own = ElasticGroup { has_topic: true, ..group(&indices, "a", "a/", DAY_MS) };
    let store = store(&indices, vec![group(&indices, "b", "b/", DAY_MS), own]);
    let topic = store.of_topic(1).expect("the second group");
    assert!(store.of_topic(2).is_none());
    store.advance(ONLY, NOON_MS + 5).await.expect("progress");
    assert_eq!(store.watermark().await, Ok(None), "the other topic has none yet");
    // An event of one topic may be of a queue of any group.
    record(&topic, &[of_queue("orders", event("m", 1, 1)), of_queue("a/x", event("m", 1, 1))]).await;
    topic.advance(ONLY, NOON_MS + 3).await.expect("progress");
    assert_eq!(store.watermark().await, Ok(Some(NOON_MS + 3)));
    assert_eq!(queues(&store, None).await, ["a/x", "orders"]);
    topic.advance(ONLY, NOON_MS + 9).await.expect("progress");
    assert_eq!(topic.watermark().await, Ok(Some(NOON_MS + 5)));
    let refused = topic.advance(Source { number: 1, of: 1 }, NOON_MS).await;
    assert!(matches!(refused, Err(HistoryError::Failed(_))), "{refused:?}");
    indices.remove().await;
}
