//! `tallystone ingest`

use crate::config::{ConfigFile, MetricsFlag, Overrides, PortFlags, load};
use crate::error::CliError;
use crate::global::Global;
use crate::serving::{cannot_assemble, cannot_serve, listen};
use crate::shutdown::Shutdown;
use crate::traces;
use clap::Args;
use std::net::SocketAddr;

#[derive(Args, Debug)]
pub(crate) struct IngestArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Where to serve health [default: 127.0.0.1:7630]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    ports: PortFlags,
    /// Kafka brokers: HOST:PORT, separated by commas
    #[arg(long, value_name = "BROKERS")]
    kafka_brokers: Option<String>,
    /// The topic with the adds; each record is the JSON object of one add
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// The Kafka consumer group, the same for all processes that share the topic [default: tallystone-ingest]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The name by which the group knows this process across restarts [default: none, each start is a new member]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
    /// Address of the counters server [default: http://127.0.0.1:7610]
    #[arg(long, value_name = "URL")]
    counters: Option<String>,
    /// The namespace of records that name none [default: none, they must name one]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
}

pub(crate) async fn run(args: IngestArgs, global: &Global) -> Result<(), CliError> {
    let flags = Overrides::default()
        .set("ingest.listen", args.listen)
        .set("ingest.metrics_listen", args.metrics.metrics_listen)
        .set("kafka.brokers", args.kafka_brokers)
        .set("ingest.topic", args.topic)
        .set("ingest.group", args.group)
        .set("ingest.instance", args.instance)
        .set("ingest.counters_url", args.counters)
        .set("ingest.namespace", args.namespace)
        .set_credentials(&global.credentials)
        .set_telemetry(&global.telemetry);
    let config = load(args.file.path.as_deref(), args.ports.set(flags))?;
    traces::start(&config.telemetry, "tallystone-ingest")?;
    if config.kafka.brokers.is_none() {
        return Err(CliError::usage("kafka.brokers is not set: adds are read from Kafka")
            .hint("set it with --kafka-brokers HOST:PORT"));
    }
    if config.ingest.topic.is_none() {
        return Err(
            CliError::usage("ingest.topic is not set: adds are read from a topic").hint("set it with --topic NAME")
        );
    }
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let host = tallystone_assembly::ingest(&config).map_err(cannot_assemble)?;
    let listener = listen(config.ingest.listen).await?;
    tracing::info!(topic = config.ingest.topic, group = config.ingest.group, "counting adds");
    host.serve(listener, shutdown.requested()).await.map_err(|error| cannot_serve(&error))
}
