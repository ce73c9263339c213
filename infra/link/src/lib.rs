//! The connection to Redis: one multiplexed connection, opened again when it breaks, and errors that say whether the
//! failed write took effect.
//!
//! What lives here: [`Link`] and its [`LinkError`], the check of a Redis before use (`preflight`), the check of its
//! data's format (`format`), and the decoder of script replies (`script_reply`). What may not: which scripts and keys
//! there are, and what their replies mean.

mod config;
mod format;
mod preflight;
mod script_reply;

pub use config::RedisConfig;
pub use format::Format;
pub use preflight::{ConnectError, client, preflight, without_password};
pub use script_reply::ScriptReply;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tallystone_model::{Applied, Refusal};
use tokio::sync::Mutex;

/// After so long without an answer the connection counts as lost. Generous, because an fsync can stall for seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Which clock the scripts use.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// Redis TIME, inside the script (Q15).
    #[default]
    Redis,
    /// Unix time in ms, set by tests only.
    Test(Arc<AtomicU64>),
}

impl Clock {
    /// The clock argument of a script: Unix time in ms, or 0 for Redis TIME.
    pub fn argument(&self) -> u64 {
        match self {
            Clock::Redis => 0,
            Clock::Test(ms) => ms.load(Ordering::SeqCst),
        }
    }
}

/// How many replicas must hold a write before the caller gets its answer (Q16, WAIT).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaWait {
    /// The number of replicas; 0: do not wait.
    pub replicas_min: u32,
    /// The longest wait, in ms.
    pub wait_ms: u64,
}

/// The connection to one Redis. Many callers share it.
pub struct Link {
    client: Client,
    replicas: ReplicaWait,
    /// The texts of the scripts that [`Link::eval`] calls by their hashes.
    scripts: Vec<&'static str>,
    current: Mutex<Current>,
}

/// The current connection and its number. When many calls see one connection fail, the number makes only the first of
/// them drop it.
#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    generation: u64,
}

impl Link {
    /// A link that connects with its first call. `scripts`: the texts of all scripts that [`Link::eval`] will call.
    pub fn new(client: Client, replicas: ReplicaWait, scripts: impl IntoIterator<Item = &'static str>) -> Self {
        Link { client, replicas, scripts: scripts.into_iter().collect(), current: Mutex::default() }
    }

    /// The Redis client, for connections of another kind (Pub/Sub).
    pub fn client(&self) -> &Client {
        &self.client
    }

    async fn connection(&self) -> Result<(MultiplexedConnection, u64), RedisError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((connection.clone(), current.generation));
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT));
        let connection = self.client.get_multiplexed_async_connection_with_config(&config).await?;
        current.generation += 1;
        current.connection = Some(connection.clone());
        Ok((connection, current.generation))
    }

    async fn drop_connection(&self, generation: u64) {
        let mut current = self.current.lock().await;
        if current.generation == generation {
            current.connection = None;
        }
    }

    /// Sends one command. If no connection could be opened, the command certainly did not take effect.
    pub async fn call(&self, command: &Cmd) -> Result<Value, LinkError> {
        let (mut connection, generation) = self.connection().await.map_err(LinkError::before)?;
        match connection.send_packed_command(command).await.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) => {
                let error = LinkError::after(error);
                if error.lost {
                    self.drop_connection(generation).await;
                }
                Err(error)
            }
        }
    }

    /// Sends many commands in one pipeline. An answer may be a [`Value::ServerError`]: the error of that command alone.
    /// `writes`: wait for the replicas behind them.
    pub async fn calls(&self, commands: &Pipeline, writes: bool) -> Result<Vec<Value>, LinkError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (mut connection, generation) = self.connection().await.map_err(LinkError::before)?;
        let answers = match connection.send_packed_commands(commands, 0, commands.len()).await {
            Ok(answers) => answers,
            Err(error) => {
                let error = LinkError::after(error);
                if error.lost {
                    self.drop_connection(generation).await;
                }
                return Err(error);
            }
        };
        if writes && self.replicas.replicas_min > 0 {
            self.wait_for_replicas().await?;
        }
        Ok(answers)
    }

    /// Calls a script by its hash (EVALSHA). Loads all scripts if Redis does not have it (after a restart or SCRIPT
    /// FLUSH). `writes`: wait for the replicas behind it.
    pub async fn eval(&self, command: &Cmd, writes: bool) -> Result<Value, LinkError> {
        let answer = match self.call(command).await {
            Err(error) if error.source.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.load_scripts().await?;
                self.call(command).await?
            }
            other => other?,
        };
        if writes && self.replicas.replicas_min > 0 {
            self.wait_for_replicas().await?;
        }
        Ok(answer)
    }

    async fn wait_for_replicas(&self) -> Result<(), LinkError> {
        let wait = redis::cmd("WAIT").arg(self.replicas.replicas_min).arg(self.replicas.wait_ms).take();
        let reached = match self.call(&wait).await {
            Ok(Value::Int(reached)) => reached,
            Ok(_) => 0,
            Err(error) => return Err(LinkError { applied: Applied::Unknown, ..error }),
        };
        if reached >= i64::from(self.replicas.replicas_min) {
            return Ok(());
        }
        let detail = format!("{reached} of {} replicas have the write", self.replicas.replicas_min);
        let error = RedisError::from((ErrorKind::Client, "too few replicas", detail));
        Err(LinkError { source: error, applied: Applied::Unknown, lost: false })
    }

    /// Loads all scripts into Redis.
    pub async fn load_scripts(&self) -> Result<(), LinkError> {
        for script in &self.scripts {
            self.call(redis::cmd("SCRIPT").arg("LOAD").arg(*script)).await?;
        }
        Ok(())
    }
}

/// A failed command, and whether it took effect.
#[derive(Debug)]
pub struct LinkError {
    /// The error of the client or of the server.
    pub source: RedisError,
    applied: Applied,
    lost: bool,
}

impl LinkError {
    fn before(error: RedisError) -> Self {
        LinkError { source: error, applied: Applied::No, lost: true }
    }

    fn after(error: RedisError) -> Self {
        // An answer from the server, even an error, proves that the connection works.
        let answered = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        LinkError { source: error, applied: if answered { Applied::No } else { Applied::Unknown }, lost: !answered }
    }
}

/// The error of one command of a pipeline ([`Link::calls`]).
impl From<ServerError> for LinkError {
    fn from(error: ServerError) -> LinkError {
        LinkError::after(error.into())
    }
}

impl From<LinkError> for Refusal {
    fn from(error: LinkError) -> Refusal {
        let why = error.source.to_string();
        match error.source.code() {
            Some("OOM") => Refusal::StoreFull,
            // Refused before anything was executed: loading, a disk that takes no writes, a replica, an unknown script.
            Some(
                "LOADING" | "MISCONF" | "READONLY" | "NOSCRIPT" | "BUSY" | "NOREPLICAS" | "CLUSTERDOWN" | "MASTERDOWN",
            ) => Refusal::Unavailable { applied: Applied::No, why },
            // A defect (wrong type, an error in a script): a retry would fail again.
            Some(_) if !error.lost => Refusal::Internal(why),
            _ => Refusal::Unavailable { applied: error.applied, why },
        }
    }
}
