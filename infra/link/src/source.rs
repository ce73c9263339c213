//! Where a link leads: over a network, or to a node within the process.

use crate::primary::Primary;
use redis::{Client, Cmd, RedisResult, Value};
use std::pin::Pin;
use std::sync::Arc;

/// The reply of a [`Node`], which may take time.
pub type NodeReply<'a> = Pin<Box<dyn Future<Output = RedisResult<Value>> + Send + 'a>>;

/// A Redis within the process: a simulator's. It answers as a connection does, errors of Redis as
/// [`Value::ServerError`]; an `Err` means that the connection is lost.
pub trait Node: Send + Sync {
    /// Opens a connection. It answers `INFO replication`, and is lost when the node ends.
    fn open(self: Arc<Self>) -> Arc<dyn Node>;

    /// Sends one command and waits for its reply.
    fn call<'a>(&'a self, command: &'a Cmd) -> NodeReply<'a>;
}

/// Where a [`Link`](crate::Link) leads.
#[derive(Clone)]
pub enum Source {
    /// To a Redis over a network.
    Network(Primary),
    /// To one within the process.
    Node(Arc<dyn Node>),
}

impl From<Client> for Source {
    fn from(client: Client) -> Source {
        Source::Network(client.into())
    }
}

impl From<Primary> for Source {
    fn from(primary: Primary) -> Source {
        Source::Network(primary)
    }
}

impl From<Arc<dyn Node>> for Source {
    fn from(node: Arc<dyn Node>) -> Source {
        Source::Node(node)
    }
}
