//! Which Redis is the primary, by its Sentinels (X2; decision 0077).

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ErrorKind, RedisError, RedisResult, from_redis_value};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The longest wait for a Sentinel. A process waits for all: the last one may be the only one that knows of a failover.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// The Sentinels of one primary.
pub(crate) struct Sentinels {
    sentinels: Vec<Arc<Sentinel>>,
    /// Their name of the primary.
    name: Arc<str>,
}

/// One Sentinel, and a connection to it.
struct Sentinel {
    client: Client,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// What one Sentinel knows.
struct Answer {
    /// Grows with each failover.
    epoch: u64,
    host: String,
    port: u16,
}

impl Sentinels {
    pub(crate) fn new(clients: Vec<Client>, name: &str) -> Sentinels {
        let sentinel = |client| Arc::new(Sentinel { client, connection: Mutex::default() });
        Sentinels { sentinels: clients.into_iter().map(sentinel).collect(), name: name.into() }
    }

    /// The host and port of the primary, as the Sentinel of the last failover knows it.
    ///
    /// # Errors
    /// No Sentinel answers, or none knows the primary: what each of them said.
    pub(crate) async fn primary(&self) -> RedisResult<(String, u16)> {
        let mut reads = JoinSet::new();
        for sentinel in &self.sentinels {
            let (sentinel, name) = (sentinel.clone(), self.name.clone());
            reads.spawn(async move { sentinel.primary(&name).await });
        }
        let mut newest: Option<Answer> = None;
        let mut failures = Vec::new();
        while let Some(answer) = reads.join_next().await {
            match answer {
                Ok(Ok(answer)) if newest.as_ref().is_none_or(|newest| newest.epoch < answer.epoch) => {
                    newest = Some(answer);
                }
                Ok(Ok(_)) => {}
                Ok(Err(why)) => failures.push(why),
                Err(panic) => failures.push(panic.to_string()),
            }
        }
        match newest {
            Some(Answer { host, port, .. }) => Ok((host, port)),
            None => {
                let what = "no Sentinel names the primary";
                Err(RedisError::from((ErrorKind::Io, what, failures.join("; "))))
            }
        }
    }
}

impl Sentinel {
    /// An error begins with its address.
    async fn primary(&self, name: &str) -> Result<Answer, String> {
        // The wait for the callers before this one counts, too: otherwise each would wait for a Sentinel that hangs after the
        // other.
        let answer = timeout(ANSWER_TIMEOUT, Box::pin(self.read(name)));
        let answer = answer.await.unwrap_or_else(|_| Err(unusable("it does not answer in time")));
        answer.map_err(|error| format!("{}: {error}", self.client.get_connection_info().addr()))
    }

    async fn read(&self, name: &str) -> RedisResult<Answer> {
        let mut kept = self.connection.lock().await;
        // A read that fails, or is given up, leaves none.
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new().set_response_timeout(None);
                self.client.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        let answer = connection.send_packed_command(redis::cmd("SENTINEL").arg("MASTER").arg(name)).await?;
        *kept = Some(connection);
        drop(kept);
        let fields: HashMap<String, String> = from_redis_value(answer.extract_error()?)?;
        let number = |field: &str| fields.get(field).and_then(|value| value.parse::<u64>().ok());
        match (number("config-epoch"), fields.get("ip"), number("port").and_then(|port| u16::try_from(port).ok())) {
            (Some(epoch), Some(host), Some(port)) => Ok(Answer { epoch, host: host.clone(), port }),
            _ => Err(unusable("its answer has no address")),
        }
    }
}

fn unusable(why: &str) -> RedisError {
    RedisError::from((ErrorKind::Io, "a Sentinel", why.to_owned()))
}
