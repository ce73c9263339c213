//! `tallystone history check [QUEUE…]`: compares each queue with its history.
//!
//! A queue at work cannot be compared at one moment. The check lists some queues, waits until the watermark has passed that
//! moment, and lists the index. Messages that differ are compared again: a difference counts only if the message did not
//! change meanwhile. Waiting for the watermark takes seconds, so many queues and messages wait together.
//!
//! What lives here: the groups of queues that wait together (`group`), the second comparison (`again`), traces
//! (`traces`), the progress on stderr (`progress`) and the differences as they are printed (`report`). `requests` has
//! what they share.

mod again;
mod group;
mod progress;
mod report;
mod requests;
mod traces;

use crate::connection::Session;
use crate::error::CliError;
use clap::Args;
use group::Group;
use progress::Progress;
use report::{Report, text};
use tallystone_model::names::INTERNAL_QUEUES;

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The queues to compare [default: all but the internal queues rollup/…, which keep no history unless configured]
    queues: Vec<String>,
    /// Also check every message's transitions: no version may be missing or occur twice
    #[arg(long)]
    traces: bool,
}

pub(crate) async fn run(args: CheckArgs, session: &Session) -> Result<(), CliError> {
    let mut names = args.queues;
    if names.is_empty() {
        let queues = session.queues("").await?.into_iter().map(|summary| summary.queue.name);
        names.extend(queues.filter(|name| !name.starts_with(INTERNAL_QUEUES)));
    }
    let mut progress = Progress::new(names.len() as u64);
    let mut names = names.into_iter();
    let mut reports = Vec::new();
    while names.len() > 0 {
        let group = Group::list(&mut names, session, &mut progress).await?;
        reports.extend(group.check(args.traces, session, &mut progress).await?);
    }
    session.output.many(&reports, text)?;
    match reports.iter().map(Report::found).sum::<u64>() {
        0 => Ok(()),
        1 => Err(CliError::refused("1 difference was found")),
        found => Err(CliError::refused(format!("{found} differences were found"))),
    }
}
