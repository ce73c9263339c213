//! The identity mark of a store: its fields, and the calls that read and change them (X7).

use crate::connection::lineage;
use crate::timeline::Lineage;
use crate::{Link, LinkError, transaction};
use redis::{Cmd, Pipeline, Value, from_redis_value};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// For this time after it was chosen, a mark can be stopped by one process that knows another. Longer than a process takes to
/// notice that its connection is lost and to open the next one; and short, because of what a process stops that is wrong.
const NEW_FOR: Duration = Duration::from_secs(60);
/// Added to the time since a process has seen its mark: its objection takes time to arrive.
const CALL_MAX: Duration = Duration::from_secs(2);

/// The fields of a mark.
pub(crate) struct Mark {
    pub(crate) id: Option<String>,
    pub(crate) beat: u64,
    /// The mark that a process missed: no process starts.
    pub(crate) lost: Option<String>,
    /// When the mark was chosen, in Unix ms of Redis's clock. Marks of earlier versions do not have it.
    born_ms: Option<u64>,
    /// The marks that an operator has replaced by this one.
    replaces: Option<String>,
    /// The marks that processes know instead of this one, and that do not stop those that know it.
    objections: Option<String>,
    /// Of the Redis that has it, at that moment: it may have changed since the connection was opened.
    pub(crate) lineage: Lineage,
    /// When it was requested: the store had it then, or later.
    pub(crate) read_at: Instant,
}

/// The objection of a process that knows another mark than the store has.
pub(crate) struct Objection<'a> {
    pub(crate) known: &'a str,
    pub(crate) found: &'a str,
    /// The time since it last saw the mark that it knows.
    pub(crate) unseen_for: Duration,
    /// Its operator has accepted losses in advance: it only finds out which of the two marks is newer.
    pub(crate) is_volatile: bool,
    /// It has stopped the store before.
    pub(crate) is_repeated: bool,
}

/// What an objection has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The mark was chosen after the process had last seen its own: the store was emptied, or is a new one.
    Newer,
    /// The same, and no process goes on with it until an operator has decided.
    Stopped,
    /// It was there before: another store. Or it has changed meanwhile.
    Other,
}

impl Mark {
    pub(crate) async fn read(link: &Link, key: &str) -> Result<Mark, LinkError> {
        let read_at = Instant::now();
        let mut command = Cmd::new();
        command.arg("HMGET").arg(key).arg(&["id", "beat", "lost", "born", "replaces", "objections"]);
        let mut both = Pipeline::with_capacity(2);
        both.add_command(command).add_command(redis::cmd("INFO").arg("replication").take());
        let mut answers = link.calls(&both, false).await?.into_iter();
        let mut next = || answers.next().unwrap_or(Value::Nil);
        let fields = next().extract_error().map_err(LinkError::after)?;
        let fields = from_redis_value(fields).map_err(|error| LinkError::after(error.into()))?;
        let (id, beat, lost, born_ms, replaces, objections): (_, Option<u64>, _, _, _, _) = fields;
        let lineage = lineage(Ok(next())).unwrap_or_default();
        Ok(Mark { id, beat: beat.unwrap_or(0), lost, born_ms, replaces, objections, lineage, read_at })
    }

    /// Whether an operator has replaced that mark by this one.
    pub(crate) fn replaces(&self, id: &str) -> bool {
        words(&self.replaces).any(|replaced| replaced == id)
    }

    /// How long ago it was chosen, by Redis's clock; `None`: an earlier version has chosen it.
    pub(crate) async fn age(&self, link: &Link) -> Result<Option<Duration>, LinkError> {
        let Some(born_ms) = self.born_ms else { return Ok(None) };
        Ok(Some(Duration::from_millis(link.time_ms().await?.saturating_sub(born_ms))))
    }

    /// Replaces it by a new one, which all continue with that know this one, have missed one here, or have objected. Returns the
    /// new one; `None`: no process has missed one or objected.
    pub(crate) async fn accept(&self, link: &Link, key: &str) -> Result<Option<String>, LinkError> {
        let mut replaced: Vec<&str> = words(&self.lost).chain(words(&self.objections)).collect();
        if replaced.is_empty() {
            return Ok(None);
        }
        replaced.extend(self.id.as_deref());
        replaced.sort_unstable();
        replaced.dedup();
        let id = Uuid::new_v4().to_string();
        let mut command = transaction::call(transaction::ACCEPT, key);
        command.arg(&id).arg(replaced.join(" "));
        link.eval(&command, false).await?;
        Ok(Some(id))
    }
}

fn words(field: &Option<String>) -> impl Iterator<Item = &str> {
    field.iter().flat_map(|text| text.split(' '))
}

/// Gives a store a new mark if it has none.
pub(crate) async fn choose(link: &Link, key: &str) -> Result<(), LinkError> {
    let id = Uuid::new_v4().to_string();
    link.eval(transaction::call(transaction::CHOOSE, key).arg(id), false).await.map(drop)
}

/// Records an objection to a mark.
pub(crate) async fn object(link: &Link, key: &str, objection: Objection<'_>) -> Result<Verdict, LinkError> {
    let Objection { known, found, unseen_for, is_volatile, is_repeated } = objection;
    let newer_max = unseen_for + CALL_MAX;
    let stopped_max = if is_repeated { newer_max } else { NEW_FOR.min(newer_max) };
    let mut command = transaction::call(transaction::OBJECT, key);
    command.arg(found).arg(known).arg(newer_max.as_millis() as u64);
    command.arg(if is_volatile { -1 } else { stopped_max.as_millis() as i64 });
    let verdict = from_redis_value(link.eval(&command, false).await?).unwrap_or(0);
    Ok(match verdict {
        1 => Verdict::Newer,
        2 => Verdict::Stopped,
        _ => Verdict::Other,
    })
}
