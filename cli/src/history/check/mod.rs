//! `tallystone history check [QUEUE…]`: compares each queue with its history, and prints every difference.
//!
//! What lives here: the verb, the check of traces (`traces`), and the differences as they are printed (`report`).

mod report;
mod traces;

use super::compare::{Group, Kind, Progress, names};
use crate::connection::Session;
use crate::error::CliError;
use crate::output::grouped;
use clap::Args;
use report::{Report, text};

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The queues to compare [default: all except the internal queues rollup/…, which keep no history by default]
    queues: Vec<String>,
    /// Also check every message's transitions: no version may be missing or occur twice
    #[arg(long)]
    traces: bool,
}

pub(crate) async fn run(args: CheckArgs, session: &Session) -> Result<(), CliError> {
    let mut names = names(args.queues, None, session).await?;
    let mut progress = Progress::new(names.len() as u64);
    let mut reports = Vec::new();
    while names.len() > 0 {
        let group = Group::list(&mut names, session, &mut progress).await?;
        reports.extend(check(group, args.traces, session, &mut progress).await?);
    }
    session.output.many(&reports, text)?;
    let found = match reports.iter().map(Report::found).sum::<u64>() {
        0 => return Ok(()),
        1 => CliError::refused("1 difference was found"),
        found => CliError::refused(format!("{found} differences were found")),
    };
    Err(match reports.iter().map(Report::mendable).sum::<u64>() {
        0 => found,
        mendable => found.hint(format!("`tallystone history repair` mends {} of them", grouped(mendable))),
    })
}

/// The reports are in the order of the queues.
async fn check(
    group: Group,
    with_traces: bool,
    session: &Session,
    progress: &mut Progress,
) -> Result<Vec<Report>, CliError> {
    let compared = group.compare(with_traces, session, progress).await?;
    let mut reports: Vec<Report> =
        compared.queues.iter().map(|(queue, messages)| Report::new(queue.clone(), *messages)).collect();
    for ((at, id), difference) in compared.differences {
        reports[at].count(difference.kind == Kind::Gone, !difference.mended.is_empty());
        reports[at].add(id, difference.text);
    }
    for (at, _) in compared.undecided {
        reports[at].undecided += 1;
    }
    for ((at, id), difference) in traces::check(&compared.queues, compared.indexed, session, progress).await? {
        reports[at].add(id, difference);
    }
    Ok(reports)
}
