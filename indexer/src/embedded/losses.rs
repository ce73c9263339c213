//! Losses: one row per shard that has one.

use super::connections::WriteTransaction;
use super::record::queue_of_write;
use super::rows::matching_queues;
use crate::Queues;
use rusqlite::types::Type;
use rusqlite::{Connection, params};
use tallystone_model::{Loss, QueueName, Shard};

pub(super) fn record(write: &mut WriteTransaction, losses: &[Loss]) -> rusqlite::Result<()> {
    const RECORD: &str = "INSERT INTO losses (queue, shard, lost_to_ms) VALUES (?1, ?2, ?3) \
         ON CONFLICT (queue, shard) DO UPDATE SET lost_to_ms = max(lost_to_ms, excluded.lost_to_ms)";
    let WriteTransaction { transaction, queues } = write;
    let mut record = transaction.prepare_cached(RECORD)?;
    for loss in losses {
        let queue = queue_of_write(transaction, queues, loss.shard.queue.as_str())?;
        record.execute(params![queue, loss.shard.number, signed(loss.lost_to_ms)])?;
    }
    Ok(())
}

/// Removes the losses, unless there is a later one.
pub(super) fn settle(write: &mut WriteTransaction, losses: &[Loss]) -> rusqlite::Result<()> {
    const SETTLE: &str = "DELETE FROM losses WHERE queue = (SELECT number FROM queues WHERE name = ?1) AND shard = ?2 \
         AND lost_to_ms <= ?3";
    let mut settle = write.transaction.prepare_cached(SETTLE)?;
    for loss in losses {
        settle.execute(params![loss.shard.queue.as_str(), loss.shard.number, signed(loss.lost_to_ms)])?;
    }
    Ok(())
}

pub(super) fn losses(connection: &Connection, queues: &Queues) -> rusqlite::Result<Vec<Loss>> {
    let mut select = connection.prepare_cached("SELECT shard, lost_to_ms FROM losses WHERE queue = ?")?;
    let mut losses = Vec::new();
    for (number, name) in matching_queues(connection, queues)? {
        let queue = QueueName::parse("queue", &name)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error)))?;
        for row in select.query_map([number], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))? {
            let (shard, lost_to_ms) = row?;
            losses.push(Loss { shard: Shard { queue: queue.clone(), number: shard }, lost_to_ms: lost_to_ms as u64 });
        }
    }
    Ok(losses)
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
