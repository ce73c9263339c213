//! `tallystone history repair [QUEUE…]`: compares each queue with its history, and mends what lost transitions left behind.
//!
//! It may run while servers, workers and indexers run, and may be stopped at any time. History replaces a message only by a
//! later version of it, and an event that arrives after all has this version or a later one. A loss is settled once every
//! message of its queue was compared after the loss, and what differed is repaired.
//!
//! What lives here: the verb, and the result of each queue as it is printed (`report`).

mod report;

use super::compare::{Compared, Group, Names, Progress, caught_up, names};
use crate::connection::{Session, cli_error};
use crate::error::CliError;
use clap::Args;
use report::{Report, text};
use tallystone_client::{IndexedMessage, Loss};

/// Messages or losses of one call.
const ITEMS: usize = 500;

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
    let mut left = 0;
    while let Some(first) = names.first().cloned() {
        let repaired = repair_next(&mut names, args.dry_run, session, &mut progress).await;
        let reports = repaired.map_err(|error| error.hint(format!("`--from {first}` continues the repair")))?;
        left += reports.iter().map(Report::left).sum::<u64>();
        session.output.many(&reports, text)?;
    }
    match left {
        0 => Ok(()),
        left => Err(CliError::refused(format!("{left} differences cannot be mended"))
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
    let Compared { queues, differences, losses, .. } = group.compare(false, session, progress).await?;
    let mut reports: Vec<Report> =
        queues.into_iter().map(|(queue, compared)| Report::new(queue, compared, dry_run)).collect();
    let mut mended = Vec::new();
    for ((at, _), difference) in differences {
        reports[at].found(&difference);
        mended.extend(difference.mended.into_iter().map(|message| (at, message)));
    }
    for report in &mut reports {
        report.losses = losses.iter().filter(|loss| loss.queue == report.queue).count() as u64;
    }
    if !dry_run {
        write(mended, &mut reports, session).await?;
        settle(losses, session).await?;
    }
    Ok(reports)
}

async fn write(
    mut messages: Vec<(usize, IndexedMessage)>,
    reports: &mut [Report],
    session: &Session,
) -> Result<(), CliError> {
    while !messages.is_empty() {
        let rest = messages.split_off(messages.len().min(ITEMS));
        let (at, batch): (Vec<usize>, Vec<IndexedMessage>) = std::mem::replace(&mut messages, rest).into_iter().unzip();
        let repaired = session.client.repair_messages(batch, Vec::new()).await.map_err(|error| cli_error(&error))?;
        for (at, is_repaired) in at.into_iter().zip(repaired) {
            reports[at].written(is_repaired);
        }
    }
    Ok(())
}

/// Settles losses once queries find the repaired messages: no answer may show an old message as certain.
async fn settle(losses: Vec<Loss>, session: &Session) -> Result<(), CliError> {
    if losses.is_empty() {
        return Ok(());
    }
    caught_up(session).await?;
    for batch in losses.chunks(ITEMS) {
        session.client.repair_messages(Vec::new(), batch.to_vec()).await.map_err(|error| cli_error(&error))?;
    }
    Ok(())
}
