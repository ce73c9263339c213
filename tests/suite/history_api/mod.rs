//! The service `tallystone.history.v1.History` as its callers see it: over a socket, on a simple store in memory. The
//! conformance suite tests the real stores.
//!
//! What lives here: one file per topic, `memory` (the store) and [`TestServer`] (a server and its client). What may not:
//! Elasticsearch, SQLite.

mod answers;
mod bad_input;
mod failures;
mod memory;
mod pages;

use memory::MemoryStore;
use std::sync::Arc;
use tallystone_indexer::HistoryStore;
use tallystone_indexer::api::HistoryApi;
use tallystone_model::{Cause, Event, Loss, MessageId, Metadata, QueueName, Recorded, Shard, State};
use tallystone_proto::history::v1 as pb;
use tallystone_proto::history::v1::history_client::HistoryClient;
use tallystone_serving::{Host, Running};
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};

/// 2026-11-20, 12:00 UTC.
const NOON_MS: u64 = 1_795_176_000_000;

/// A server on a [`MemoryStore`]; it stops when it is dropped.
struct TestServer {
    store: Arc<MemoryStore>,
    client: HistoryClient<Channel>,
    _server: Running,
}

impl TestServer {
    async fn open() -> TestServer {
        let store = Arc::new(MemoryStore::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = Host::new().service(HistoryApi::new(store.clone()).service());
        let server = Running::start(host, listener).expect("a bound port");
        let endpoint = Endpoint::from_shared(server.url()).expect("an address");
        let client = HistoryClient::new(endpoint.connect().await.expect("a server"));
        TestServer { store, client, _server: server }
    }

    async fn record(&self, events: &[Recorded]) {
        assert_eq!(self.store.record(events).await, Ok(vec![]));
    }
}

/// The event of a version of a message of queue "q": version 1 enqueues it, later ones extend a lease.
fn event(id: &str, sequence: u64, version: u32) -> Recorded {
    let event = Event {
        id: MessageId::parse("id", id).expect("an id"),
        version,
        from: (version > 1).then_some(State::Running),
        to: Some(if version > 1 { State::Running } else { State::Pending }),
        by: if version > 1 { Cause::ExtendLease } else { Cause::Enqueue },
        at_ms: NOON_MS + u64::from(version),
        from_since_ms: NOON_MS,
        since_ms: NOON_MS,
        sequence,
        enqueued_at_ms: NOON_MS,
        priority: 5,
        metadata: Metadata::default(),
        attempts: 1,
        fencing_token: 1,
        worker: "w".to_owned(),
        due_ms: 0,
        reason: String::new(),
        last_reason: String::new(),
        coalesced: false,
        payload: None,
        result: Default::default(),
    };
    let queue = QueueName::parse("queue", "q").expect("a queue");
    Recorded { shard: Shard { queue, number: 0 }, offset: 0, event }
}

fn trace_of(id: &str) -> pb::TraceMessageRequest {
    pb::TraceMessageRequest { queue: "q".to_owned(), id: id.to_owned(), ..Default::default() }
}
