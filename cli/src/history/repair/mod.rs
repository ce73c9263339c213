//! `tallystone history repair [QUEUE…]`: compares each queue with its history, and mends what lost transitions left behind.
//!
//! It may run while servers, workers and indexers run, and may be stopped at any time. History replaces a message only by a
//! later version of it, and an event that arrives after all has this version or a later one. A loss is settled once every
//! message of its queue was compared after the loss, and what differed is repaired. A message that history refuses, or that
//! changes during each comparison, keeps the losses of its queue.
//!
//! What lives here: the verb, what it writes (`write`), and the result of each queue as it is printed (`report`).

mod report;
mod write;

use super::compare::{Compared, Group, Names, Progress, names};
use crate::connection::Session;
use crate::error::CliError;
use clap::Args;
use report::{Report, text};
use std::collections::BTreeSet;
use tallystone_client::Loss;

#[derive(Args, Debug)]
pub(crate) struct RepairArgs {
    /// The queues to repair [default: all except rollup/…; deleted queues that history still has are included]
    queues: Vec<String>,
    /// Only count what would be corrected
    #[arg(long)]
    dry_run: bool,
    /// Continue a repair that was stopped: begin with the queue of this name
    #[arg(long, value_name = "QUEUE")]
    from: Option<String>,
}

pub(crate) async fn run(args: RepairArgs, session: &Session) -> Result<(), CliError> {
    let mut names = names(args.queues, args.from, session).await?;
    let mut progress = Progress::new(names.len() as u64);
    let (mut left, mut kept_losses) = (0, 0);
    while let Some(first) = names.first().cloned() {
        let repaired = repair_next(&mut names, args.dry_run, session, &mut progress).await;
        let reports = repaired.map_err(|error| match error.reason.as_deref() {
            // It would end in the same way, and the error has its own hint.
            Some("QUEUE_NOT_FOUND") => error,
            _ => error.hint(format!("`--from {first}` continues the repair")),
        })?;
        left += reports.iter().map(Report::left).sum::<u64>();
        kept_losses += reports.iter().map(Report::kept_losses).sum::<u64>();
        session.output.many(&reports, text)?;
    }
    match (left, kept_losses) {
        (0, 0) => Ok(()),
        (0, kept) => Err(CliError::refused(format!(
            "{kept} losses are not settled: messages of their queues changed during every comparison"
        ))
        .hint("repair these queues again when they are quieter")),
        (left, _) => Err(CliError::refused(format!("{left} differences cannot be mended"))
            .hint("`tallystone history check` names them; the next transition of a message brings it into history")),
    }
}

/// The next queues.
async fn repair_next(
    names: &mut Names,
    dry_run: bool,
    session: &Session,
    progress: &mut Progress,
) -> Result<Vec<Report>, CliError> {
    let group = Group::list(names, session, progress).await?;
    let Compared { queues, differences, undecided, losses, .. } = group.compare(false, session, progress).await?;
    let mut reports: Vec<Report> =
        queues.into_iter().map(|(queue, compared)| Report::new(queue, compared, dry_run)).collect();
    let mut mended = Vec::new();
    for ((at, _), difference) in differences {
        reports[at].found(&difference);
        mended.extend(difference.mended.into_iter().map(|message| (at, message)));
    }
    for (at, _) in undecided {
        reports[at].undecided();
    }
    if !dry_run {
        write::write(mended, &mut reports, session).await?;
    }
    let settled = settled(losses, &mut reports);
    if !dry_run {
        write::settle(settled, session).await?;
    }
    Ok(reports)
}

/// The losses to settle.
fn settled(mut losses: Vec<Loss>, reports: &mut [Report]) -> Vec<Loss> {
    let mut kept = BTreeSet::new();
    for report in reports {
        let of_queue = losses.iter().filter(|loss| loss.queue == report.queue).count() as u64;
        if !report.settles(of_queue) {
            kept.insert(report.queue.as_str());
        }
    }
    losses.retain(|loss| !kept.contains(loss.queue.as_str()));
    losses
}
