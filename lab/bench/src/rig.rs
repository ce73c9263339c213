//! A private Redis for one figure, and what it reports about itself.

use anyhow::{Context, Result};
use redis::aio::MultiplexedConnection;
use std::collections::BTreeMap;
use tallystone_local::{PrivateRedis, PrivateRedisOptions};
use tempfile::TempDir;

/// Calls of one Redis command, and the CPU it took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CommandCost {
    pub(crate) calls: u64,
    pub(crate) us: u64,
}

/// A fresh redis-server: append-only file, fsync before every reply, no memory bound, its data in a temporary folder.
pub(crate) struct Rig {
    // Declared first, so that it ends before the folder is removed.
    redis: PrivateRedis,
    connection: MultiplexedConnection,
    _dir: TempDir,
}

impl Rig {
    /// Arguments of a redis-server. A rewrite of the file during a sample would slow that side alone.
    pub(crate) const WITHOUT_REWRITES: [&'static str; 2] = ["--auto-aof-rewrite-percentage", "0"];

    pub(crate) async fn start() -> Result<Rig> {
        let dir = tempfile::tempdir()?;
        let mut options = PrivateRedisOptions::new(dir.path());
        options.extra_args = Rig::WITHOUT_REWRITES.map(str::to_owned).to_vec();
        let redis = PrivateRedis::start(options).await.context("cannot start a Redis for the bench")?;
        let connection = connect(&redis).await?;
        Ok(Rig { redis, connection, _dir: dir })
    }

    /// Measures with one more Redis, such as that of the queue, and stops it.
    pub(crate) async fn with_another<T>(measure: impl AsyncFnOnce(&Rig) -> Result<T>) -> Result<T> {
        let another = Rig::start().await?;
        let measured = measure(&another).await;
        another.stop().await;
        measured
    }

    pub(crate) fn url(&self) -> String {
        self.redis.url()
    }

    pub(crate) fn port(&self) -> u16 {
        self.redis.port()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.redis.pid()
    }

    /// The version of the program.
    pub(crate) async fn version(&self) -> Result<String> {
        Ok(self.info("server").await?.remove("redis_version").unwrap_or_default())
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<MultiplexedConnection> {
        connect(&self.redis).await
    }

    /// Deletes every key. No server of ours may be running on this Redis.
    pub(crate) async fn flush(&self) -> Result<()> {
        Ok(redis::cmd("FLUSHALL").arg("SYNC").query_async(&mut self.connection.clone()).await?)
    }

    /// One section of INFO, field by field.
    pub(crate) async fn info(&self, section: &str) -> Result<BTreeMap<String, String>> {
        let text: String = redis::cmd("INFO").arg(section).query_async(&mut self.connection.clone()).await?;
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Ok(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// A field of INFO that is a number.
    pub(crate) async fn info_number(&self, section: &str, field: &str) -> Result<f64> {
        let info = self.info(section).await?;
        let text = info.get(field).with_context(|| format!("INFO {section} has no {field}"))?;
        text.parse().with_context(|| format!("INFO {section}: {field} is {text}"))
    }

    /// The bytes of its append-only file.
    pub(crate) async fn written(&self) -> Result<f64> {
        self.info_number("persistence", "aof_current_size").await
    }

    /// The cost of every command so far, including those that scripts call.
    pub(crate) async fn commands(&self) -> Result<BTreeMap<String, CommandCost>> {
        let stats = self.info("commandstats").await?;
        Ok(stats
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix("cmdstat_")?.to_owned(), cost(value)?)))
            .collect())
    }

    /// Bytes and entries of all streams, that is, of everything that keeps events.
    pub(crate) async fn streams(&self) -> Result<(u64, u64)> {
        let mut connection = self.connection.clone();
        let (mut bytes, mut entries) = (0, 0);
        for key in self.keys("stream").await? {
            let mut usage = redis::cmd("MEMORY");
            bytes += usage.arg("USAGE").arg(&key).arg("SAMPLES").arg(0).query_async::<u64>(&mut connection).await?;
            entries += redis::cmd("XLEN").arg(&key).query_async::<u64>(&mut connection).await?;
        }
        Ok((bytes, entries))
    }

    /// Lets Redis finish growing the tables of its hashes and sorted sets. It moves one bucket with every command on
    /// them, so after a large fill each command works in two tables for millions of commands: a moment of growth, not
    /// a depth. Reads of what is not there move them on.
    pub(crate) async fn finish_growing(&self) -> Result<()> {
        const READS: usize = 1_000;
        let absent: Vec<String> = (0..READS).map(|n| format!("absent-{n}")).collect();
        let mut connection = self.connection.clone();
        for (kind, count, read) in [("hash", "HLEN", "HMGET"), ("zset", "ZCARD", "ZMSCORE")] {
            for key in self.keys(kind).await? {
                let members: usize = redis::cmd(count).arg(&key).query_async(&mut connection).await?;
                for _ in 0..members.div_ceil(READS) {
                    redis::cmd(read).arg(&key).arg(&absent).query_async::<redis::Value>(&mut connection).await?;
                }
            }
        }
        Ok(())
    }

    /// All keys of one type.
    async fn keys(&self, kind: &str) -> Result<Vec<Vec<u8>>> {
        let (mut connection, mut all, mut cursor) = (self.connection.clone(), Vec::new(), 0_u64);
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("COUNT").arg(1_000).arg("TYPE").arg(kind);
            let (next, keys): (u64, Vec<Vec<u8>>) = scan.query_async(&mut connection).await?;
            all.extend(keys);
            cursor = next;
            if cursor == 0 {
                return Ok(all);
            }
        }
    }

    pub(crate) async fn stop(self) {
        self.redis.stop().await;
    }
}

/// A connection without response timeout: emptying a full Redis takes seconds.
async fn connect(redis: &PrivateRedis) -> Result<MultiplexedConnection> {
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(redis::Client::open(redis.url())?.get_multiplexed_async_connection_with_config(&config).await?)
}

/// `calls=3,usec=17,…`
fn cost(line: &str) -> Option<CommandCost> {
    let field = |name: &str| {
        let (_, value) = line.split(',').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name)?;
        value.parse().ok()
    };
    Some(CommandCost { calls: field("calls")?, us: field("usec")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_commandstats() {
        let line = "calls=3,usec=17,usec_per_call=5.67,rejected_calls=0,failed_calls=0";
        assert_eq!(cost(line), Some(CommandCost { calls: 3, us: 17 }));
        assert_eq!(cost("rubbish"), None);
    }
}
