//! `tallystone dev`: a private Redis whose data survives restarts, and beside it a server, the counters and their worker, in
//! one process tree.

use crate::config::{ConfigFlags, load};
use crate::counters;
use crate::error::CliError;
use crate::history::{History, elastic_options, kafka_options};
use crate::indexer::indexing;
use crate::output::Output;
use crate::server::{HistoryAddresses, cannot_serve};
use crate::shutdown::Shutdown;
use clap::Args;
use futures::FutureExt;
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tallystone_client::Client;
use tallystone_counters::namespace::CounterType;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_counters::{NamespaceConfig, NamespaceName};
use tallystone_indexer::elastic::Elastic;
use tallystone_indexer::kafka::IndexerOptions;
use tallystone_local::{
    PrivateElasticsearch, PrivateElasticsearchOptions, PrivateKafka, PrivateKafkaOptions, PrivateRedis,
    PrivateRedisOptions,
};
use tallystone_server::BesideTask;
use tallystone_server::ServerConfig;
use tallystone_server::redis_options;
use tallystone_server::store::{RedisStore, ReplicaWait};
use tokio::net::TcpListener;

/// Where the counters are served, unless told otherwise.
const COUNTERS_PORT: u16 = 7610;
/// The namespace that is there from the beginning.
const NAMESPACE: &str = "default";

#[derive(Args, Debug)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    #[command(flatten)]
    addresses: HistoryAddresses,
    /// Where to serve the counters, gRPC and HTTP [default: 127.0.0.1:7610, or a free port where --listen takes one]
    #[arg(long, value_name = "ADDRESS")]
    counters_listen: Option<SocketAddr>,
    /// Start a Kafka and an Elasticsearch too, and keep history there (`./quickstart --full` installs them)
    #[arg(long, conflicts_with_all = ["kafka", "elasticsearch"])]
    full: bool,
    /// Where the data lives [default: tallystone/dev in $XDG_DATA_HOME, else .tallystone/dev here]
    #[arg(long, value_name = "DIR", env = "TALLYSTONE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The port of the private Redis [default: a free one]
    #[arg(long, value_name = "PORT")]
    redis_port: Option<u16>,
}

/// What is laid over the file and the environment.
#[derive(Serialize)]
struct Flags {
    #[serde(flatten)]
    flags: ConfigFlags,
    #[serde(flatten)]
    addresses: HistoryAddresses,
}

/// What is running, and where.
#[derive(Serialize)]
struct Running {
    server: String,
    counters: String,
    redis_url: String,
    kafka: Option<String>,
    elasticsearch: Option<String>,
    metrics: Option<String>,
    data_dir: PathBuf,
    process_id: u32,
}

pub(crate) async fn run(args: DevArgs, output: Output) -> Result<(), CliError> {
    let file = args.flags.config.clone();
    let flags = Flags { flags: args.flags, addresses: args.addresses };
    let mut config: ServerConfig = load(file.as_deref(), flags)?;
    if config.kafka.is_some() != config.elasticsearch.is_some() {
        return Err(CliError::usage("kafka and elasticsearch go together: events go through the one into the other"));
    }
    config.check().map_err(CliError::usage)?;
    if config.redis_url != ServerConfig::default().redis_url {
        return Err(CliError::usage("redis_url: `dev` brings a Redis of its own")
            .hint("`tallystone server` serves from another"));
    }
    // First of all that starts: a signal from here on stops what was started.
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        CliError::usage(format!("cannot listen on {}: {error}", config.listen))
            .hint("is a server running already? --listen 127.0.0.1:0 takes a free port")
    })?;
    let counters_port = if config.listen.port() == 0 { 0 } else { COUNTERS_PORT };
    let counters_listen = args.counters_listen.unwrap_or_else(|| SocketAddr::new(config.listen.ip(), counters_port));
    let counters_listener = counters::listen(counters_listen).await?;
    if let Some(address) = config.metrics_listen {
        // Bound when the server starts: what is wrong with it is to be said before all is said to be ready.
        std::net::TcpListener::bind(address)
            .map_err(|error| CliError::usage(format!("cannot serve metrics on {address}: {error}")))?;
    }
    let data_dir = args.data_dir.unwrap_or_else(|| data_dir_of("dev"));
    let options = PrivateRedisOptions { port: args.redis_port, ..PrivateRedisOptions::new(&data_dir) };
    let redis = PrivateRedis::start(options).await.map_err(|error| cannot_serve(&error))?;
    config.redis_url = redis.url();
    if args.full && config.history_file.is_some() {
        redis.stop().await;
        return Err(CliError::usage("history_file is set beside --full: events go to one of them"));
    }
    let full = match args.full {
        true => Some(Full::start(&data_dir).await?),
        false => None,
    };
    if let Some(full) = &full {
        config.kafka = Some(full.kafka.address());
        config.elasticsearch = Some(full.elasticsearch.url());
        config.elasticsearch_replicas = 0;
    } else if config.kafka.is_none() && config.history_file.is_none() {
        config.history_file = Some(data_dir.join("history.db"));
    }

    let listeners = Listeners { queue: listener, counters: counters_listener };
    let served = serve(config, listeners, &redis, full.as_ref(), &data_dir, shutdown, output).await;
    redis.stop().await;
    if let Some(full) = full {
        full.kafka.stop().await;
        full.elasticsearch.stop().await;
    }
    served
}

/// Where it is to be served.
struct Listeners {
    queue: TcpListener,
    counters: TcpListener,
}

/// The counters and their worker, with a namespace to try them in: its counts are exact at once.
async fn counting(redis_url: &str, server: &str, listener: TcpListener) -> Result<BesideTask, CliError> {
    let connect = async || {
        let connected = RedisNamespaces::connect(redis_url, false, ReplicaWait::default()).await;
        connected.map_err(|error| cannot_serve(&error))
    };
    let (namespaces, of_worker) = (connect().await?, connect().await?);
    let name = NamespaceName::parse(NAMESPACE).map_err(CliError::usage)?;
    if namespaces.get(&name).await.map_err(CliError::unavailable)?.is_none() {
        let config =
            NamespaceConfig { counter_type: CounterType::Accurate, num_queues: 1, ..NamespaceConfig::default() };
        namespaces.put(&name, config).await.map_err(CliError::unavailable)?;
    }
    let queue = Client::builder(server).connect_lazy().map_err(CliError::usage)?;
    Ok(Box::new(move |stopping| {
        async move {
            let worker = tokio::spawn(counters::working(of_worker, queue.clone(), stopping.clone()));
            if let Err(failure) = counters::serving(namespaces, queue, listener, None, stopping).await {
                tracing::error!(%failure, "the counters have ended");
            }
            if let Err(error) = worker.await {
                tracing::error!(%error, "the worker has ended");
            }
        }
        .boxed()
    }))
}

/// The services that history has in a larger house.
struct Full {
    kafka: PrivateKafka,
    elasticsearch: PrivateElasticsearch,
}

/// When one of them has ended.
async fn ended(full: Option<&Full>) {
    match full {
        Some(full) => tokio::select! {
            () = full.kafka.ended() => {}
            () = full.elasticsearch.ended() => {}
        },
        None => std::future::pending().await,
    }
}

/// An address as it may be shown.
fn without_user(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, host)| host)),
        None => url.to_owned(),
    }
}

impl Full {
    async fn start(data_dir: &Path) -> Result<Full, CliError> {
        let kafka = PrivateKafka::start(PrivateKafkaOptions::new(data_dir.join("kafka")));
        let elasticsearch =
            PrivateElasticsearch::start(PrivateElasticsearchOptions::new(data_dir.join("elasticsearch")));
        let (kafka, elasticsearch) = tokio::join!(kafka, elasticsearch);
        Ok(Full {
            kafka: kafka.map_err(|error| cannot_serve(&error))?,
            elasticsearch: elasticsearch.map_err(|error| cannot_serve(&error))?,
        })
    }
}

async fn serve(
    config: ServerConfig,
    listeners: Listeners,
    redis: &PrivateRedis,
    full: Option<&Full>,
    data_dir: &Path,
    shutdown: Shutdown,
    output: Output,
) -> Result<(), CliError> {
    let store = RedisStore::connect(redis_options(&config)).await.map_err(|error| cannot_serve(&error))?;
    let store = Arc::new(store);
    let mut beside = History::open(&config)?.beside(&store);
    if let (Some(kafka), Some(elastic)) = (kafka_options(&config)?, elastic_options(&config)) {
        let elastic = Arc::new(Elastic::new(elastic).map_err(CliError::usage)?);
        let options = IndexerOptions { kafka, ..IndexerOptions::default() };
        beside.tasks.push(Box::new(|stopping| {
            indexing(elastic, options, stopping)
                .map(|ended| ended.unwrap_or_else(|failure| tracing::error!(%failure, "the indexer has ended")))
                .boxed()
        }));
    }
    let address =
        |listener: &TcpListener| listener.local_addr().map_err(CliError::usage).map(|at| format!("http://{at}"));
    let (server, counters) = (address(&listeners.queue)?, address(&listeners.counters)?);
    beside.tasks.push(counting(&redis.url(), &server, listeners.counters).await?);
    let running = Running {
        server,
        counters,
        redis_url: redis.url(),
        kafka: config.kafka.clone(),
        elasticsearch: config.elasticsearch.as_deref().map(without_user),
        metrics: config.metrics_listen.map(|address| format!("http://{address}/metrics")),
        data_dir: data_dir.canonicalize().map_err(CliError::usage)?,
        process_id: std::process::id(),
    };
    output.one(&running, banner)?;
    let stop = async {
        tokio::select! {
            () = shutdown.requested() => {}
            () = redis.ended() => {}
            () = ended(full) => {}
        }
    };
    tallystone_server::serve_redis(store, listeners.queue, config, beside, Box::pin(stop))
        .await
        .map_err(|error| cannot_serve(&error))?;
    if let Some(full) = full
        && (full.kafka.has_ended() || full.elasticsearch.has_ended())
    {
        return Err(CliError::unavailable("the Kafka or the Elasticsearch of this `dev` has ended")
            .hint("nothing is lost; their logs are in the data folder; start `tallystone dev --full` again"));
    }
    match redis.has_ended() {
        true => Err(CliError::unavailable("the private Redis has ended: was it killed, or out of memory?")
            .hint("what it acknowledged is on the disk; start `tallystone dev` again")),
        false => Ok(()),
    }
}

/// Where the data of one verb lives.
pub(crate) fn data_dir_of(verb: &str) -> PathBuf {
    data_dir(std::env::var_os("XDG_DATA_HOME").map(PathBuf::from), verb)
}

fn data_dir(xdg_data_home: Option<PathBuf>, verb: &str) -> PathBuf {
    // The XDG specification: a relative path is to be ignored.
    match xdg_data_home.filter(|home| home.is_absolute()) {
        Some(home) => home.join("tallystone").join(verb),
        None => PathBuf::from(".tallystone").join(verb),
    }
}

fn banner(running: &Running) -> String {
    let metrics = running.metrics.as_ref().map_or_else(String::new, |url| format!("\n  metrics  {url}"));
    let other = if running.server.ends_with(":7600") {
        String::new()
    } else {
        format!("\n  export TALLYSTONE_SERVER={}", running.server)
    };
    let other = if running.counters.ends_with(":7610") {
        other
    } else {
        format!("{other}\n  export TALLYSTONE_COUNTERS={}", running.counters)
    };
    let history = match (&running.kafka, &running.elasticsearch) {
        (Some(kafka), Some(elasticsearch)) => format!("\n  Kafka    {kafka}\n  history  {elasticsearch}"),
        _ => String::new(),
    };
    format!(
        "Tallystone is ready.
  gRPC     {}{metrics}
  counters {} (gRPC, and HTTP: open it in a browser)
  Redis    {}{history}
  data     {} (kept; delete it to start empty)

Try, in another terminal:{other}
  tallystone msg enqueue hello --payload 'hello, world'
  tallystone work hello --exec 'cat; echo'
  tallystone queue ls
  tallystone queue stats hello
  tallystone counter add visits
  tallystone counter get visits

Ctrl-C stops all of it.",
        running.server,
        running.counters,
        running.redis_url,
        running.data_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lives_in_xdg_or_here() {
        assert_eq!(data_dir(Some("/d".into()), "dev"), PathBuf::from("/d/tallystone/dev"));
        assert_eq!(data_dir(Some("d".into()), "dev"), PathBuf::from(".tallystone/dev"));
        assert_eq!(data_dir(None, "demo"), PathBuf::from(".tallystone/demo"));
    }
}
