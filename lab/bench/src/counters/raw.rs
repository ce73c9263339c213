//! The raw Redis: what one would write first, in pipelines of the client itself, with no server in between. And there is
//! less to do: a token that was there already is counted all the same, there is no time, no log, no rollup.

use super::adds::Add;
use super::load::Adder;
use crate::rig::Rig;
use anyhow::Result;
use redis::aio::MultiplexedConnection;

/// All counters are fields of it.
const COUNTS: &str = "counts";
/// As long as a namespace looks for a token by default.
const TOKEN_KEPT_S: u64 = 518_400;

/// One caller, on a connection of its own.
pub(super) struct Raw {
    connection: MultiplexedConnection,
}

impl Raw {
    /// Callers whose adds are a token each, `SET token NX EX`, and `HINCRBY counts counter`; without a token, an
    /// `INCRBY counter` each.
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
