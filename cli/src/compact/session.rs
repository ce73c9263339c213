//! The connection of a verb to the Redis that has the counter sets.

use super::refusal::refused;
use crate::config::{Overrides, load};
use crate::error::CliError;
use crate::output::Output;
use crate::serving::cannot_connect;
use clap::Args;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, RedisError, Value};
use std::path::PathBuf;
use std::time::Duration;
use tallystone_link::{CompactConfig, RedisConfig};
use tallystone_model::without_password;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer than the module lets a client wait for the disk.
const REPLY_TIMEOUT: Duration = Duration::from_secs(60);

/// Which Redis.
///
/// The flag wins over `[compact]`, which wins over `[redis]`.
#[derive(Args, Debug)]
pub(crate) struct Target {
    /// Address of the Redis that has the counter sets [env: TALLYSTONE_REDIS_URL] [default: redis://127.0.0.1:6379]
    #[arg(long, global = true, value_name = "URL")]
    redis_url: Option<String>,
    /// Configuration file (TOML); its section `compact`, else `redis`, has the address, the user and the files of passwords and TLS
    #[arg(long, global = true, value_name = "FILE", env = "TALLYSTONE_CONFIG", hide_env_values = true)]
    config: Option<PathBuf>,
}

/// The Redis that rollups publish to, if it is configured, else the one of queues and counters.
fn counter_sets(redis: RedisConfig, compact: CompactConfig) -> RedisConfig {
    let CompactConfig { url, user, password_file, sentinel_user, sentinel_password_file, .. } = compact;
    let CompactConfig { ca_file, cert_file, key_file, .. } = compact;
    match url {
        Some(url) => RedisConfig {
            url,
            user,
            password_file,
            sentinel_user,
            sentinel_password_file,
            ca_file,
            cert_file,
            key_file,
            ..redis
        },
        None => redis,
    }
}

/// What a verb needs: a connection, and the output.
pub(super) struct CompactSession {
    pub(super) output: Output,
    config: RedisConfig,
    connection: MultiplexedConnection,
    /// The address without its password.
    pub(super) shown: String,
}

impl CompactSession {
    pub(super) async fn connect(target: Target, output: Output) -> Result<CompactSession, CliError> {
        let has_flag = target.redis_url.is_some();
        let config = load(target.config.as_deref(), Overrides::default().set("redis.url", target.redis_url))?;
        config.redis.check().and_then(|()| config.compact.check()).map_err(CliError::usage)?;
        let config = if has_flag { config.redis } else { counter_sets(config.redis, config.compact) };
        CompactSession::open(config, output).await
    }

    /// A session with another Redis, with the user and the files of this one.
    pub(super) async fn with(&self, url: &str) -> Result<CompactSession, CliError> {
        let config = RedisConfig { url: url.to_owned(), ..self.config.clone() };
        CompactSession::open(config, self.output).await
    }

    async fn open(config: RedisConfig, output: Output) -> Result<CompactSession, CliError> {
        let primary = config.access().primary(&config.url).map_err(cannot_connect)?;
        let shown = without_password(&config.url);
        let timeouts = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(REPLY_TIMEOUT));
        let connect = async {
            let client = primary.client().await?;
            client.get_multiplexed_async_connection_with_config(&timeouts).await
        };
        let connection = connect.await.map_err(|error| refused(&error, &shown, None))?;
        Ok(CompactSession { output, config, connection, shown })
    }

    /// Sends a command about a key.
    pub(super) async fn call<T: FromRedisValue>(&mut self, key: &str, command: &Cmd) -> Result<T, CliError> {
        self.attempt(command).await.map_err(|error| self.explained(key, &error))
    }

    /// The same, with the error as it is.
    pub(super) async fn attempt<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        command.query_async(&mut self.connection).await
    }

    /// Sends many commands about a key, and discards their replies.
    pub(super) async fn call_all(&mut self, key: &str, commands: &Pipeline) -> Result<(), CliError> {
        let replies: Result<Vec<Value>, RedisError> = commands.query_async(&mut self.connection).await;
        replies.map(drop).map_err(|error| self.explained(key, &error))
    }

    /// An error of a command about a key, for the user.
    pub(super) fn explained(&self, key: &str, error: &RedisError) -> CliError {
        refused(error, &self.shown, Some(key))
    }
}
