//! Raw Redis: a first version of counters, in pipelines of the client, with no server in between. It also does less: it
//! counts an add even if its token is known, and has no times, no log and no rollups.

use super::adds::Add;
use super::load::Adder;
use crate::rig::Rig;
use anyhow::Result;
use redis::aio::MultiplexedConnection;

/// The hash whose fields are the counters.
const COUNTS: &str = "counts";
/// The time for which a namespace remembers a token by default.
const TOKEN_KEPT_S: u64 = 518_400;

/// One caller with its own connection.
pub(super) struct Raw {
    connection: MultiplexedConnection,
}

impl Raw {
    /// Callers that send, for each add, `SET token NX EX` and `HINCRBY counts counter`; for an add without token
    /// `INCRBY counter`.
    pub(super) async fn callers(rig: &Rig, count: usize) -> Result<Vec<Raw>> {
        let mut callers = Vec::new();
        for _ in 0..count {
            callers.push(Raw { connection: rig.connect().await? });
        }
        Ok(callers)
    }
}

impl Adder for Raw {
    async fn add(&mut self, adds: Vec<Add>) -> Result<()> {
        let mut pipeline = redis::pipe();
        for Add { counter, delta, token } in &adds {
            if let Some(token) = token {
                pipeline.cmd("SET").arg(token).arg(1).arg("NX").arg("EX").arg(TOKEN_KEPT_S).ignore();
                pipeline.cmd("HINCRBY").arg(COUNTS).arg(counter).arg(delta).ignore();
            } else {
                pipeline.cmd("INCRBY").arg(counter).arg(delta).ignore();
            }
        }
        Ok(pipeline.query_async(&mut self.connection).await?)
    }
}
