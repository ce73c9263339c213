//! One shared connection, opened again when it breaks.

use crate::connection::Connection;
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
    /// The connection, or the one that `connect` makes.
    pub(crate) async fn open<F>(&self, connect: impl FnOnce() -> F) -> RedisResult<Open<'_>>
    where
        F: Future<Output = RedisResult<Connection>>,
    {
        let arrived = Instant::now();
        let mut current = self.0.lock().await;
        if let Some(connection) = current.connection.as_ref().filter(|connection| connection.is_current()) {
            return Ok(Open { connection: connection.clone(), generation: current.generation, slot: self });
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
    /// The next call opens another connection.
    pub(crate) async fn abandon(&self) {
        let mut current = self.slot.0.lock().await;
        if current.generation == self.generation {
            current.connection = None;
        }
    }
}
