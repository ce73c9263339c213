//! All processes of a large installation: two servers on a Redis, Kafka, two indexers, Elasticsearch.

use super::indexer::Indexer;
use crate::crash::machines::Machines;
use elasticsearch::http::Method;
use elasticsearch::http::headers::HeaderMap;
use elasticsearch::http::transport::Transport;
use serde_json::json;
use std::time::{Duration, Instant};
use tallystone_tests::{TestElasticsearch, TestKafka};

/// The processes.
pub(super) struct Installation {
    pub(super) machines: Machines,
    pub(super) kafka: TestKafka,
    pub(super) elasticsearch: TestElasticsearch,
    pub(super) indexers: [Indexer; 2],
}

impl Installation {
    /// Starts all processes except the second indexer. Clients retry calls for this long.
    pub(super) async fn start(retry_for: Duration) -> Installation {
        let (kafka, elasticsearch) = tokio::join!(TestKafka::start(), TestElasticsearch::start());
        let config = format!(
            "relay_leader_lease_ms = 1000\n[kafka]\nbrokers = '{}'\npartitions = 4\n[elasticsearch]\nurl = '{}'\n",
            kafka.address(),
            elasticsearch.address()
        );
        let indexer = || Indexer::new(kafka.address(), elasticsearch.address(), &[]);
        let mut indexers = [indexer(), indexer()];
        indexers[0].start().await;
        let machines = Machines::start_with(&config, retry_for).await;
        Installation { machines, kafka, elasticsearch, indexers }
    }

    /// Begins or ends what a disk above its flood stage does to every index.
    pub(super) async fn read_only(&self, blocked: bool) {
        let raw = Transport::single_node(&self.elasticsearch.address()).expect("a transport");
        let value = if blocked { json!(true) } else { json!(null) };
        let body = json!({ "index.blocks.read_only_allow_delete": value }).to_string();
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            let body = Some(body.clone());
            let sent = raw.send(Method::Put, "tallystone-*/_settings", HeaderMap::new(), None::<&()>, body, None);
            let response = sent.await.expect("a response");
            let status = response.status_code().as_u16();
            if status == 200 {
                return;
            }
            let text = response.text().await.expect("the whole response");
            // An Elasticsearch that has just started may be behind with its tasks, and refuses more of them.
            assert!([429, 503].contains(&status) && Instant::now() < until, "{status}: {text}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}
