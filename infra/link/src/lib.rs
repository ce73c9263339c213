//! The connection to Redis: one multiplexed connection, made anew when it breaks, and what a failure means for the
//! write that met it.
//!
//! What lives here: [`Link`] and its [`Failure`], which Redis is good enough (`suited`), and whose data (`format`). What
//! may not: which scripts there are, which keys, and what a reply says.

mod format;
mod suited;

pub use format::Format;
pub use suited::{ConnectError, check_suited, client, without_password};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, Pipeline, RedisError, ServerError, ServerErrorKind, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tallystone_model::{Applied, Refusal};
use tokio::sync::Mutex;

/// How long one answer may take before the connection counts as lost. Generous: an fsync can stall for seconds.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(15);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Whose time the scripts go by.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// Redis TIME, inside the script (Q15).
    #[default]
    Redis,
    /// Unix ms, moved by tests only.
    Test(Arc<AtomicU64>),
}

impl Clock {
    /// What a script is told: 0 stands for Redis TIME.
    pub fn argument(&self) -> u64 {
        match self {
            Clock::Redis => 0,
            Clock::Test(ms) => ms.load(Ordering::SeqCst),
        }
    }
}

/// Replicas that must have a write before it is answered (Q16, WAIT).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaWait {
    /// How many; 0: none is waited for.
    pub replicas_min: u32,
    /// How long is waited for them.
    pub wait_ms: u64,
}

/// The connection to one Redis, for everybody who shares it.
pub struct Link {
    client: Client,
    replicas: ReplicaWait,
    /// The texts of the scripts that are called by their hashes.
    scripts: Vec<&'static str>,
    current: Mutex<Current>,
}

/// The present connection and its number, so that of many calls that see it fail only one drops it.
#[derive(Default)]
struct Current {
    connection: Option<MultiplexedConnection>,
    generation: u64,
}

impl Link {
    /// A link that has not connected yet. `scripts`: the texts of those that it will be asked to evaluate.
    pub fn new(client: Client, replicas: ReplicaWait, scripts: impl IntoIterator<Item = &'static str>) -> Self {
        Link { client, replicas, scripts: scripts.into_iter().collect(), current: Mutex::default() }
    }

    /// Where it connects to.
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

    /// One command. A command that no connection could take certainly did not happen.
    pub async fn call(&self, command: &Cmd) -> Result<Value, Failure> {
        let (mut connection, generation) = self.connection().await.map_err(Failure::before)?;
        match connection.send_packed_command(command).await.and_then(Value::extract_error) {
            Ok(value) => Ok(value),
            Err(error) => {
                let failure = Failure::after(error);
                if failure.lost {
                    self.drop_connection(generation).await;
                }
                Err(failure)
            }
        }
    }

    /// Many commands, on their way together. An answer may be a [`Value::ServerError`]: that of its command alone.
    pub async fn calls(&self, commands: &Pipeline, writes: bool) -> Result<Vec<Value>, Failure> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        let (mut connection, generation) = self.connection().await.map_err(Failure::before)?;
        let answers = match connection.send_packed_commands(commands, 0, commands.len()).await {
            Ok(answers) => answers,
            Err(error) => {
                let failure = Failure::after(error);
                if failure.lost {
                    self.drop_connection(generation).await;
                }
                return Err(failure);
            }
        };
        if writes && self.replicas.replicas_min > 0 {
            self.wait_for_replicas().await?;
        }
        Ok(answers)
    }

    /// A script by its hash; loads all of them where Redis has forgotten them (a restart, SCRIPT FLUSH).
    pub async fn eval(&self, command: &Cmd, writes: bool) -> Result<Value, Failure> {
        let answer = match self.call(command).await {
            Err(failure) if failure.error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
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

    async fn wait_for_replicas(&self) -> Result<(), Failure> {
        let wait = redis::cmd("WAIT").arg(self.replicas.replicas_min).arg(self.replicas.wait_ms).take();
        let reached = match self.call(&wait).await {
            Ok(Value::Int(reached)) => reached,
            Ok(_) => 0,
            Err(failure) => return Err(Failure { applied: Applied::Unknown, ..failure }),
        };
        if reached >= i64::from(self.replicas.replicas_min) {
            return Ok(());
        }
        let detail = format!("{reached} of {} replicas have the write", self.replicas.replicas_min);
        let error = RedisError::from((ErrorKind::Client, "too few replicas", detail));
        Err(Failure { error, applied: Applied::Unknown, lost: false })
    }

    /// Gives Redis all scripts.
    pub async fn load_scripts(&self) -> Result<(), Failure> {
        for script in &self.scripts {
            self.call(redis::cmd("SCRIPT").arg("LOAD").arg(*script)).await?;
        }
        Ok(())
    }
}

/// A failed command.
#[derive(Debug)]
pub struct Failure {
    /// What the client or the server said.
    pub error: RedisError,
    applied: Applied,
    lost: bool,
}

impl Failure {
    fn before(error: RedisError) -> Self {
        Failure { error, applied: Applied::No, lost: true }
    }

    fn after(error: RedisError) -> Self {
        // An answer of the server, even an error, came over a connection that works.
        let answered = matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension);
        Failure { error, applied: if answered { Applied::No } else { Applied::Unknown }, lost: !answered }
    }
}

/// Of one answer among many ([`Link::calls`]).
impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Failure {
        Failure::after(error.into())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        let why = failure.error.to_string();
        match failure.error.code() {
            Some("OOM") => Refusal::StoreFull,
            // Refused as a whole before it began: loading, a disk that takes no writes, a replica, an old script.
            Some(
                "LOADING" | "MISCONF" | "READONLY" | "NOSCRIPT" | "BUSY" | "NOREPLICAS" | "CLUSTERDOWN" | "MASTERDOWN",
            ) => Refusal::Unavailable { applied: Applied::No, why },
            // The store itself refused (wrong type, an error in a script): waiting will not mend it.
            Some(_) if !failure.lost => Refusal::Internal(why),
            _ => Refusal::Unavailable { applied: failure.applied, why },
        }
    }
}
