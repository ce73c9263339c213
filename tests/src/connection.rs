//! A connection of a test to its Redis, real or simulated.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, RedisFuture, RedisResult, Value};
use std::sync::Arc;
use std::time::Duration;
use tallystone_link::Node;
use tallystone_simulator::SimulatedRedis;

/// How long a test waits for a Redis that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection that waits for a busy Redis. By default the crate gives a reply half a second, which a busy machine exceeds.
pub async fn patient_connection(client: &Client) -> RedisResult<MultiplexedConnection> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await
}

/// A connection that commands are sent on.
#[derive(Clone)]
pub enum TestConnection {
    /// To a redis-server.
    Network(MultiplexedConnection),
    /// To a Redis in the process.
    Simulated(Arc<SimulatedRedis>),
}

impl ConnectionLike for TestConnection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            TestConnection::Network(connection) => connection.req_packed_command(command),
            TestConnection::Simulated(node) => node.call(command),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            TestConnection::Network(connection) => connection.req_packed_commands(commands, offset, count),
            TestConnection::Simulated(node) => Box::pin(async move {
                let mut replies = Vec::with_capacity(count);
                for command in commands.cmd_iter().skip(offset).take(count) {
                    replies.push(node.call(command).await?);
                }
                Ok(replies)
            }),
        }
    }

    fn get_db(&self) -> i64 {
        0
    }
}
