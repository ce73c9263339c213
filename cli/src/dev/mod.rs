//! `tallystone dev`: a private Redis whose data survives restarts, and the queue, the counters, a rollup worker and the view
//! counter on it, in one process tree. Other users of the machine can use its ports, but not its data and its Redis.

mod private_store;
mod running;

use crate::config::{ConfigFile, HistoryServices, MetricsFlag, Overrides, load};
use crate::data_dir::{data_dir_of, earlier_data_dir_of};
use crate::error::CliError;
use crate::global::Global;
use crate::output::Output;
use crate::serving::{cannot_assemble, cannot_serve, listen};
use crate::shutdown::Shutdown;
use crate::traces;
use clap::Args;
use nix::sys::stat::{Mode, umask};
use private_store::PrivateStore;
use running::{Running, banner};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tallystone_assembly::{AllInOne, Config, Listeners, create_namespace};
use tallystone_counters::namespace::CounterType;
use tallystone_counters::{CountersConfig, NamespaceConfig, NamespaceName};
use tallystone_link::RedisConfig;
use tallystone_local::{
    PrivateElasticsearch, PrivateElasticsearchOptions, PrivateKafka, PrivateKafkaOptions, private_dir,
};
use tallystone_model::without_password;
use tallystone_views::ViewsConfig;
use tokio::net::TcpListener;

/// The folder of what belongs to `--cluster`, in the data folder: its history is not mixed with that of a single Redis.
const CLUSTER_DIR: &str = "cluster";
/// The namespace that `dev` creates.
const NAMESPACE: &str = "default";

#[derive(Args, Debug)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Where to serve the queue over gRPC [default: 127.0.0.1:7600]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    metrics: MetricsFlag,
    #[command(flatten)]
    history: HistoryServices,
    /// Where to serve the counters over gRPC and HTTP [default: the address of --listen with port 7610, or with a free
    /// port if --listen has port 0]
    #[arg(long, value_name = "ADDRESS")]
    counters_listen: Option<SocketAddr>,
    /// Where to count views over HTTP [default: the address of --listen with port 7620, or with a free port if --listen has
    /// port 0]
    #[arg(long, value_name = "ADDRESS")]
    views_listen: Option<SocketAddr>,
    /// Also start Kafka and Elasticsearch, and keep history there (`./quickstart --full` installs them)
    #[arg(long, conflicts_with_all = ["kafka_brokers", "elasticsearch_url"])]
    full: bool,
    /// The folder for the data [default: tallystone/dev in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, value_name = "DIR", env = "TALLYSTONE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Serve plain text, to every caller, on an address that other machines can reach
    #[arg(long)]
    insecure: bool,
    /// The port of the private Redis [default: a free one]
    #[arg(long, value_name = "PORT", conflicts_with = "cluster")]
    redis_port: Option<u16>,
    /// Start a Redis Cluster of three primaries and three replicas instead of one Redis, with separate data
    #[arg(long)]
    cluster: bool,
}

pub(crate) async fn run(args: DevArgs, global: &Global, output: Output) -> Result<(), CliError> {
    let flags = Overrides::default()
        .set_telemetry(&global.telemetry)
        .set("server.listen", args.listen)
        .set("server.metrics_listen", args.metrics.metrics_listen)
        .set("counters.listen", args.counters_listen)
        .set("views.listen", args.views_listen)
        .set("tls.insecure", args.insecure.then_some(true));
    let mut config = load(args.file.path.as_deref(), args.history.set(flags))?;
    traces::start(&config.telemetry, "tallystone-dev")?;
    check(&config, args.full)?;
    // From here on, a signal stops all that was started.
    let shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let counters = following(&config, config.counters.listen, CountersConfig::default().listen);
    let views = following(&config, config.views.listen, ViewsConfig::default().listen);
    let listeners = Listeners { queue: listen(config.server.listen).await?, counters: listen(counters).await? };
    // The view counter needs a single Redis.
    let views = if args.cluster { None } else { Some(listen(views).await?) };
    if let Some(address) = config.server.metrics_listen {
        // The port is bound for good when the server starts; its errors are shown now, before services start.
        std::net::TcpListener::bind(address)
            .map_err(|error| CliError::usage(format!("cannot serve metrics on {address}: {error}")))?;
    }
    // What this process and its children write is for this user only.
    umask(Mode::from_bits_truncate(0o077));
    let mut data_dir = private_dir(&args.data_dir.unwrap_or_else(default_data_dir)).map_err(CliError::usage)?;
    if args.cluster {
        data_dir = private_dir(&data_dir.join(CLUSTER_DIR)).map_err(CliError::usage)?;
    }
    let (store, module) = PrivateStore::start(&data_dir, args.redis_port, args.cluster).await?;
    config.redis.url = store.url();
    config.redis.data_dir = Some(data_dir.clone());
    if config.archive.url.is_none() {
        config.archive.url = Some(format!("file://{}", data_dir.join("archive").display()));
    }
    let full = match args.full {
        true => Some(Full::start(&data_dir).await?),
        false => None,
    };
    if let Some(full) = &full {
        config.kafka.brokers = Some(full.kafka.address());
        config.elasticsearch.url = Some(full.elasticsearch.url());
        config.elasticsearch.replicas = 0;
    } else if config.kafka.brokers.is_none() && config.history.file.is_none() {
        config.history.file = Some(data_dir.join("history.db"));
    }
    let private = Private { store: &store, module, full: full.as_ref(), data_dir: &data_dir };
    let served = serve(&config, (listeners, views), private, shutdown, output).await;
    store.stop().await;
    if let Some(full) = full {
        full.kafka.stop().await;
        full.elasticsearch.stop().await;
    }
    served
}

fn default_data_dir() -> PathBuf {
    let (folder, earlier) = (data_dir_of("dev"), earlier_data_dir_of("dev"));
    if !folder.exists() && earlier.exists() {
        tracing::warn!("{} has data of an earlier version; --data-dir {0} uses it", earlier.display());
    }
    folder
}

/// Checks what `dev` needs of a configuration, in addition to the checks of each section.
fn check(config: &Config, full: bool) -> Result<(), CliError> {
    if config.kafka.brokers.is_some() != config.elasticsearch.url.is_some() {
        return Err(CliError::usage(
            "set both kafka.brokers and elasticsearch.url, or neither: events go through Kafka into Elasticsearch",
        ));
    }
    config.check_queue().and_then(|()| config.check_counters()).map_err(CliError::usage)?;
    config.check_views().map_err(CliError::usage)?;
    config.check_indexer().map_err(CliError::usage)?;
    let default = RedisConfig::default();
    let is_other = config.redis.url != default.url || config.redis.access() != default.access();
    if is_other || config.redis.data_dir.is_some() {
        return Err(CliError::usage(
            "redis.url, data_dir or a key of its access is set, but `dev` starts its own Redis",
        )
        .hint("`tallystone server` uses an existing Redis"));
    }
    // It would be served without what the keys promise.
    let has_identities = config.auth.principals_file.is_some() || config.jwt.issuer.is_some();
    if config.tls.cert_file.is_some() || has_identities {
        return Err(CliError::usage("`dev` serves plain text to every caller, but [tls], [auth] or [jwt] is set")
            .hint("`tallystone server` and `tallystone counters` use them"));
    }
    if config.audit.file.is_some() {
        return Err(CliError::usage("audit.file is set, but `dev` knows no callers and keeps no audit log")
            .hint("`tallystone server` and `tallystone counters` keep one"));
    }
    if full && config.history.file.is_some() {
        return Err(CliError::usage("history.file is set together with --full, but history has only one store"));
    }
    Ok(())
}

/// Where no address is configured, counters and views follow the queue: its interface, and a free port if it takes one.
fn following(config: &Config, configured: SocketAddr, default: SocketAddr) -> SocketAddr {
    if configured != default {
        return configured;
    }
    let queue = config.server.listen;
    SocketAddr::new(queue.ip(), if queue.port() == 0 { 0 } else { default.port() })
}

/// What this process has started.
struct Private<'a> {
    store: &'a PrivateStore,
    module: Option<PathBuf>,
    full: Option<&'a Full>,
    data_dir: &'a Path,
}

async fn serve(
    config: &Config,
    listeners: (Listeners, Option<TcpListener>),
    Private { store, module, full, data_dir }: Private<'_>,
    shutdown: Shutdown,
    output: Output,
) -> Result<(), CliError> {
    let mut services = start(config, listeners).await.map_err(cannot_assemble)?;
    let running = Running {
        server: services.queue_url(),
        counters: services.counters_url(),
        views: services.views_url(),
        namespace: NAMESPACE,
        redis_url: store.shown_url(),
        redis_conf: store.conf(data_dir),
        compact_module: module,
        kafka: config.kafka.brokers.clone(),
        elasticsearch: config.elasticsearch.url.as_deref().map(without_password),
        metrics: config.server.metrics_listen.map(|address| format!("http://{address}/metrics")),
        data_dir: data_dir.to_owned(),
        process_id: std::process::id(),
    };
    output.one(&running, banner)?;
    let failed = tokio::select! {
        () = shutdown.requested() => None,
        error = store.ended() => Some(error),
        () = ended(full) => None,
        error = services.ended() => Some(cannot_serve(&error)),
    };
    let stopped = services.stop().await;
    if let Some(full) = full
        && (full.kafka.has_ended() || full.elasticsearch.has_ended())
    {
        return Err(CliError::unavailable("Kafka or Elasticsearch, which this `dev` started, has ended")
            .hint("nothing is lost; their logs are in the data folder; start `tallystone dev --full` again"));
    }
    if let Some(error) = failed {
        return Err(error);
    }
    stopped.map_err(|error| cannot_serve(&error))
}

/// The queue, the counters, their worker and the view counter, with a namespace to try; its counts are exact at once.
async fn start(
    config: &Config,
    (listeners, views): (Listeners, Option<TcpListener>),
) -> Result<AllInOne, tallystone_assembly::AssemblyError> {
    let name = NamespaceName::parse(NAMESPACE)?;
    let accurate = NamespaceConfig { counter_type: CounterType::Accurate, num_queues: 1, ..NamespaceConfig::default() };
    create_namespace(config, &name, accurate).await?;
    let all = AllInOne::start(config, listeners).await?.with_rollup_worker(config).await?;
    match views {
        Some(views) => all.with_views(config, views).await,
        None => Ok(all),
    }
}

/// The services that `--full` starts for history.
struct Full {
    kafka: PrivateKafka,
    elasticsearch: PrivateElasticsearch,
}

/// Waits until one of them ends.
async fn ended(full: Option<&Full>) {
    match full {
        Some(full) => tokio::select! {
            () = full.kafka.ended() => {}
            () = full.elasticsearch.ended() => {}
        },
        None => std::future::pending().await,
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
