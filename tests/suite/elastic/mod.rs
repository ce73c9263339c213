//! What only the Elasticsearch store can do, or have done to it, on a real server: templates, versions, blocks,
//! crashes, results beyond the server's windows. What every history store must do is in the conformance suite.
//!
//! What lives here: one file per matter, and the place they share, [`Place`]: indices of one test's own. What may not:
//! Kafka.

mod blocks;
mod crashes;
mod progress;
mod prune;
mod queries;
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
use tallystone_tests::TestElasticsearch;

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;
const DAY_MS: u64 = 86_400_000;
const ONLY: Source = Source { number: 0, of: 1 };

/// Indices of one test's own, and a way around the store to look at them.
struct Place {
    prefix: String,
    server: Arc<TestElasticsearch>,
    raw: Transport,
}

impl Place {
    async fn new(test: &str) -> Place {
        Place::on(TestElasticsearch::shared().await, test)
    }

    fn on(server: Arc<TestElasticsearch>, test: &str) -> Place {
        let raw = Transport::single_node(&server.address()).expect("a transport");
        Place { prefix: format!("{test}-{:08x}", rand::random::<u32>()), server, raw }
    }

    fn options(&self) -> ElasticOptions {
        ElasticOptions { prefix: self.prefix.clone(), replicas: 0, ..ElasticOptions::new(self.server.address()) }
    }

    /// One more program that writes and reads here.
    fn store(&self) -> Elastic {
        Elastic::new(self.options()).expect("good options")
    }

    /// Asks the server for something that works.
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let body = body.map(|body| body.to_string());
        let sent = self.raw.send(method, path, HeaderMap::new(), None::<&()>, body, None).await.expect("an answer");
        let status = sent.status_code();
        let text = sent.text().await.expect("a body");
        assert!(status.is_success(), "{method:?} {path}: {status} {text}");
        serde_json::from_str(&text).expect("JSON")
    }

    async fn get(&self, path: &str) -> Value {
        self.ask(Method::Get, path, None).await
    }

    /// Sets or clears one setting of some of the indices.
    async fn set(&self, index: &str, setting: &str, value: Value) {
        let path = format!("{}-{index}/_settings", self.prefix);
        self.ask(Method::Put, &path, Some(serde_json::json!({ setting: value }))).await;
    }

    /// Every document of every index, as the server keeps it: index, id, and its source to the byte.
    async fn documents(&self) -> Vec<(String, String, String)> {
        let indices = format!("{0}-current,{0}-historic-*,{0}-payload", self.prefix);
        self.ask(Method::Post, &format!("{indices}/_refresh?ignore_unavailable=true"), None).await;
        let found = self.get(&format!("{indices}/_search?size=10000&ignore_unavailable=true")).await;
        let hits = found["hits"]["hits"].as_array().expect("hits").iter();
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let mut documents: Vec<_> =
            hits.map(|hit| (text(&hit["_index"]), text(&hit["_id"]), hit["_source"].to_string())).collect();
        documents.sort();
        documents
    }

    /// Leaves a server that others use as it was.
    async fn leave(self) {
        for path in ["current", "payload", "progress"] {
            self.ask(Method::Delete, &format!("{}-{path}?ignore_unavailable=true", self.prefix), None).await;
        }
        let days = self.get(&format!("{}-historic-*/_settings?filter_path=*.settings.index.uuid", self.prefix)).await;
        for (day, _) in days.as_object().into_iter().flatten() {
            self.ask(Method::Delete, day, None).await;
        }
        for template in ["current", "historic", "payload", "progress"] {
            let path = format!("_index_template/{}-{template}", self.prefix);
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
    };
    let queue = QueueName::parse("queue", "q").expect("a queue");
    Recorded { shard: Shard { queue, number: 0 }, offset: sequence * 1_000 + u64::from(version), event }
}

/// The event, otherwise.
fn but(mut recorded: Recorded, change: impl FnOnce(&mut Event)) -> Recorded {
    change(&mut recorded.event);
    recorded
}

/// Records events that all can be.
async fn record(store: &Elastic, events: &[Recorded]) {
    assert_eq!(store.record(events).await, Ok(vec![]));
}

/// All messages, gone or not.
async fn all(store: &Elastic) -> Vec<IndexedMessage> {
    let query = SearchQuery { include_gone: true, limit: 1_000, ..SearchQuery::default() };
    store.search(&query).await.expect("an answer")
}
