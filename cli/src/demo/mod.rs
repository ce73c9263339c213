//! `tallystone demo …`: jobs that show the queue at work and check what they see.
//!
//! What lives here: the jobs, and the server that they bring along where none is named. A job knows the queue only
//! through its client.

mod flights;

pub(crate) use flights::FlightsArgs;

use crate::counters;
use flights::Tallies;

use crate::connection::{cli_error, server_url};
use crate::error::CliError;
use crate::history::{History, demo_file};
use crate::output::Output;
use crate::server::cannot_serve;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tallystone_client::{Client, Error};
use tallystone_counters::redis::RedisNamespaces;
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tallystone_server::ServerConfig;
use tallystone_server::store::{RedisOptions, RedisStore, ReplicaWait};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// `demo flights`: on the server named, or on one of its own.
pub(crate) async fn flights(mut args: FlightsArgs, server: Option<String>, output: Output) -> Result<(), CliError> {
    args.quiet |= output.json;
    let own = match &server {
        Some(_) => None,
        None => Some(OwnServer::start(demo_file()).await?),
    };
    let url = own.as_ref().map_or_else(|| server_url(server.as_deref()), |own| own.url.clone());
    let tallies = own.as_ref().map(OwnServer::tallies);
    let flown = fly(args, &url, tallies, output).await;
    if let Some(own) = own {
        // The last events, those of the end of the queue, are still on their way.
        if let Ok(client) = Client::connect(&own.url).await {
            let _ = flights::caught_up(&client).await;
        }
        own.stop().await;
    }
    flown
}

async fn fly(args: FlightsArgs, url: &str, tallies: Option<Tallies>, output: Output) -> Result<(), CliError> {
    let client = Client::connect(url).await.map_err(|error| cli_error(&error))?;
    let report = flights::run(args, client, tallies).await.map_err(|error| match error.downcast_ref::<Error>() {
        Some(error) => cli_error(error),
        None => CliError::usage(format!("{error:#}")),
    })?;
    output.one(&report, ToString::to_string)?;
    if report.passed() { Ok(()) } else { Err(CliError::refused("a check failed")) }
}

/// A server and its private Redis, as durable as any, whose data goes when the demo ends.
struct OwnServer {
    url: String,
    counters_url: String,
    redis: PrivateRedis,
    stop: oneshot::Sender<()>,
    served: JoinHandle<Result<(), tallystone_server::ServeError>>,
    stop_counters: CancellationToken,
    counted: JoinHandle<Result<(), CliError>>,
    _data: tempfile::TempDir,
}

impl OwnServer {
    async fn start(history_file: PathBuf) -> Result<Self, CliError> {
        let data = tempfile::tempdir().map_err(CliError::usage)?;
        let options = PrivateRedisOptions::new(data.path());
        let redis = PrivateRedis::start(options).await.map_err(|error| cannot_serve(&error))?;
        let options = RedisOptions { url: redis.url(), ..RedisOptions::default() };
        let store = Arc::new(RedisStore::connect(options).await.map_err(|error| cannot_serve(&error))?);
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(CliError::usage)?;
        let url = format!("http://{}", listener.local_addr().map_err(CliError::usage)?);
        make_room(&history_file);
        let mut config =
            ServerConfig { redis_url: redis.url(), history_file: Some(history_file), ..ServerConfig::default() };
        let history = History::open(&config).unwrap_or_else(|failure| {
            tracing::warn!(%failure, "this demo keeps no history");
            config.history_file = None;
            History::default()
        });
        let beside = history.beside(&store);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async { drop(stopped.await) };
        let served = tokio::spawn(tallystone_server::serve_redis(store, listener, config, beside, Box::pin(shutdown)));
        let connected = RedisNamespaces::connect(&redis.url(), false, ReplicaWait::default()).await;
        let namespaces = connected.map_err(|error| cannot_serve(&error))?;
        let queue = Client::builder(&url).connect_lazy().map_err(CliError::usage)?;
        let listener = counters::listen(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
        let counters_url = format!("http://{}", listener.local_addr().map_err(CliError::usage)?);
        let stop_counters = CancellationToken::new();
        let counted = tokio::spawn(counters::serving(namespaces, queue, listener, None, stop_counters.clone()));
        Ok(OwnServer { url, counters_url, redis, stop, served, stop_counters, counted, _data: data })
    }

    /// Where flights are counted.
    fn tallies(&self) -> Tallies {
        Tallies { counters: self.counters_url.clone(), server: self.url.clone(), redis_url: self.redis.url() }
    }

    async fn stop(self) {
        self.stop_counters.cancel();
        match self.counted.await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => tracing::warn!(%failure, "the demo's counters did not stop well"),
            Err(error) => tracing::warn!(%error, "the demo's counters did not stop well"),
        }
        drop(self.stop);
        if let Err(error) = self.served.await.map_err(anyhow::Error::from).and_then(|served| Ok(served?)) {
            tracing::warn!(%error, "the demo's server did not stop well");
        }
        self.redis.stop().await;
    }
}

/// The history of the last demo makes room for this one's, which stays: it is there to be asked.
fn make_room(file: &Path) {
    for ending in ["", "-wal", "-shm"] {
        let mut name = file.to_owned().into_os_string();
        name.push(ending);
        // Not there, most likely; what stays in the way shows when the file is opened.
        let _ = std::fs::remove_file(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};

    /// The main job on the month's first 600 rows, on a real Redis.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn q4_flights_fly_one_at_a_time_in_order_exactly_once() {
        let month = &include_bytes!("../../../lab/demo/data/flights-2013-01.csv.gz")[..];
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let lines: Vec<String> =
            BufReader::new(flate2::read::GzDecoder::new(month)).lines().take(601).collect::<Result<_, _>>().unwrap();
        writeln!(file, "{}", lines.join("\n")).unwrap();
        // The first row again: the same message. The second with another delay: its id is taken.
        let (same, other) = (&lines[1], lines[2].replace(",4,", ",99,"));
        assert_ne!(lines[2], other);
        writeln!(file, "{same}\n{other}").unwrap();
        let without = lines[1..].iter().filter(|line| line.split(',').nth(3) == Some("")).count() as u64;

        let history = tempfile::tempdir().unwrap();
        let own = OwnServer::start(history.path().join("history.db")).await.unwrap();
        let client = Client::connect(&own.url).await.unwrap();
        let args = FlightsArgs { file: Some(file.path().to_owned()), workers: 4, keep: false, quiet: true };
        let report = flights::run(args, client.clone(), None).await.unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert!(report.passed(), "{json:#}");
        assert_eq!((&json["rows"], &json["repeated"]), (&602.into(), &1.into()));
        assert_eq!(json["refused"]["ID_CONFLICT"], 1);
        assert_eq!(json["refused"]["INVALID_ARGUMENT"].as_u64().unwrap_or(0), without);
        assert_eq!(json["completed"], 600 - without);
        assert_eq!(json["redelivered"].as_u64(), json["killed"]["flights"].as_array().map(|held| held.len() as u64));
        assert_ne!(json["redelivered"], 0);
        assert!(client.list_queues("", 10, "").await.unwrap().items.is_empty(), "the demo's queue is gone");
        own.stop().await;
    }
}
