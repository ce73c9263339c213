//! `tallystone dev`: a private Redis whose data survives restarts, and a server beside it, in one process tree.

use crate::config::{ConfigFlags, load};
use crate::failure::Failure;
use crate::output::Output;
use crate::server::cannot_serve;
use crate::shutdown::Shutdown;
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tallystone_server::ServerConfig;
use tallystone_server::private_redis::{PrivateRedis, PrivateRedisOptions};
use tallystone_server::redis_options;
use tallystone_server::store::RedisStore;
use tokio::net::TcpListener;

#[derive(Args, Debug)]
pub(crate) struct DevArgs {
    #[command(flatten)]
    flags: ConfigFlags,
    /// Where the data lives [default: tallystone/dev in $XDG_DATA_HOME, else .tallystone/dev here]
    #[arg(long, value_name = "DIR", env = "TALLYSTONE_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// The port of the private Redis [default: a free one]
    #[arg(long, value_name = "PORT")]
    redis_port: Option<u16>,
}

/// What is running, and where.
#[derive(Serialize)]
struct Running {
    server: String,
    redis_url: String,
    metrics: Option<String>,
    data_dir: PathBuf,
    process_id: u32,
}

pub(crate) async fn run(args: DevArgs, output: Output) -> Result<(), Failure> {
    let file = args.flags.config.clone();
    let mut config: ServerConfig = load(file.as_deref(), args.flags)?;
    config.check().map_err(Failure::usage)?;
    if config.redis_url != ServerConfig::default().redis_url {
        return Err(Failure::usage("redis_url: `dev` brings a Redis of its own")
            .hint("`tallystone server` serves from another"));
    }
    // First of all that starts: a signal from here on stops what was started.
    let shutdown = Shutdown::listen().map_err(Failure::usage)?;
    let listener = TcpListener::bind(config.listen).await.map_err(|error| {
        Failure::usage(format!("cannot listen on {}: {error}", config.listen))
            .hint("is a server running already? --listen 127.0.0.1:0 takes a free port")
    })?;
    if let Some(address) = config.metrics_listen {
        // Bound when the server starts: what is wrong with it is to be said before all is said to be ready.
        std::net::TcpListener::bind(address)
            .map_err(|error| Failure::usage(format!("cannot serve metrics on {address}: {error}")))?;
    }
    let data_dir = args.data_dir.unwrap_or_else(|| data_dir(std::env::var_os("XDG_DATA_HOME").map(PathBuf::from)));
    let options = PrivateRedisOptions { port: args.redis_port, ..PrivateRedisOptions::new(&data_dir) };
    let redis = PrivateRedis::start(options).await.map_err(|error| cannot_serve(&error))?;
    config.redis_url = redis.url();

    let served = serve(config, listener, &redis, &data_dir, shutdown, output).await;
    redis.stop().await;
    served
}

async fn serve(
    config: ServerConfig,
    listener: TcpListener,
    redis: &PrivateRedis,
    data_dir: &Path,
    shutdown: Shutdown,
    output: Output,
) -> Result<(), Failure> {
    let store = RedisStore::connect(redis_options(&config)).await.map_err(|error| cannot_serve(&error))?;
    let running = Running {
        server: format!("http://{}", listener.local_addr().map_err(Failure::usage)?),
        redis_url: redis.url(),
        metrics: config.metrics_listen.map(|address| format!("http://{address}/metrics")),
        data_dir: data_dir.canonicalize().map_err(Failure::usage)?,
        process_id: std::process::id(),
    };
    output.one(&running, banner)?;
    let stop = async {
        tokio::select! {
            () = shutdown.requested() => {}
            () = redis.ended() => {}
        }
    };
    tallystone_server::serve_on(Arc::new(store), listener, config, stop).await.map_err(|error| cannot_serve(&error))?;
    match redis.has_ended() {
        true => Err(Failure::unavailable("the private Redis has ended: was it killed, or out of memory?")
            .hint("what it acknowledged is on the disk; start `tallystone dev` again")),
        false => Ok(()),
    }
}

fn data_dir(xdg_data_home: Option<PathBuf>) -> PathBuf {
    // The XDG specification: a relative path is to be ignored.
    match xdg_data_home.filter(|home| home.is_absolute()) {
        Some(home) => home.join("tallystone/dev"),
        None => PathBuf::from(".tallystone/dev"),
    }
}

fn banner(running: &Running) -> String {
    let metrics = running.metrics.as_ref().map_or_else(String::new, |url| format!("\n  metrics  {url}"));
    let other = if running.server.ends_with(":7600") {
        String::new()
    } else {
        format!("\n  export TALLYSTONE_SERVER={}", running.server)
    };
    format!(
        "Tallystone is ready.
  gRPC     {}{metrics}
  Redis    {}
  data     {} (kept; delete it to start anew)

Try, in another terminal:{other}
  tallystone msg enqueue hello --payload 'hello, world'
  tallystone work hello --exec 'cat; echo'
  tallystone queue ls

Ctrl-C stops both.",
        running.server,
        running.redis_url,
        running.data_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_lives_in_xdg_or_here() {
        assert_eq!(data_dir(Some("/d".into())), PathBuf::from("/d/tallystone/dev"));
        assert_eq!(data_dir(Some("d".into())), PathBuf::from(".tallystone/dev"));
        assert_eq!(data_dir(None), PathBuf::from(".tallystone/dev"));
    }
}
