//! `tallystone indexer`: from Kafka into Elasticsearch, and the service that answers from there.

use crate::config::{ConfigFlags, load};
use crate::error::CliError;
use crate::history;
use crate::server::{HistoryAddresses, cannot_serve};
use crate::shutdown::Shutdown;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::elastic::Elastic;
use tallystone_indexer::kafka::{IndexerOptions, run as index};
use tallystone_server::{ServerConfig, serve_only};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

#[derive(Args, Debug)]
pub(crate) struct IndexerArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(flatten)]
    addresses: HistoryAddresses,
    /// The consumer group: all indexers of one Elasticsearch [default: tallystone-indexer]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

/// What is laid over the file and the environment.
#[derive(Serialize)]
struct Flags {
    #[serde(flatten)]
    flags: ConfigFlags,
    #[serde(flatten)]
    addresses: HistoryAddresses,
    #[serde(skip_serializing_if = "Option::is_none")]
    indexer_group: Option<String>,
}

/// The configuration of one indexer; the keys that a server has too mean the same there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct IndexerConfig {
    /// Where the service `History` is served.
    listen: SocketAddr,
    metrics_listen: Option<SocketAddr>,
    kafka: Option<String>,
    kafka_topic: String,
    kafka_partitions: u32,
    kafka_replicas: u32,
    kafka_retention_ms: u64,
    kafka_properties: Vec<String>,
    elasticsearch: Option<String>,
    elasticsearch_prefix: String,
    elasticsearch_shards: u16,
    elasticsearch_replicas: u16,
    history_retention_ms: u64,
    /// The consumer group.
    indexer_group: String,
    /// Events that go to Elasticsearch at a time.
    indexer_batch_events: usize,
    /// The same in bytes as they stand in Kafka: what bounds the indexer's memory.
    indexer_batch_bytes: usize,
}

impl Default for IndexerConfig {
    fn default() -> Self {
        let (server, indexer) = (ServerConfig::default(), IndexerOptions::default());
        IndexerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7601)),
            metrics_listen: None,
            kafka: None,
            kafka_topic: server.kafka_topic,
            kafka_partitions: server.kafka_partitions,
            kafka_replicas: server.kafka_replicas,
            kafka_retention_ms: server.kafka_retention_ms,
            kafka_properties: server.kafka_properties,
            elasticsearch: None,
            elasticsearch_prefix: server.elasticsearch_prefix,
            elasticsearch_shards: server.elasticsearch_shards,
            elasticsearch_replicas: server.elasticsearch_replicas,
            history_retention_ms: server.history_retention_ms,
            indexer_group: indexer.group,
            indexer_batch_events: indexer.batch_events_max,
            indexer_batch_bytes: indexer.batch_bytes_max,
        }
    }
}

impl IndexerConfig {
    /// The part that a server has too, to be checked as there.
    fn as_server(&self) -> ServerConfig {
        let own = self.clone();
        ServerConfig {
            listen: own.listen,
            metrics_listen: own.metrics_listen,
            kafka: own.kafka,
            kafka_topic: own.kafka_topic,
            kafka_partitions: own.kafka_partitions,
            kafka_replicas: own.kafka_replicas,
            kafka_retention_ms: own.kafka_retention_ms,
            kafka_properties: own.kafka_properties,
            elasticsearch: own.elasticsearch,
            elasticsearch_prefix: own.elasticsearch_prefix,
            elasticsearch_shards: own.elasticsearch_shards,
            elasticsearch_replicas: own.elasticsearch_replicas,
            history_retention_ms: own.history_retention_ms,
            ..ServerConfig::default()
        }
    }
}

pub(crate) async fn run(args: IndexerArgs) -> Result<(), CliError> {
    let file = args.flags.config.clone();
    let flags = Flags { flags: args.flags, addresses: args.addresses, indexer_group: args.group };
    let config: IndexerConfig = load(file.as_deref(), flags)?;
    let server = config.as_server();
    server.check().map_err(CliError::usage)?;
    let (events, bytes) = (config.indexer_batch_events, config.indexer_batch_bytes);
    if !(1..=100_000).contains(&events) || !(64 * 1024..=1 << 30).contains(&bytes) {
        return Err(CliError::usage(
            "indexer_batch_events: from 1 to 100000; indexer_batch_bytes: from 65536 to 1073741824",
        ));
    }
    let kafka = history::kafka_options(&server)?
        .ok_or_else(|| CliError::usage("kafka is not set: where are the events?").hint("--kafka HOST:PORT"))?;
    let elastic = history::elastic_options(&server).ok_or_else(|| {
        CliError::usage("elasticsearch is not set: where do they go?").hint("--elasticsearch http://HOST:9200")
    })?;
    let elastic = Arc::new(Elastic::new(elastic).map_err(CliError::usage)?);
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        CliError::usage(format!("cannot listen on {}: {error}", config.listen)).hint("--listen takes another address")
    })?;
    let options = IndexerOptions {
        group: config.indexer_group.clone(),
        batch_events_max: events,
        batch_bytes_max: bytes,
        ..IndexerOptions { kafka, ..IndexerOptions::default() }
    };
    let stopping = CancellationToken::new();
    let _stop_in_any_case = stopping.clone().drop_guard();
    let routes = Routes::new(HistoryApi::new(elastic.clone()).service());
    let address = listener.local_addr().map_err(CliError::usage)?;
    tracing::info!(%address, group = options.group, "indexing");
    let stop = async {
        shutdown.requested().await;
        stopping.cancel();
    };
    // Metrics have their recorder before anything is counted.
    let served = serve_only(listener, config.metrics_listen, routes, stopping.clone());
    let indexed = indexing(elastic, options, stopping.clone());
    let (served, indexed, ()) = tokio::join!(
        async { served.await.inspect_err(|_| stopping.cancel()) },
        async { indexed.await.inspect_err(|_| stopping.cancel()) },
        async {
            tokio::select! { () = stop => {}, () = stopping.cancelled() => {} }
        },
    );
    served.map_err(|error| cannot_serve(&error))?;
    indexed
}

/// Indexes, and drops what is past its retention, until it is told to stop.
pub(crate) async fn indexing(
    elastic: Arc<Elastic>,
    options: IndexerOptions,
    stopping: CancellationToken,
) -> Result<(), CliError> {
    let pruning = tokio::spawn(stopping.clone().run_until_cancelled_owned(history::prune(elastic.clone())));
    let indexed = index(elastic, options, stopping.cancelled_owned()).await;
    pruning.abort();
    indexed.map_err(|error| cannot_serve(&error))
}
