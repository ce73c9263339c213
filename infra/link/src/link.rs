//! One multiplexed connection, opened again when it breaks.

use crate::LinkError;
use crate::connection::Connection;
use crate::error::is_of_a_replica;
use crate::state::StoreState;
use redis::{Client, Cmd, ErrorKind, InfoDict, Pipeline, RedisError, ServerErrorKind, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_model::Applied;
use tokio::sync::Mutex;

/// How many replicas must hold a write before the caller gets its answer (Q16, WAIT).
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplicaWait {
    /// The number of replicas; 0: do not wait.
    pub replicas_min: u32,
    /// The longest wait, in ms.
    pub wait_ms: u64,
}

impl ReplicaWait {
    /// The longest time for which a wait keeps back the replies behind it.
    fn longest(self) -> Duration {
        if self.replicas_min == 0 { Duration::ZERO } else { Duration::from_millis(self.wait_ms) }
    }
}

/// The connection to one Redis. Many callers share it.
pub struct Link {
    client: Client,
    replicas: ReplicaWait,
    /// The texts of the scripts that [`Link::eval`] calls by their hashes.
    scripts: Vec<&'static str>,
    current: Mutex<Current>,
    /// Nothing is sent while the store is not what it was.
    store: Option<Arc<StoreState>>,
}

/// The current connection and its number. When many calls see one connection fail, the number makes only the first of
/// them drop it.
#[derive(Default)]
struct Current {
    connection: Option<Connection>,
    generation: u64,
    /// When the last attempt to connect has failed, and why.
    failed: Option<(Instant, RedisError)>,
}

impl Link {
    /// A link that connects with its first call. `scripts`: the texts of all scripts that [`Link::eval`] will call.
    pub fn new(client: Client, replicas: ReplicaWait, scripts: impl IntoIterator<Item = &'static str>) -> Self {
        Link { client, replicas, scripts: scripts.into_iter().collect(), current: Mutex::default(), store: None }
    }

    /// The same link, which refuses every call while the store is not what it was.
    #[must_use]
    pub fn guarded_by(self, store: Arc<StoreState>) -> Self {
        Link { store: Some(store), ..self }
    }

    /// Called before anything is sent.
    fn check_store(&self, writes: bool) -> Result<(), LinkError> {
        let Some(store) = &self.store else { return Ok(()) };
        if writes {
            store.wrote();
        }
        store.check()
    }

    /// The Redis client, for connections of another kind (Pub/Sub).
    pub fn client(&self) -> &Client {
        &self.client
    }

    async fn connection(&self) -> Result<(Connection, u64), RedisError> {
        let arrived = Instant::now();
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((connection.clone(), current.generation));
        }
        // One attempt speaks for all that waited for it: otherwise each would wait for a Redis that hangs after the other.
        if let Some((at, error)) = &current.failed
            && *at > arrived
        {
            return Err(error.clone());
        }
        match Connection::open(&self.client, self.replicas.longest()).await {
            Ok(connection) => {
                current.generation += 1;
                (current.connection, current.failed) = (Some(connection.clone()), None);
                Ok((connection, current.generation))
            }
            Err(error) => {
                current.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    async fn drop_connection(&self, generation: u64) {
        let mut current = self.current.lock().await;
        if current.generation == generation {
            current.connection = None;
        }
    }

    /// Sends one command. If no connection could be opened, the command certainly did not take effect.
    pub async fn call(&self, command: &Cmd) -> Result<Value, LinkError> {
        self.check_store(false)?;
        let (mut connection, generation) = self.connection().await.map_err(LinkError::before)?;
        match connection.call(command).await.and_then(Value::extract_error) {
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

    /// Reads one section of `INFO`.
    pub async fn info(&self, section: &str) -> Result<InfoDict, LinkError> {
        let info = self.call(redis::cmd("INFO").arg(section)).await?;
        redis::from_redis_value(info).map_err(|error| LinkError::after(error.into()))
    }

    /// Redis's clock, in Unix ms.
    pub async fn time_ms(&self) -> Result<u64, LinkError> {
        let time = self.call(&redis::cmd("TIME")).await?;
        let (seconds, micros): (u64, u64) =
            redis::from_redis_value(time).map_err(|error| LinkError::after(error.into()))?;
        Ok(seconds * 1_000 + micros / 1_000)
    }

    /// Sends many commands in one pipeline. An answer may be a [`Value::ServerError`]: the error of that command alone.
    /// `writes`: wait for the replicas behind them.
    pub async fn calls(&self, commands: &Pipeline, writes: bool) -> Result<Vec<Value>, LinkError> {
        if commands.is_empty() {
            return Ok(Vec::new());
        }
        self.check_store(writes)?;
        let (mut connection, generation) = self.connection().await.map_err(LinkError::before)?;
        let answers = match connection.calls(commands).await {
            Ok(answers) => answers,
            Err(error) => {
                let error = LinkError::after(error);
                if error.lost {
                    self.drop_connection(generation).await;
                }
                return Err(error);
            }
        };
        let is_refused =
            |answer: &Value| matches!(answer, Value::ServerError(error) if is_of_a_replica(Some(error.code())));
        if answers.iter().any(is_refused) {
            self.drop_connection(generation).await;
        }
        if writes && self.replicas.replicas_min > 0 {
            self.wait_for_replicas().await?;
        }
        Ok(answers)
    }

    /// Calls a script by its hash (EVALSHA). Loads all scripts if Redis does not have it (after a restart or SCRIPT
    /// FLUSH). `writes`: wait for the replicas behind it.
    pub async fn eval(&self, command: &Cmd, writes: bool) -> Result<Value, LinkError> {
        self.check_store(writes)?;
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
        Err(LinkError { source: error, applied: Applied::Unknown, lost: false, is_data_loss: false })
    }

    /// Loads all scripts into Redis.
    pub async fn load_scripts(&self) -> Result<(), LinkError> {
        for script in &self.scripts {
            self.call(redis::cmd("SCRIPT").arg("LOAD").arg(*script)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn q16_callers_of_a_redis_that_hangs_fail_together() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("a bound port"));
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        tokio::spawn(async move {
            let mut silent = Vec::new();
            while let Ok((connection, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                silent.push(connection);
            }
        });
        let link = Arc::new(Link::new(Client::open(url).expect("a good address"), ReplicaWait::default(), []));
        let call = |_| {
            let link = link.clone();
            tokio::spawn(async move { link.call(&redis::cmd("PING")).await })
        };
        for answer in (0..20).map(call).collect::<Vec<_>>() {
            assert!(answer.await.expect("no panic").is_err_and(|error| error.applied == Applied::No));
        }
        assert_eq!(attempts.load(Ordering::Relaxed), 1, "they wait for one attempt");
    }
}
