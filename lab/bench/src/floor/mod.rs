//! The raw-Redis floor: the same life cycle in plain Lua loops, as a first version of a queue would have it.
//!
//! A message is a hash, the queue a sorted set by priority, the running ones a sorted set by lease expiry, and
//! every transition one entry of a capped stream. A batch is one script call that loops over its messages. There
//! is no server in between: the client calls Redis. The floor also does less: no check of a repeated id, no fencing token,
//! no attempts, no retention (a completed message is deleted), no exclusivity, no filters.

use crate::load::{Draft, LoadClient};
use crate::rig::Rig;
use anyhow::{Result, ensure};
use redis::Script;
use redis::aio::MultiplexedConnection;

const PREFIX: &str = "floor:message:";
const READY: &str = "floor:ready";
const RUNNING: &str = "floor:running";
const EVENTS: &str = "floor:events";
const LEASE_MS: u64 = 30_000;

/// One client of the floor, with its own connection.
pub(crate) struct Floor {
    connection: MultiplexedConnection,
    worker: String,
    enqueue: Script,
    dequeue: Script,
    complete: Script,
}

impl Floor {
    /// This many clients.
    pub(crate) async fn clients(rig: &Rig, count: usize) -> Result<Vec<Floor>> {
        let mut clients = Vec::new();
        for n in 0..count {
            clients.push(Floor {
                connection: rig.connect().await?,
                worker: format!("worker-{n}"),
                enqueue: Script::new(include_str!("enqueue.lua")),
                dequeue: Script::new(include_str!("dequeue.lua")),
                complete: Script::new(include_str!("complete.lua")),
            });
        }
        Ok(clients)
    }
}

impl LoadClient for Floor {
    type Held = String;

    async fn enqueue(&mut self, drafts: Vec<Draft>) -> Result<()> {
        let mut call = self.enqueue.key(READY);
        call.key(EVENTS).arg(PREFIX);
        for draft in &drafts {
            call.arg(&draft.id).arg(draft.priority).arg(draft.payload.as_ref());
        }
        Ok(call.invoke_async(&mut self.connection).await?)
    }

    async fn dequeue(&mut self, limit: usize) -> Result<Vec<String>> {
        let mut call = self.dequeue.key(READY);
        call.key(RUNNING).key(EVENTS).arg(PREFIX).arg(&self.worker).arg(LEASE_MS).arg(limit);
        let leased: Vec<(String, Vec<u8>)> = call.invoke_async(&mut self.connection).await?;
        Ok(leased.into_iter().map(|(id, _payload)| id).collect())
    }

    async fn complete(&mut self, held: Vec<String>) -> Result<()> {
        let mut call = self.complete.key(RUNNING);
        call.key(EVENTS).arg(PREFIX).arg(&self.worker);
        for id in &held {
            call.arg(id);
        }
        let completed: usize = call.invoke_async(&mut self.connection).await?;
        ensure!(completed == held.len(), "the floor completed {completed} of {}", held.len());
        Ok(())
    }
}
