//! `tallystone compact repair KEY --from REPLICA_URL`. `range.rs` reads damaged ranges from what `CT.CHECK` found, `replica.rs` waits for
//! the replica, `copy.rs` copies the records.
//!
//! While a range is damaged, the primary refuses to change what it lost. So a replica that has every write of the primary has the
//! values that the range had, and they stay right until the primary takes them over. What was written whole since (`CT.SET` of all
//! fields) the primary keeps.

mod copy;
mod range;
mod replica;

use super::check::faults;
use super::session::CompactSession;
use super::set::Set;
use crate::error::CliError;
use crate::output::grouped;
use crate::text::visible;
use clap::Args;
use range::Range;
use serde::Serialize;

#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    /// The key of the counter set
    #[arg(id = "counter_set", value_name = "KEY")]
    key: String,
    /// The address of a replica of this Redis, as in --redis-url
    #[arg(long, value_name = "REPLICA_URL")]
    from: String,
    /// Show the damaged ranges, and repair nothing
    #[arg(long)]
    dry_run: bool,
}

#[derive(Serialize)]
struct Repaired<'a> {
    key: &'a str,
    dry_run: bool,
    ranges: &'a [Range],
    /// Ids whose records were taken from the replica.
    ids: u64,
    /// What is still wrong.
    faults: Vec<String>,
}

pub(super) async fn run(args: RepairArgs, session: &mut CompactSession) -> Result<(), CliError> {
    let RepairArgs { key, from, dry_run } = args;
    let set = Set::read(&key, session).await?;
    let replica = &mut session.with(&from).await?;
    replica::check(session, replica).await?;
    let ranges = range::of_faults(&faults(&key, session).await?);
    let mut done = Repaired { key: &key, dry_run, ranges: &ranges, ids: 0, faults: Vec::new() };
    if !dry_run && !ranges.is_empty() {
        replica::catch_up(session, replica).await?;
        let there = Set::read(&key, replica).await?;
        if there.info.text("schema") != set.info.text("schema") {
            return Err(CliError::refused(format!("{} has another schema in {}", visible(&key), replica.shown)));
        }
        done.ids = copy::copy(&set, &ranges, session, replica).await?;
        done.faults = faults(&key, session).await?.into_iter().collect();
    }
    session.output.one(&done, text)?;
    match done.faults.len() {
        0 => Ok(()),
        left => Err(CliError::refused(format!("{left} faults are left"))),
    }
}

fn text(done: &Repaired<'_>) -> String {
    let mut text = String::new();
    for range in done.ranges {
        text += &format!("  {} page {}: ids {} to {}\n", visible(&range.file), range.page, range.first, range.last);
    }
    let (key, ranges) = (visible(done.key), done.ranges.len());
    text += &match (ranges, done.dry_run) {
        (0, _) => format!("{key}: no page is damaged."),
        (_, true) => format!("{key}: {ranges} damaged ranges: not repaired, --dry-run."),
        (_, false) => format!("{key}: repaired {ranges} ranges with {} ids of the replica.", grouped(done.ids)),
    };
    for fault in &done.faults {
        text += &format!("\n  left: {}", visible(fault));
    }
    text
}
