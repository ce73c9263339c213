//! `tallystone views`

use crate::config::{ConfigFile, MetricsFlag, Overrides, PortFlags, RedisFlags, load, redis_with};
use crate::error::CliError;
use crate::global::Global;
use crate::serving::{cannot_assemble, cannot_serve, listen};
use crate::shutdown::Shutdown;
use crate::traces;
use clap::Args;
use std::net::SocketAddr;

#[derive(Args, Debug)]
#[command(mut_arg("redis_url", redis_with("the log of views")))]
pub(crate) struct ViewsArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Where to serve HTTP [default: 127.0.0.1:7620]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Names under which clients and browsers may call, in addition to IP addresses and loopback names: without port,
    /// separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    http_hosts: Option<Vec<String>>,
    /// Address of the counters server that keeps the counts [default: http://127.0.0.1:7610]
    #[arg(long, value_name = "URL")]
    counters: Option<String>,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    ports: PortFlags,
    /// Keep the log of views in this Kafka, and not in Redis: HOST:PORT, separated by commas
    #[arg(long, value_name = "BROKERS")]
    kafka_brokers: Option<String>,
    /// The topic of views in Kafka [default: none, the log is in Redis]
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    #[command(flatten)]
    redis: RedisFlags,
}

pub(crate) async fn run(args: ViewsArgs, global: &Global) -> Result<(), CliError> {
    let is_kafka_wanted = args.kafka_brokers.is_some();
    let flags = Overrides::default()
        .set("kafka.brokers", args.kafka_brokers)
        .set("views.topic", args.topic)
        .set("views.listen", args.listen)
        .set("views.http_hosts", args.http_hosts)
        .set("views.counters_url", args.counters)
        .set("views.metrics_listen", args.metrics.metrics_listen)
        .set_credentials(&global.credentials)
        .set_telemetry(&global.telemetry);
    let config = load(args.file.path.as_deref(), args.redis.set(args.ports.set(flags)))?;
    if is_kafka_wanted && config.views.topic.is_none() {
        return Err(CliError::usage("views.topic is not set, but the log of views is to be in Kafka")
            .hint("set it with --topic NAME"));
    }
    if config.views.topic.is_some() && config.kafka.brokers.is_none() {
        return Err(CliError::usage("kafka.brokers is not set, but the log of views is in Kafka")
            .hint("set it with --kafka-brokers HOST:PORT"));
    }
    traces::start(&config.telemetry, "tallystone-views")?;
    let mut shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let Some(host) = shutdown.or_requested(tallystone_assembly::views(&config)).await else { return Ok(()) };
    let host = host.map_err(cannot_assemble)?;
    tracing::info!(counters = config.views.counters_url, "counting views");
    let listener = listen(config.views.listen).await?;
    host.serve(listener, shutdown.requested()).await.map_err(|error| cannot_serve(&error))
}
