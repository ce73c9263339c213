//! `tallystone compact check KEY`

use super::progress::bar;
use super::session::CompactSession;
use super::set::{Set, tables};
use crate::error::CliError;
use crate::output::grouped;
use crate::text::visible;
use clap::Args;
use redis::{Value, cmd, from_redis_value};
use serde::Serialize;
use std::collections::BTreeSet;

/// A cursor has the number of a table in the upper bits of its lower half. Only the progress bar relies on it.
const CURSOR_TABLE_SHIFT: u32 = 40;
/// Faults that are shown to people.
const SHOWN_MAX: usize = 100;

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
}

#[derive(Serialize)]
struct Report<'a> {
    key: &'a str,
    ids: u64,
    tables: usize,
    faults: &'a BTreeSet<String>,
}

pub(super) async fn run(args: CheckArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let set = Set::read(&args.key, session).await?;
    let tables = tables(&args.key, session).await?.len();
    let faults = faults(&args.key, session).await?;
    let report = Report { key: &args.key, ids: set.info.number("ids"), tables, faults: &faults };
    session.output.one(&report, text)?;
    let damaged =
        || format!("`tallystone compact repair {} --from REPLICA_URL` restores damaged pages", visible(&args.key));
    match faults.len() {
        0 => Ok(()),
        1 => Err(CliError::refused("found 1 fault").hint(damaged())),
        found => Err(CliError::refused(format!("found {found} faults")).hint(damaged())),
    }
}

/// Verifies all of a key. Returns what is wrong, each fault once.
pub(super) async fn faults(key: &str, session: &mut CompactSession) -> Result<BTreeSet<String>, CliError> {
    let serials: Vec<u64> = tables(key, session).await?.iter().map(|table| table.number("serial")).collect();
    let progress = bar(serials.len() as u64, session.output.json);
    let (mut found, mut cursor) = (BTreeSet::new(), 0_u128);
    loop {
        let reply: Vec<Value> = session.call(key, cmd("CT.CHECK").arg(key).arg(cursor)).await?;
        let mut parts = reply.into_iter();
        let next = parts.next().and_then(|next| from_redis_value::<u128>(next).ok());
        let Some(next) = next else { return Err(CliError::unavailable("CT.CHECK replied without a cursor")) };
        found.extend(parts.filter_map(|fault| from_redis_value::<String>(fault).ok()));
        if next == 0 {
            break;
        }
        cursor = next;
        let passed = serials.iter().filter(|serial| **serial < cursor as u64 >> CURSOR_TABLE_SHIFT).count();
        progress.set_position(passed as u64);
        progress.set_message(format!("of {} tables, {} faults", serials.len(), found.len()));
    }
    progress.finish_and_clear();
    Ok(found)
}

fn text(report: &Report<'_>) -> String {
    let (ids, tables) = (grouped(report.ids), grouped(report.tables as u64));
    if report.faults.is_empty() {
        return format!("{}: every record is as it should be ({ids} ids, {tables} tables).", visible(report.key));
    }
    let mut text = format!("{}: {} faults ({ids} ids, {tables} tables)\n", visible(report.key), report.faults.len());
    for fault in report.faults.iter().take(SHOWN_MAX) {
        text += &format!("  {}\n", visible(fault));
    }
    if report.faults.len() > SHOWN_MAX {
        text += &format!("  … and {} more; --json has all\n", report.faults.len() - SHOWN_MAX);
    }
    text
}
