//! One shared connection, opened again when it breaks.

use crate::LinkError;
use crate::connection::Connection;
use crate::error::is_of_a_replica;
use redis::{RedisError, RedisResult};
use std::time::Instant;
use tokio::sync::Mutex;

/// The place of one connection. Many callers share it.
#[derive(Default)]
pub(crate) struct Slot(Mutex<Current>);

/// The current connection and its number. When many calls see one connection fail, the number makes only the first of
/// them drop it.
#[derive(Default)]
struct Current {
    connection: Option<Connection>,
    generation: u64,
    /// When the last attempt to connect has failed, and why.
    failed: Option<(Instant, RedisError)>,
}

/// A connection, as one call uses it.
pub(crate) struct Open<'a> {
    pub(crate) connection: Connection,
    generation: u64,
    slot: &'a Slot,
}

impl Slot {
    /// The connection, or the one that `connect` makes. `writes`: for a call that writes. A node that was a replica meanwhile, and is
    /// the primary again, would take it for its former timeline.
    pub(crate) async fn open<F>(&self, writes: bool, connect: impl FnOnce() -> F) -> RedisResult<Open<'_>>
    where
        F: Future<Output = RedisResult<Connection>>,
    {
        let arrived = Instant::now();
        let mut current = self.0.lock().await;
        if let Some(mut connection) = current.connection.clone().filter(Connection::is_current) {
            // Within the lock: all that wait here need one answer.
            if !(writes && connection.may_have_left()) || connection.is_on_its_timeline().await {
                return Ok(Open { connection, generation: current.generation, slot: self });
            }
            current.connection = None;
        }
        // One attempt speaks for all that waited for it: otherwise each would wait for a Redis that hangs after the other.
        if let Some((at, error)) = &current.failed
            && *at > arrived
        {
            return Err(error.clone());
        }
        match connect().await {
            Ok(connection) => {
                current.generation += 1;
                (current.connection, current.failed) = (Some(connection.clone()), None);
                Ok(Open { connection, generation: current.generation, slot: self })
            }
            Err(error) => {
                current.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

impl Open<'_> {
    /// A call has failed: the next one opens another connection, if this one is of no more use. To a replica, no connection is of use.
    pub(crate) async fn failed(&self, error: &LinkError) {
        if is_of_a_replica(error.source.code()) {
            self.connection.ends_generation();
        }
        if error.lost {
            self.abandon().await;
        }
    }

    /// The next call opens another connection.
    pub(crate) async fn abandon(&self) {
        let mut current = self.slot.0.lock().await;
        if current.generation == self.generation {
            current.connection = None;
        }
    }
}
