//! The engine with the module in it: a redis-server or valkey-server of one figure.

use super::generator;
use super::objects::FIELDS;
use super::plan::CompactPlan;
use super::requests::{SET, Store};
use anyhow::{Context, Result, bail};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Value};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tallystone_local::{Fsync, PrivateRedis, PrivateRedisOptions};
use tempfile::TempDir;

/// What the engine logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    /// Each write, synced before its reply or once a second.
    Synced(Fsync),
    /// Nothing: for what snapshots and memory cost.
    None,
}

/// A running engine.
pub(super) struct Engine {
    // Declared first, so that it ends before the folder is removed.
    redis: PrivateRedis,
    connection: MultiplexedConnection,
    dir: TempDir,
    log: Log,
    module: PathBuf,
    readers: u64,
}

impl Engine {
    /// Starts one in a new folder.
    pub(super) async fn start(plan: &CompactPlan, log: Log) -> Result<Engine> {
        Engine::start_in(plan.module.clone(), plan.args.readers, tempfile::tempdir()?, log).await
    }

    async fn start_in(module: PathBuf, readers: u64, dir: TempDir, log: Log) -> Result<Engine> {
        let mut options = PrivateRedisOptions::new(dir.path());
        let module_path = module.to_str().context("the module's path is not Unicode")?;
        let threads = readers.to_string();
        let plain = ["--auto-aof-rewrite-percentage", "0", "--enable-debug-command", "local"];
        let arguments = [&plain[..], &["--loadmodule", module_path, "readers", &threads]].concat();
        options.extra_args = arguments.into_iter().map(str::to_owned).collect();
        match log {
            Log::Synced(fsync) => options.fsync = fsync,
            Log::None => options.extra_args.extend(["--appendonly", "no"].map(str::to_owned)),
        }
        let redis = PrivateRedis::start(options).await.context("cannot start the engine with the module")?;
        let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(redis.url())?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Engine { redis, connection, dir, log, module, readers })
    }

    /// Stops it and starts it again with what it wrote. Returns how long it took until it answered with everything loaded.
    pub(super) async fn restart(self) -> Result<(Engine, Duration)> {
        let Engine { redis, dir, log, module, readers, .. } = self;
        redis.stop().await;
        let began = Instant::now();
        let engine = Engine::start_in(module, readers, dir, log).await?;
        Ok((engine, began.elapsed()))
    }

    pub(super) async fn stop(self) {
        self.redis.stop().await;
    }

    pub(super) fn port(&self) -> u16 {
        self.redis.port()
    }

    pub(super) fn pid(&self) -> u32 {
        self.redis.pid()
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Sends one command, its words separated by spaces.
    pub(super) async fn command<T: FromRedisValue>(&self, words: &str) -> Result<T> {
        let mut all = words.split(' ');
        let mut command = redis::cmd(all.next().unwrap_or_default());
        all.for_each(|word| {
            command.arg(word);
        });
        command.query_async(&mut self.connection.clone()).await.with_context(|| words.to_owned())
    }

    /// Makes an empty counter set, with these options.
    pub(super) async fn create(&self, options: &str) -> Result<()> {
        let fields: String = FIELDS.iter().map(|(name, width)| format!(" {name} {width}")).collect();
        let options = if options.is_empty() { String::new() } else { format!("{options} ") };
        self.command(&format!("CT.CREATE {SET} {options}SCHEMA{fields}")).await
    }

    /// Stores the objects from `first` to before `end`.
    pub(super) async fn fill(&self, store: Store, first: u64, end: u64) -> Result<()> {
        let port = self.port();
        tokio::task::spawn_blocking(move || generator::fill(port, store, first, end)).await?
    }

    /// Sets how writes are logged. `Log::None` cannot be set.
    pub(super) async fn sync(&self, fsync: Fsync) -> Result<()> {
        let name = if fsync == Fsync::Always { "always" } else { "everysec" };
        self.command(&format!("CONFIG SET appendfsync {name}")).await
    }

    pub(super) async fn flush(&self) -> Result<()> {
        self.command("FLUSHALL SYNC").await
    }

    /// A field of INFO.
    pub(super) async fn info(&self, section: &str, field: &str) -> Result<String> {
        let text: String = self.command(&format!("INFO {section}")).await?;
        let value = text.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| *name == field);
        Ok(value.with_context(|| format!("INFO {section} has no {field}"))?.1.to_owned())
    }

    pub(super) async fn info_number(&self, section: &str, field: &str) -> Result<f64> {
        let text = self.info(section, field).await?;
        text.parse().with_context(|| format!("INFO {section}: {field} is {text}"))
    }

    /// Name and version, as `Redis 7.0.15`.
    pub(super) async fn version(&self) -> Result<String> {
        match self.info("server", "valkey_version").await {
            Ok(version) => Ok(format!("Valkey {version}")),
            Err(_) => Ok(format!("Redis {}", self.info("server", "redis_version").await?)),
        }
    }

    /// Its memory, once it no longer changes: tables have grown, and what calls needed is free.
    pub(super) async fn settled_memory(&self, poll: Duration) -> Result<f64> {
        const POLLS_MAX: u32 = 120;
        let mut last = self.info_number("memory", "used_memory").await?;
        for _ in 0..POLLS_MAX {
            tokio::time::sleep(poll).await;
            let now = self.info_number("memory", "used_memory").await?;
            if (now - last).abs() < 0.001 * now + 65_536.0 {
                return Ok(now);
            }
            last = now;
        }
        bail!("the engine's memory does not come to rest")
    }

    /// The figures of the counter set by name.
    pub(super) async fn set_number(&self, field: &str) -> Result<f64> {
        let Value::Array(figures) = self.command::<Value>(&format!("CT.INFO {SET}")).await? else {
            bail!("CT.INFO replied no array")
        };
        number_of(&figures, field)
    }

    /// The figures of its tables: those in files have `pages`.
    pub(super) async fn tables(&self) -> Result<Vec<Vec<Value>>> {
        let mut tables: Vec<Vec<Value>> = Vec::new();
        loop {
            let next = tables.last().map_or(Ok(0.0), |last| number_of(last, "serial").map(|serial| serial + 1.0))?;
            let page: Vec<Vec<Value>> = self.command(&format!("CT.TABLES {SET} FROM {next}")).await?;
            if page.is_empty() {
                return Ok(tables);
            }
            tables.extend(page);
        }
    }
}

/// A number among names and values.
pub(super) fn number_of(figures: &[Value], field: &str) -> Result<f64> {
    let mut pairs = figures.chunks(2).filter_map(|pair| match pair {
        [Value::BulkString(name), Value::Int(number)] if name == field.as_bytes() => Some(*number as f64),
        _ => None,
    });
    pairs.next().with_context(|| format!("there is no figure {field}"))
}
