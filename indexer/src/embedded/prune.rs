//! Removes rows by age, then by size, in steps that hold the writer for a few tens of milliseconds.
//!
//! - By age: transitions by their time, messages that are gone by the time of their last transition. A message that
//!   is not gone stays, however old: its queue still has it.
//! - By size: the oldest rows of all queues, compared by minute, transitions before messages that are gone. Messages
//!   that are not gone are removed only if nothing else is left.

use super::connections::WriteTransaction;
use super::options::EmbeddedOptions;
use super::queues_kept::QueuesKept;
use super::rows::metadata;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};
use std::time::{Duration, Instant};

/// How long one step may take before it commits.
const STEP: Duration = Duration::from_millis(10);
/// Rows removed between two checks of time and size.
const ROWS: usize = 128;
/// Pruning by size frees this fraction of the limit, so that it is not needed at once again.
const FREED_FRACTION: u64 = 16;
/// Rows of different queues are equally old within one minute.
const MINUTE_MS: i64 = 60_000;

/// The result of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pruned {
    /// There is more to do.
    pub(super) more: bool,
    /// The file becomes smaller with the next checkpoint.
    pub(super) shrunk: bool,
}

/// Runs one step.
pub(super) fn step(write: &mut WriteTransaction, options: &EmbeddedOptions, now_ms: u64) -> rusqlite::Result<Pruned> {
    let connection = &*write.transaction;
    let end = Instant::now() + STEP;
    for queues in QueuesKept::of(options) {
        let before_ms = i64::try_from(now_ms.saturating_sub(queues.retention_ms)).unwrap_or(i64::MAX);
        for kind in [Kind::Historic, Kind::Gone] {
            while let Some((oldest_ms, queue)) = kind.oldest(connection, &queues)? {
                if oldest_ms >= before_ms {
                    break;
                }
                if Instant::now() >= end {
                    return Ok(Pruned { more: true, shrunk: false });
                }
                kind.drop(connection, queue, before_ms, ROWS)?;
            }
        }
    }
    let kept_bytes = options.max_bytes - options.max_bytes / FREED_FRACTION;
    while used_bytes(connection)? > kept_bytes {
        if Instant::now() >= end {
            return Ok(Pruned { more: true, shrunk: false });
        }
        if drop_oldest(connection)? == 0 {
            break;
        }
    }
    forget_queues(write)?;
    shrink(&write.transaction, options.max_bytes, end)
}

/// Removes rows if a write has exceeded the size limit: at most about twice as many as were written.
pub(super) fn make_room(connection: &Connection, options: &EmbeddedOptions, written: usize) -> rusqlite::Result<()> {
    let mut dropped = 0;
    while dropped < 2 * written && used_bytes(connection)? > options.max_bytes {
        match drop_oldest(connection)? {
            0 => break,
            rows => dropped += rows,
        }
    }
    Ok(())
}

/// Removes some of the oldest rows. Returns how many.
fn drop_oldest(connection: &Connection) -> rusqlite::Result<usize> {
    let of = |kind: Kind| {
        Ok::<_, rusqlite::Error>(
            kind.oldest(connection, &QueuesKept::default())?.map(|(at_ms, queue)| (at_ms, kind, queue)),
        )
    };
    let ended = [of(Kind::Historic)?, of(Kind::Gone)?].into_iter().flatten().min_by_key(|(at_ms, ..)| *at_ms);
    let oldest = match ended {
        None => of(Kind::Live)?,
        ended => ended,
    };
    match oldest {
        Some((at_ms, kind, queue)) => {
            let minute_end_ms = at_ms.saturating_sub(at_ms.rem_euclid(MINUTE_MS)).saturating_add(MINUTE_MS);
            kind.drop(connection, queue, minute_end_ms, ROWS)
        }
        None => Ok(0),
    }
}

/// The kinds of rows that can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Transitions.
    Historic,
    /// Messages that are gone.
    Gone,
    /// Messages that are not gone.
    Live,
}

impl Kind {
    /// The time (Unix ms) and the queue of the oldest row of this kind.
    fn oldest(self, connection: &Connection, queues: &QueuesKept) -> rusqlite::Result<Option<(i64, i64)>> {
        let of_queue = match self {
            Kind::Historic => "SELECT min(at_ms) FROM historic INDEXED BY historic_by_time WHERE queue = number",
            Kind::Gone => {
                "SELECT min(changed_at_ms) FROM current INDEXED BY current_by_change WHERE queue = number AND gone = 1"
            }
            Kind::Live => {
                "SELECT min(changed_at_ms) FROM current INDEXED BY current_by_change WHERE queue = number AND gone = 0"
            }
        };
        let among = queues.condition();
        let sql = format!(
            "SELECT at_ms, number FROM (SELECT ({of_queue}) AS at_ms, number FROM queues WHERE {among}) \
             WHERE at_ms IS NOT NULL ORDER BY at_ms, number LIMIT 1"
        );
        let prefixes = params_from_iter(queues.prefixes());
        connection.prepare_cached(&sql)?.query_row(prefixes, |row| Ok((row.get(0)?, row.get(1)?))).optional()
    }

    /// Drops the oldest of a queue, those before a moment only; answers how many.
    fn drop(self, connection: &Connection, queue: i64, before_ms: i64, limit: usize) -> rusqlite::Result<usize> {
        match self {
            Kind::Historic => drop_transitions(connection, queue, before_ms, limit),
            Kind::Gone => drop_messages(connection, queue, true, before_ms, limit),
            Kind::Live => drop_messages(connection, queue, false, before_ms, limit),
        }
    }
}

fn drop_transitions(connection: &Connection, queue: i64, before_ms: i64, limit: usize) -> rusqlite::Result<usize> {
    const DROP: &str = "DELETE FROM historic WHERE (queue, sequence, shard, version) IN \
         (SELECT queue, sequence, shard, version FROM historic INDEXED BY historic_by_time \
          WHERE queue = ?1 AND at_ms < ?2 ORDER BY at_ms LIMIT ?3)";
    connection.prepare_cached(DROP)?.execute(params![queue, before_ms, limit as i64])
}

fn drop_messages(
    connection: &Connection,
    queue: i64,
    gone: bool,
    before_ms: i64,
    limit: usize,
) -> rusqlite::Result<usize> {
    const OLDEST: &str = "SELECT enqueued_at_ms, sequence, shard, metadata FROM current INDEXED BY current_by_change \
         WHERE queue = ?1 AND gone = ?2 AND changed_at_ms < ?3 ORDER BY changed_at_ms LIMIT ?4";
    const KEY: &str = "enqueued_at_ms = ?2 AND sequence = ?3 AND shard = ?4";
    let mut oldest = connection.prepare_cached(OLDEST)?;
    let keys = oldest.query_map(params![queue, gone, before_ms, limit as i64], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?, metadata(row, 3)?))
    })?;
    // Reads all keys first: rows must not be deleted while a statement walks them.
    let keys: Vec<_> = keys.collect::<Result<_, _>>()?;
    let mut message = connection.prepare_cached(&format!("DELETE FROM current WHERE queue = ?1 AND {KEY}"))?;
    let pair = format!("DELETE FROM pairs WHERE queue = ?1 AND {KEY} AND key = ?5 AND value = ?6");
    let mut pair = connection.prepare_cached(&pair)?;
    let payload = "DELETE FROM payloads WHERE queue = ?1 AND sequence = ?2 AND shard = ?3";
    let mut payload = connection.prepare_cached(payload)?;
    for (enqueued_at_ms, sequence, shard, metadata) in &keys {
        for (key, value) in metadata {
            pair.execute(params![queue, enqueued_at_ms, sequence, shard, key, value])?;
        }
        payload.execute(params![queue, sequence, shard])?;
        message.execute(params![queue, enqueued_at_ms, sequence, shard])?;
    }
    Ok(keys.len())
}

/// Removes the names of queues without rows.
fn forget_queues(write: &mut WriteTransaction) -> rusqlite::Result<()> {
    const FORGET: &str = "DELETE FROM queues WHERE NOT EXISTS (SELECT 1 FROM historic WHERE queue = number) \
         AND NOT EXISTS (SELECT 1 FROM current WHERE queue = number)";
    // A loss says nothing about a queue without messages that could have changed.
    const LOSSES: &str = "DELETE FROM losses WHERE NOT EXISTS \
         (SELECT 1 FROM current INDEXED BY current_by_state WHERE queue = losses.queue AND gone = 0)";
    write.transaction.prepare_cached(LOSSES)?.execute([])?;
    if write.transaction.prepare_cached(FORGET)?.execute([])? > 0 {
        write.queues.clear();
    }
    Ok(())
}

/// Truncates the file's free pages if it exceeds its limit.
fn shrink(connection: &Connection, max_bytes: u64, end: Instant) -> rusqlite::Result<Pruned> {
    let page_bytes = pragma(connection, "page_size")?;
    let pages = pragma(connection, "page_count")?;
    let too_many = pages.saturating_sub(max_bytes / page_bytes).min(pragma(connection, "freelist_count")?);
    if too_many == 0 {
        return Ok(Pruned::default());
    }
    let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({too_many})"))?;
    let mut freed = vacuum.query([])?;
    // The pragma frees one page per row that is read.
    while freed.next()?.is_some() {
        if Instant::now() >= end {
            return Ok(Pruned { more: true, shrunk: true });
        }
    }
    Ok(Pruned { more: false, shrunk: true })
}

/// The bytes of the file that rows occupy.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let pages = pragma(connection, "page_count")? - pragma(connection, "freelist_count")?;
    Ok(pages * pragma(connection, "page_size")?)
}

fn pragma(connection: &Connection, name: &str) -> rusqlite::Result<u64> {
    let mut select = connection.prepare_cached(&format!("PRAGMA {name}"))?;
    select.query_row([], |row| Ok(row.get::<_, i64>(0)? as u64))
}
