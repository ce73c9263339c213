//! The history of a queue's server: the relay into Kafka or into the embedded store, and the service `History` that
//! answers from the embedded store or from Elasticsearch.

use crate::{AssemblyError, Config};
use std::sync::Arc;
use std::time::Duration;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::clock::now_ms;
use tallystone_indexer::kafka::{KafkaSink, WATERMARK_EVERY};
use tallystone_indexer::{Elastic, Embedded, HistoryStore};
use tallystone_server::attach_relay;
use tallystone_server::outbox::RelayOptions;
use tallystone_server::store::RedisStore;
use tallystone_serving::{BackgroundTask, Host};

/// How often a store is checked for history past its retention, and the pause between two steps of dropping it.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
const PRUNE_STEP: Duration = Duration::from_millis(100);

/// The stores of history, opened. Nothing runs yet.
#[derive(Default)]
pub struct History {
    embedded: Option<Arc<Embedded>>,
    kafka: Option<KafkaSink>,
    /// An indexer in the same process writes with this client too.
    pub(crate) elastic: Option<Arc<Elastic>>,
}

impl History {
    /// Opens the stores of the configuration.
    pub fn open(config: &Config) -> Result<History, AssemblyError> {
        let mut history = History::default();
        if let Some(options) = config.history.options() {
            if let Some(dir) = options.path.parent() {
                std::fs::create_dir_all(dir)
                    .map_err(|error| AssemblyError::History(format!("cannot create {}: {error}", dir.display())))?;
            }
            let embedded = Embedded::open(options).map_err(|error| AssemblyError::History(error.to_string()))?;
            history.embedded = Some(Arc::new(embedded));
        }
        if let Some(options) = config.kafka.options()? {
            let sink = KafkaSink::with_topics(&options, &config.history.topics(&options.topic))
                .map_err(|error| AssemblyError::History(error.to_string()))?;
            history.kafka = Some(sink);
        }
        if let Some(options) = config.elasticsearch.options(&config.history) {
            history.elastic = Some(Arc::new(Elastic::new(options)?));
        }
        Ok(history)
    }

    /// Adds the relay, the pruning of the embedded store, and the service `History` to the host of a queue.
    pub fn attach(self, mut host: Host, store: &Arc<RedisStore>, config: &Config) -> Host {
        // A watermark in the embedded store is a row that every delivery may write.
        let watermark_every = if self.kafka.is_some() { WATERMARK_EVERY } else { Duration::ZERO };
        let options = RelayOptions {
            leader_lease_ms: config.outbox.relay_leader_lease_ms,
            events_max: u64::from(config.outbox_bound().events_max),
            watermark_every,
        };
        if let Some(embedded) = &self.embedded {
            host = attach_relay(host, store.clone(), embedded.clone(), options);
        } else if let Some(kafka) = self.kafka {
            host = attach_relay(host, store.clone(), kafka, options);
        }
        if let Some(embedded) = self.embedded {
            host = attach_pruning(host, embedded.clone());
            host.service(HistoryApi::new(embedded).service())
        } else if let Some(elastic) = self.elastic {
            host.service(HistoryApi::new(elastic).service())
        } else {
            host
        }
    }
}

/// Drops history past its retention, step by step, for as long as the host runs.
pub(crate) fn attach_pruning<S: HistoryStore>(host: Host, store: Arc<S>) -> Host {
    let prune = async move {
        loop {
            let pause = match store.prune(now_ms()).await {
                Ok(true) => PRUNE_STEP,
                Ok(false) => PRUNE_EVERY,
                Err(error) => {
                    tracing::warn!(%error, "cannot delete history that is older than its retention");
                    PRUNE_EVERY
                }
            };
            tokio::time::sleep(pause).await;
        }
    };
    host.task(BackgroundTask::new("prune", |stopping| async move {
        stopping.run_until_cancelled(prune).await;
    }))
}
