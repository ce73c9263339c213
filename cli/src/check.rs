//! `tallystone check [QUEUE…]`

use crate::connection::Session;
use crate::error::CliError;
use crate::output::grouped;
use crate::table::table;
use crate::text::visible;
use clap::Args;
use serde::Serialize;
use tallystone_client::Violation;

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The queues to check [default: all]
    queues: Vec<String>,
}

#[derive(Serialize)]
struct Report {
    queue: String,
    checked: u64,
    violations: Vec<Violation>,
}

pub(crate) async fn run(args: CheckArgs, session: &Session) -> Result<(), CliError> {
    let mut names = args.queues;
    let are_named = !names.is_empty();
    if !are_named {
        names.extend(session.queues("").await?.into_iter().map(|summary| summary.queue.name));
    }
    let (mut reports, mut failed) = (Vec::new(), None);
    for queue in names {
        match check(queue, session).await {
            Ok(report) => reports.push(report),
            // It was deleted since it was listed.
            Err(error) if !are_named && error.reason.as_deref() == Some("QUEUE_NOT_FOUND") => {}
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if failed.is_none() || !reports.is_empty() {
        session.output.many(&reports, text)?;
    }
    // Of two errors, the violations: the other one passes.
    match (reports.iter().map(|report| report.violations.len()).sum(), failed) {
        (0, None) => Ok(()),
        (0, Some(error)) => Err(error),
        (1, _) => Err(CliError::refused("found 1 violation")),
        (found, _) => Err(CliError::refused(format!("found {found} violations"))),
    }
}

async fn check(queue: String, session: &Session) -> Result<Report, CliError> {
    let mut report = Report { queue, checked: 0, violations: Vec::new() };
    let mut cursor = String::new();
    loop {
        let part = session.call(&report.queue, session.client.check_queue(&report.queue, &cursor)).await?;
        report.checked += part.checked;
        report.violations.extend(part.violations);
        cursor = part.cursor;
        if cursor.is_empty() {
            return Ok(report);
        }
    }
}

fn text(reports: &[Report]) -> String {
    if reports.is_empty() {
        return "No queues.".to_owned();
    }
    let row = |report: &Report| {
        let verdict = match report.violations.len() {
            0 => "every invariant holds".to_owned(),
            found => format!("{found} violations"),
        };
        vec![report.queue.clone(), grouped(report.checked), verdict]
    };
    let mut text = table(&["queue", "#checked", "verdict"], reports.iter().map(row));
    for report in reports {
        for Violation { invariant, detail } in &report.violations {
            text += &format!("\n{} {invariant}: {}", visible(&report.queue), visible(detail));
        }
    }
    text
}
