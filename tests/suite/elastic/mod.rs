//! What only the Elasticsearch store has, on a real server: templates, versions, blocked indices, crashes, results
//! beyond the server's limits. The conformance suite tests what every history store must do.
//!
//! What lives here: one file per topic, and [`TestIndices`], the indices of one test. What may not: Kafka.

mod blocks;
mod crashes;
mod dropping;
mod groups;
mod progress;
mod prune;
mod queries;
mod refused;
mod rollover;
mod takeover;
mod templates;
mod writes;

use elasticsearch::http::Method;
use elasticsearch::http::headers::HeaderMap;
use elasticsearch::http::transport::Transport;
use serde_json::Value;
use std::sync::Arc;
use tallystone_indexer::{Elastic, ElasticOptions, HistoryStore, SearchQuery, Source};
use tallystone_model::{Cause, Event, MessageId, Metadata, QueueName, Recorded, Shard, State};
use tallystone_proto::history::v1::IndexedMessage;
use tallystone_tests::{Polling, TestElasticsearch, amount};

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;
const DAY_MS: u64 = 86_400_000;
const ONLY: Source = Source { number: 0, of: 1 };

/// The indices of one test, and a connection that bypasses the store.
struct TestIndices {
    prefix: String,
    server: Arc<TestElasticsearch>,
    raw: Transport,
}

impl TestIndices {
    async fn new(test: &str) -> TestIndices {
        TestIndices::on(TestElasticsearch::shared().await, test)
    }

    fn on(server: Arc<TestElasticsearch>, test: &str) -> TestIndices {
        let raw = Transport::single_node(&server.address()).expect("a transport");
        TestIndices { prefix: format!("{test}-{:08x}", rand::random::<u32>()), server, raw }
    }

    fn options(&self) -> ElasticOptions {
        ElasticOptions { prefix: self.prefix.clone(), replicas: 0, ..ElasticOptions::new(self.server.address()) }
    }

    /// A store on these indices; each call stands for another program.
    fn store(&self) -> Elastic {
        Elastic::new(self.options()).expect("good options")
    }

    /// Sends a request that must succeed.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let body = body.map(|body| body.to_string());
        let sent = self.raw.send(method, path, HeaderMap::new(), None::<&()>, body, None).await.expect("a response");
        let status = sent.status_code();
        let text = sent.text().await.expect("a body");
        assert!(status.is_success(), "{method:?} {path}: {status} {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    async fn get(&self, path: &str) -> Value {
        self.call(Method::Get, path, None).await
    }

    /// Sets or clears one setting of some of the indices.
    async fn set(&self, index: &str, setting: &str, value: Value) {
        let path = format!("{}-{index}/_settings", self.prefix);
        self.call(Method::Put, &path, Some(serde_json::json!({ setting: value }))).await;
    }

    /// Every document of every index: index, id, and its source byte for byte.
    async fn documents(&self) -> Vec<(String, String, String)> {
        let indices = format!("{0}-current,{0}-current-*,{0}-historic-*,{0}-payload,{0}-payload-*", self.prefix);
        self.call(Method::Post, &format!("{indices}/_refresh?ignore_unavailable=true"), None).await;
        let found = self.get(&format!("{indices}/_search?size=10000&ignore_unavailable=true")).await;
        let hits = found["hits"]["hits"].as_array().expect("hits").iter();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let mut documents: Vec<_> =
            hits.map(|hit| (text(&hit["_index"]), text(&hit["_id"]), hit["_source"].to_string())).collect();
        documents.sort();
        documents
    }

    /// The names of all indices.
    async fn indices(&self) -> Vec<String> {
        let path = format!("{}-*/_settings?filter_path=*.settings.index.uuid&expand_wildcards=all", self.prefix);
        let found = self.get(&path).await;
        let mut names: Vec<String> = found.as_object().into_iter().flatten().map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Every document as `INDEX:ID`, without the prefix.
    async fn names(&self) -> Vec<String> {
        let short = |(index, id, _): (String, String, String)| format!("{}:{id}", &index[self.prefix.len() + 1..]);
        self.documents().await.into_iter().map(short).collect()
    }

    /// Removes the indices and templates from the shared server.
    async fn remove(self) {
        for index in self.indices().await {
            self.call(Method::Delete, &index, None).await;
        }
        let found = self.get("_index_template?filter_path=index_templates.name").await;
        let names = found["index_templates"].as_array().into_iter().flatten().map(|template| &template["name"]);
        let own = |name: &Value| name.as_str().filter(|name| name.starts_with(&self.prefix)).map(str::to_owned);
        for template in names.filter_map(own) {
            let path = format!("_index_template/{template}");
            let _ = self.raw.send(Method::Delete, &path, HeaderMap::new(), None::<&()>, None::<String>, None).await;
        }
    }
}

/// The event of a version of a message of queue "q" that was enqueued at noon: version 1 enqueues it, 2 leases it,
/// later ones extend its lease, a second each.
fn event(id: &str, sequence: u64, version: u32) -> Recorded {
    let (from, to, by) = match version {
        1 => (None, State::Pending, Cause::Enqueue),
        2 => (Some(State::Pending), State::Running, Cause::Dequeue),
        _ => (Some(State::Running), State::Running, Cause::ExtendLease),
    };
    let at_ms = NOON_MS + u64::from(version - 1) * 1_000;
    let event = Event {
        id: MessageId::parse("id", id).expect("an id"),
        version,
        from,
        to: Some(to),
        by,
        at_ms,
        from_since_ms: if version == 1 { 0 } else { NOON_MS },
        since_ms: NOON_MS + if version == 1 { 0 } else { 1_000 },
        sequence,
        enqueued_at_ms: NOON_MS,
        priority: 5,
        metadata: Metadata::parse([("carrier".to_owned(), "UA".to_owned())].into()).expect("metadata"),
        attempts: u32::from(version > 1),
        fencing_token: u64::from(version > 1),
        worker: if version > 1 { "w".to_owned() } else { String::new() },
        due_ms: if version > 1 { at_ms + 30_000 } else { 0 },
        reason: String::new(),
        last_reason: String::new(),
        coalesced: false,
        payload: None,
        result: Default::default(),
    };
    let queue = QueueName::parse("queue", "q").expect("a queue");
    Recorded { shard: Shard { queue, number: 0 }, offset: sequence * 1_000 + u64::from(version), event }
}

/// The event with a change.
fn changed(mut recorded: Recorded, change: impl FnOnce(&mut Event)) -> Recorded {
    change(&mut recorded.event);
    recorded
}

/// Records events, none of which may be rejected.
async fn record(store: &Elastic, events: &[Recorded]) {
    assert_eq!(store.record(events).await, Ok(vec![]));
}

/// All messages, gone or not.
async fn all(store: &Elastic) -> Vec<IndexedMessage> {
    let query = SearchQuery { include_gone: true, limit: 1_000, ..SearchQuery::default() };
    store.search(&query).await.expect("a response")
}
