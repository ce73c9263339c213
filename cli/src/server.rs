//! `tallystone server`

use crate::config::{ConfigFlags, load};
use crate::error::CliError;
use crate::history::History;
use crate::shutdown::Shutdown;
use clap::Args;
use serde::Serialize;
use tallystone_server::store::ConnectError;
use tallystone_server::{ServeError, ServerConfig};

#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(flatten)]
    redis: RedisFlags,
    #[command(flatten)]
    addresses: HistoryAddresses,
    #[command(flatten)]
    embedded: EmbeddedFlags,
}

/// Where history goes and comes from.
#[derive(Args, Clone, Debug, Default, Serialize)]
pub(crate) struct HistoryAddresses {
    /// The Kafka of the events, HOST:PORT, several with commas between
    #[arg(long, value_name = "BROKERS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kafka: Option<String>,

    /// The Elasticsearch or OpenSearch of the history
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) elasticsearch: Option<String>,
}

/// History without Kafka and Elasticsearch.
#[derive(Args, Clone, Debug, Default, Serialize)]
struct EmbeddedFlags {
    /// Keep history in this file, for one machine that has neither Kafka nor Elasticsearch
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    history_file: Option<std::path::PathBuf>,
}

/// Which Redis, and how much it must promise.
#[derive(Args, Clone, Debug, Serialize)]
pub(crate) struct RedisFlags {
    /// The Redis that holds the queues [default: redis://127.0.0.1:6379]
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    redis_url: Option<String>,

    #[command(flatten)]
    #[serde(flatten)]
    promises: RedisPromises,
}

/// How much a Redis must promise.
#[derive(Args, Clone, Debug, Serialize)]
pub(crate) struct RedisPromises {
    /// Serve from a Redis that may lose acknowledged writes
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    allow_volatile: bool,

    /// Replicas that must have each write before it is acknowledged [default: 0]
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas_min: Option<u32>,
}

/// What is laid over the file and the environment.
#[derive(Serialize)]
struct Flags {
    #[serde(flatten)]
    flags: ConfigFlags,
    #[serde(flatten)]
    redis: RedisFlags,
    #[serde(flatten)]
    addresses: HistoryAddresses,
    #[serde(flatten)]
    embedded: EmbeddedFlags,
}

pub(crate) async fn run(args: ServerArgs) -> Result<(), CliError> {
    let file = args.flags.config.clone();
    let ServerArgs { flags, redis, addresses, embedded } = args;
    let config: ServerConfig = load(file.as_deref(), Flags { flags, redis, addresses, embedded })?;
    config.check().map_err(CliError::usage)?;
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let history = History::open(&config)?;
    tallystone_server::serve(config, |store| history.beside(store), shutdown.requested()).await.map_err(|error| {
        match &error {
            ServeError::Redis(ConnectError::Unreachable { .. }) => {
                cannot_serve(&error).hint("--redis-url names another; `tallystone dev` brings a Redis of its own along")
            }
            ServeError::Redis(_) | ServeError::Config(_) => CliError::usage(&error),
            _ => cannot_serve(&error),
        }
    })
}

/// Why a server does not start, or ended.
pub(crate) fn cannot_serve(error: &(dyn std::error::Error + 'static)) -> CliError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Many errors repeat their cause's words.
        if !text.contains(&cause_text) {
            text += &format!(": {cause_text}");
        }
        source = cause.source();
    }
    CliError::unavailable(text)
}
