//! `tallystone indexer`

use crate::config::{ConfigFile, HistoryServices, MetricsFlag, Overrides, PortFlags, load};
use crate::error::CliError;
use crate::global::Global;
use crate::serving::{cannot_assemble, cannot_serve, listen};
use crate::shutdown::Shutdown;
use crate::traces;
use clap::Args;
use std::net::SocketAddr;

#[derive(Args, Debug)]
pub(crate) struct IndexerArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Where to serve gRPC [default: 127.0.0.1:7601]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    ports: PortFlags,
    #[command(flatten)]
    history: HistoryServices,
    /// The Kafka consumer group, the same for all indexers of one index prefix; each prefix needs its own [default:
    /// tallystone-indexer]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The name by which the group knows this indexer across restarts [default: none, each start is a new member]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
}

pub(crate) async fn run(args: IndexerArgs, global: &Global) -> Result<(), CliError> {
    let flags = Overrides::default()
        .set_telemetry(&global.telemetry)
        .set("indexer.listen", args.listen)
        .set("indexer.metrics_listen", args.metrics.metrics_listen)
        .set("indexer.group", args.group)
        .set("indexer.instance", args.instance);
    let config = load(args.file.path.as_deref(), args.history.set(args.ports.set(flags)))?;
    traces::start(&config.telemetry, "tallystone-indexer")?;
    if config.kafka.brokers.is_none() {
        return Err(CliError::usage("kafka.brokers is not set: an indexer reads events from Kafka")
            .hint("set it with --kafka-brokers HOST:PORT"));
    }
    if config.elasticsearch.url.is_none() {
        return Err(CliError::usage("elasticsearch.url is not set: an indexer writes to Elasticsearch")
            .hint("set it with --elasticsearch-url http://HOST:9200"));
    }
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let host = tallystone_assembly::indexer(&config).map_err(cannot_assemble)?;
    let listener = listen(config.indexer.listen).await?;
    tracing::info!(group = config.indexer.group, "indexing");
    host.serve(listener, shutdown.requested()).await.map_err(|error| cannot_serve(&error))
}
