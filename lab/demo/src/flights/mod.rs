//! `tallystone demo flights`: a month of real flights through an exclusive queue.
//!
//! Every row of the file becomes a message: its key is the aircraft's tail number, its priority the scheduled departure.
//! Workers fly the flights; one worker is killed midway. Then the demo checks, from the workers' own log and not from
//! what the server says, that no aircraft flew two flights at once, that each flew in order of departure, and that every
//! flight was completed exactly once. At the end it queries the history and counts the flights.

mod args;
mod checks;
mod counting;
mod details;
mod enqueue;
mod flight;
mod flight_log;
mod history;
mod judge;
mod killed;
mod names;
mod pilots;
mod plan;
mod quantiles;
mod report;
mod summary;
mod text;

pub use args::FlightsArgs;
pub use counting::CounterServices;
pub use history::{DrawTrace, history_caught_up};
pub use report::FlightsReport;

use anyhow::{Context, Result, anyhow, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tallystone_client::{Backoff, Client, Error, QueueConfig};

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);
/// Short, so that other workers soon get the flights of the killed one.
const LEASE_MS: u64 = 2_000;
/// Completed flights stay countable until the demo ends.
const RETENTION_MS: u64 = 86_400_000;

/// What the demo needs to know.
pub struct FlightsOptions {
    /// The arguments.
    pub args: FlightsArgs,
    /// Where to count the flights; without it the demo counts nothing.
    pub counters: Option<CounterServices>,
    /// Draws the trace of a message for the report.
    pub draw_trace: DrawTrace,
}

/// Flies the flights and reports. The demo creates a queue and deletes it at the end.
///
/// # Errors
/// The file cannot be read, the server is unreachable or refuses, or `shutdown` ended first. A check that fails is not
/// an error: the report holds it, see [`FlightsReport::passed`].
///
/// The future is boxed because a crate that awaits an `async fn` of another crate compiles its own copy of all of it.
pub fn run_flights<'a>(
    options: FlightsOptions,
    client: Client,
    shutdown: impl Future<Output = ()> + 'a,
) -> Pin<Box<dyn Future<Output = Result<FlightsReport>> + 'a>> {
    let shutdown: Pin<Box<dyn Future<Output = ()> + 'a>> = Box::pin(shutdown);
    run_until(options, client, shutdown)
}

/// Not generic, so that it is compiled here.
fn run_until<'a>(
    options: FlightsOptions,
    client: Client,
    shutdown: Pin<Box<dyn Future<Output = ()> + 'a>>,
) -> Pin<Box<dyn Future<Output = Result<FlightsReport>> + 'a>> {
    Box::pin(run(options, client, shutdown))
}

async fn run(
    options: FlightsOptions,
    client: Client,
    shutdown: Pin<Box<dyn Future<Output = ()> + '_>>,
) -> Result<FlightsReport> {
    let queue = format!("flights-{:08x}", uuid::Uuid::new_v4().as_fields().0);
    let config = QueueConfig {
        lease_ms: Some(LEASE_MS),
        terminal_retention_ms: Some(RETENTION_MS),
        // The flights of a worker that was killed continue at once.
        retry_backoff: Some(Backoff::NONE),
        ..QueueConfig::exclusive(flight::TAIL)
    };
    client.create_queue(&queue, config).await.context("cannot create the demo's queue")?;
    let report = tokio::select! {
        report = fly_all(&options, &client, &queue) => report,
        () = shutdown => Err(anyhow!("interrupted")),
    };
    if !options.args.keep {
        let deleted = delete(&client, &queue).await;
        // If both failed, the failure of the demo itself says more.
        return report.and_then(|report| deleted.map(|()| report));
    }
    report
}

async fn fly_all(options: &FlightsOptions, client: &Client, queue: &str) -> Result<FlightsReport> {
    let FlightsOptions { args, counters, draw_trace } = options;
    let started = Instant::now();
    let bar = progress(args, "enqueued", None)?;
    let mut enqueued = enqueue::enqueue(client, queue, args.file.clone(), &bar).await?;
    bar.finish_and_clear();
    let enqueue = started.elapsed();
    let file = args.file.as_ref().map_or("January 2013 (embedded)".to_owned(), |file| file.display().to_string());
    ensure!(enqueued.rows > 0, "{file} has no flights");

    // All flights are enqueued before the first takes off: otherwise an early flight could come after a later one.
    let plan = Arc::new(std::mem::take(&mut enqueued.plan));
    let bar = progress(args, "flown", Some(plan.flights.len() as u64))?;
    let flown = pilots::fly(client, queue, &plan, args.workers, &bar).await?;
    bar.finish_and_clear();

    let depth = client.depth(queue, None).await.context("cannot read the queue's depth")?;
    let about = report::Circumstances {
        queue: queue.to_owned(),
        file,
        workers: args.workers,
        elapsed: started.elapsed(),
        enqueue,
        depth,
    };
    let report = FlightsReport::new(&enqueued, &plan, &flown, about);
    // Right after the last landing: the report says how long history took to catch up.
    let history = history::query(client, queue, report.killed(), *draw_trace).await?;
    let report = report.with_history(history);
    let Some(services) = counters else { return Ok(report) };
    let bar = spinner(args, "counting")?;
    let (totals, counting) = counting::count(services, &plan, &flown.log, args.file.as_deref()).await?;
    bar.finish_and_clear();
    Ok(report.with_counting(totals, counting))
}

/// Purges in bounded steps, then deletes.
async fn delete(client: &Client, queue: &str) -> Result<()> {
    loop {
        match client.purge_queue(queue, true).await {
            Ok(purged) if purged.more => {}
            Ok(_) => break,
            Err(error) => return Err(error).with_context(|| format!("cannot purge queue {queue}")),
        }
    }
    match client.delete_queue(queue, true).await {
        Err(Error::Refused(refused)) if refused.reason == "QUEUE_NOT_FOUND" => Ok(()),
        deleted => deleted.with_context(|| format!("cannot delete queue {queue}")),
    }
}

/// A progress bar on stderr, drawn only if that is a terminal.
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

/// For work whose steps are not counted.
fn spinner(args: &FlightsArgs, what: &'static str) -> Result<ProgressBar> {
    if args.quiet {
        return Ok(ProgressBar::hidden());
    }
    let bar =
        ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg}")?).with_message(what);
    bar.enable_steady_tick(TICK);
    Ok(bar)
}
