//! `tallystone demo flights`: a month of real flights through an exclusive queue.
//!
//! Every row of the file becomes a message: key = tail number, priority = scheduled departure. Workers fly them, one
//! of them is killed in the middle. Then the demo checks, from what the workers wrote down and not from what the
//! server says, that no aircraft flew two flights at once, that each flew in order of departure, and that every
//! flight was completed exactly once. Then it asks history, and counts the flights (`tally`).

mod asked;
mod enqueue;
mod flight;
mod fly;
mod judge;
mod log;
mod plan;
mod report;
mod summary;
mod tally;

pub(crate) use asked::caught_up;
pub(crate) use report::FlightsReport;
pub(crate) use tally::Tallies;

use crate::shutdown::Shutdown;
use anyhow::{Context, Result, anyhow, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tallystone_client::{Client, Error, QueueConfig};

/// Short, so that a killed worker's flights are soon another's.
const LEASE_MS: u64 = 2_000;
/// Completed flights stay countable until the demo is over.
const RETENTION_MS: u64 = 86_400_000;

/// What to fly.
#[derive(Args, Debug)]
pub(crate) struct FlightsArgs {
    /// Flights to fly: a CSV file, gzipped or not [default: the 27,004 of January 2013 that left New York]
    #[arg(long, value_name = "CSV[.gz]")]
    pub(crate) file: Option<PathBuf>,

    /// Workers, each with four flights in hand
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) workers: u32,

    /// Keep the queue, to look at it afterwards
    #[arg(long)]
    pub(crate) keep: bool,

    /// No progress bars (as with --json)
    #[arg(long)]
    pub(crate) quiet: bool,
}

/// Flies them, and reports. The queue is the demo's own, and is deleted at the end.
///
/// # Errors
/// The file cannot be read, or the server is away or refuses. A check that fails is no error but in the report: see
/// [`FlightsReport::passed`]. Without `tallies` nothing is counted.
pub(crate) async fn run(args: FlightsArgs, client: Client, tallies: Option<Tallies>) -> Result<FlightsReport> {
    let shutdown = Shutdown::listen()?;
    let queue = format!("flights-{:08x}", uuid::Uuid::new_v4().as_fields().0);
    let config = QueueConfig {
        lease_ms: Some(LEASE_MS),
        terminal_retention_ms: Some(RETENTION_MS),
        ..QueueConfig::exclusive(flight::TAIL)
    };
    client.create_queue(&queue, config).await.context("the demo's queue could not be created")?;
    let report = tokio::select! {
        report = fly_all(&args, &client, &queue, tallies.as_ref()) => report,
        () = shutdown.requested() => Err(anyhow!("interrupted")),
    };
    if !args.keep {
        let deleted = delete(&client, &queue).await;
        // A failure of the demo itself is the more telling one.
        return report.and_then(|report| deleted.map(|()| report));
    }
    report
}

async fn fly_all(args: &FlightsArgs, client: &Client, queue: &str, tallies: Option<&Tallies>) -> Result<FlightsReport> {
    let started = Instant::now();
    let bar = progress(args, "enqueued", None)?;
    let mut enqueued = enqueue::enqueue(client, queue, args.file.clone(), &bar).await?;
    bar.finish_and_clear();
    let enqueue = started.elapsed();
    let file = args.file.as_ref().map_or("January 2013 (embedded)".to_owned(), |file| file.display().to_string());
    ensure!(enqueued.rows > 0, "{file} has no flights");
    // Everything is in the queue before the first take-off; else an early flight could come after a later one.
    let plan = Arc::new(std::mem::take(&mut enqueued.plan));
    let bar = progress(args, "flown", Some(plan.flights.len() as u64))?;
    let flown = fly::fly(client, queue, &plan, args.workers, &bar).await?;
    bar.finish_and_clear();
    let depth = client.depth(queue, None).await.context("the queue's depth")?;
    let about = report::Circumstances {
        queue: queue.to_owned(),
        file,
        workers: args.workers,
        elapsed: started.elapsed(),
        enqueue,
        depth,
    };
    let report = FlightsReport::new(&enqueued, &plan, &flown, about);
    // At once: it is told how soon after the last landing all of it could be asked.
    let history = asked::ask(client, queue, report.killed()).await?;
    let report = report.with_history(history);
    let report = match tallies {
        Some(at) => {
            let bar = progress(args, "counting", None)?;
            let counted = tally::tally(at, &plan, &flown.log, args.file.as_deref()).await?;
            bar.finish_and_clear();
            report.with_tally(counted)
        }
        None => report,
    };
    Ok(report)
}

/// Purges in bounded steps, then deletes.
async fn delete(client: &Client, queue: &str) -> Result<()> {
    loop {
        match client.purge_queue(queue, true).await {
            Ok(purged) if purged.more => {}
            Ok(_) => break,
            Err(error) => return Err(error).with_context(|| format!("queue {queue} could not be purged")),
        }
    }
    match client.delete_queue(queue, true).await {
        Err(Error::Refused(refused)) if refused.reason == "QUEUE_NOT_FOUND" => Ok(()),
        deleted => deleted.with_context(|| format!("queue {queue} could not be deleted")),
    }
}

/// A bar, drawn on stderr where that is a terminal.
fn progress(args: &FlightsArgs, what: &'static str, of: Option<u64>) -> Result<ProgressBar> {
    if args.quiet {
        return Ok(ProgressBar::hidden());
    }
    let (bar, template) = match of {
        Some(of) => (ProgressBar::new(of), "{bar:40} {human_pos} of {human_len} {msg}, {per_sec}"),
        None => (ProgressBar::new_spinner(), "{spinner} {human_pos} {msg}, {per_sec}"),
    };
    Ok(bar.with_style(ProgressStyle::with_template(template)?).with_message(what))
}
