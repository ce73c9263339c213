//! A server that knows which node is a primary: a Sentinel, or a node of a Redis Cluster.

use crate::nodes::NodeAccess;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, ConnectionAddr, ErrorKind, RedisError, RedisResult, Value};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// The longest wait for an answer. A process waits for all of these nodes: the last one may be the only one that knows of a
/// failover.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// A node that says which one is the primary, and a connection to it.
pub(crate) struct TopologyNode {
    access: NodeAccess,
    connection: Mutex<Option<MultiplexedConnection>>,
}

/// The primary, as such nodes know it.
pub(crate) struct Claimed {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Its configuration epoch: it grows with each failover.
    pub(crate) epoch: u64,
}

impl TopologyNode {
    pub(crate) fn new(access: NodeAccess) -> TopologyNode {
        TopologyNode { access, connection: Mutex::default() }
    }

    /// Its answer to a command. An error begins with its address.
    pub(crate) async fn query(&self, command: &Cmd) -> Result<Value, String> {
        // The wait for the callers before this one counts, too: otherwise each would wait for a node that hangs after the
        // other.
        let answer = timeout(ANSWER_TIMEOUT, Box::pin(self.read(command)));
        let answer = answer.await.unwrap_or_else(|_| Err(unusable("it does not answer in time")));
        answer.map_err(|error| format!("{}: {error}", self.access.info.addr()))
    }

    async fn read(&self, command: &Cmd) -> RedisResult<Value> {
        let mut kept = self.connection.lock().await;
        // A read that fails, or is given up, leaves none.
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => {
                let config = AsyncConnectionConfig::new().set_response_timeout(None);
                self.access.client(None)?.get_multiplexed_async_connection_with_config(&config).await?
            }
        };
        let answer = connection.send_packed_command(command).await?;
        *kept = Some(connection);
        drop(kept);
        answer.extract_error()
    }

    /// The host of its address.
    pub(crate) fn host(&self) -> &str {
        match self.access.info.addr() {
            ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host,
            _ => "",
        }
    }

    /// Whether that is its address.
    pub(crate) fn is_at(&self, (host, port): &(String, u16)) -> bool {
        match self.access.info.addr() {
            ConnectionAddr::Tcp(own, at) | ConnectionAddr::TcpTls { host: own, port: at, .. } => {
                own == host && at == port
            }
            _ => false,
        }
    }
}

fn unusable(why: &str) -> RedisError {
    RedisError::from((ErrorKind::Io, "an answer about the primary", why.to_owned()))
}
