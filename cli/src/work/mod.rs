//! `tallystone work QUEUE --exec CMD`. `program.rs` runs the command of a message, `environment.rs` sets its variables,
//! `guard.rs` kills it when the worker dies, and `tail.rs` keeps the end of what it writes to stderr.

mod environment;
mod guard;
mod program;
mod tail;

pub(crate) use guard::watch as run_guard;

use crate::connection::Session;
use crate::duration::parse_ms;
use crate::error::CliError;
use crate::output::{grouped, reader_is_gone};
use crate::shutdown::Shutdown;
use crate::terminal::note;
use crate::text::parse_pair;
use clap::Args;
use guard::Guard;
use nix::sys::signal::Signal;
use program::Program;
use serde::Serialize;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{Filter, Outcome, QueueType, State, Worker};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[derive(Args, Debug)]
#[command(after_help = "\
CMD runs as `sh -c CMD`, once per message, with the payload on its standard input. The worker extends the lease while \
CMD runs. The exit status of CMD decides what happens to the message, as in qmail:
  0      completes the message
  99     cancels it
  100    makes it errored at once, whatever attempts are left
  other  releases it: it runs again if it has attempts left
With a status other than 0, the message gets the reason \"exit status N\", with the end of what CMD wrote to stderr.

CMD runs in its own process group. The worker kills the group when CMD ends, when the lease is lost, when --grace is \
over, and on a second Ctrl-C. In the last two cases it releases the message. If the worker itself dies, even from \
SIGKILL, its guard process kills the group. A command can run on without a lease in only three cases: worker and guard \
are both killed, the worker is stopped with SIGSTOP, or a process of the command leaves its group (setsid). \
Use the fencing token to reject the late writes of such a command.

Environment of CMD: that of the worker, without the variables that configure servers, because these may contain passwords. Of \
those that begin with TALLYSTONE_, only SERVER, COUNTERS, NAMESPACE, CONFIG, DATA_DIR, LOG_FORMAT, PROGRAM, \
REDIS_SERVER and SERVICES_DIR stay. Added are:
  TALLYSTONE_QUEUE          the queue
  TALLYSTONE_ID             the message's id
  TALLYSTONE_PRIORITY       its priority
  TALLYSTONE_KEY            the value of its exclusivity key (exclusive queues)
  TALLYSTONE_METADATA       its metadata, as a JSON object
  TALLYSTONE_META_<NAME>    one value of its metadata; NAME is the key in upper case, other characters as _; not set \
if two keys share a NAME, such as a-b and a_b
  TALLYSTONE_ATTEMPT        the number of this attempt; 1 for the first
  TALLYSTONE_MAX_ATTEMPTS   the number of attempts after which the message is errored
  TALLYSTONE_DEADLINE_MS    Unix ms at which the lease ends unless it is extended
  TALLYSTONE_FENCING_TOKEN  rises with every lease; pass it to the systems that CMD writes to
  TRACEPARENT, TRACESTATE   the trace context of this attempt, if its message belongs to a trace or --otlp-endpoint is set")]
pub(crate) struct WorkArgs {
    /// The queue
    queue: String,
    /// The command to run for each message
    #[arg(long, value_name = "CMD")]
    exec: String,
    /// Maximum number of commands that run at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// The worker's name, which `msg get` and `msg explain` show [default: a generated name]
    #[arg(long)]
    name: Option<String>,
    /// Length of the leases: if this worker dies, others get its messages after this time [default: the message's or
    /// the queue's]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,
    /// Only messages with all of this metadata, such as origin=JFK,carrier=UA; if repeated, messages that match any of
    /// them
    #[arg(long, value_name = "KEY=VALUE[,…]", value_parser = filter)]
    filter: Vec<Filter>,
    /// How long running commands may continue after Ctrl-C or SIGTERM
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, default_value = "30s")]
    grace: u64,
}

/// The outcome of one message, as a line of JSON.
#[derive(Serialize)]
struct OutcomeLine<'a> {
    id: &'a str,
    fencing_token: u64,
    outcome: &'static str,
    /// Where it left the message; none if the lease was lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
}

pub(crate) async fn run(args: WorkArgs, session: &Session) -> Result<(), CliError> {
    let queue = session.call(&args.queue, session.client.get_queue(&args.queue)).await?;
    let key = match queue.config.queue_type {
        Some(QueueType::Exclusive { key }) => Some(key),
        _ => None,
    };
    let output = session.output;
    let mut shutdown = Shutdown::listen().map_err(CliError::usage)?;
    let mut suspend = signal(SignalKind::from_raw(Signal::SIGTSTP as i32)).map_err(CliError::usage)?;
    let interrupted = CancellationToken::new();
    let program = Arc::new(Program {
        queue: queue.name,
        command: args.exec,
        key,
        quiet: output.json,
        guard: Guard::start()
            .map_err(|error| CliError::unavailable(format!("cannot start a guard process: {error}")))?,
        interrupted: interrupted.clone(),
    });
    let is_unread = CancellationToken::new();
    let unread = is_unread.clone();
    let worker = Worker::new(session.client.clone(), &args.queue)
        .concurrency(args.concurrency)
        .grace(Duration::from_millis(args.grace))
        .on_outcome(move |lease, outcome| {
            let (outcome, state) = match outcome {
                Outcome::Completed(went) => ("completed", Some(went.state)),
                Outcome::Released(went) => ("released", Some(went.state)),
                Outcome::Lost(_) => ("lost", None),
            };
            let line = OutcomeLine { id: &lease.id, fencing_token: lease.fencing_token, outcome, state };
            if output.json
                && let Err(error) = output.one(&line, |_| String::new())
            {
                tracing::error!(%error, "cannot write an outcome");
            }
            if reader_is_gone() {
                unread.cancel();
            }
        });
    let worker = args.filter.into_iter().fold(worker, Worker::filter);
    let worker = args.lease.map_or(worker.clone(), |lease_ms| worker.lease_ms(lease_ms));
    let worker = match args.name {
        Some(name) => worker.name(name),
        None => worker,
    };

    // A stopped worker extends no lease while its commands run on.
    tokio::spawn(async move {
        while suspend.recv().await.is_some() {
            say("Ctrl-Z is ignored: the leases of running commands would expire.");
        }
    });
    let handler = async move |lease| program.run(lease).await;
    let interrupt = interrupted.clone();
    let stop = async move {
        tokio::select! {
            () = shutdown.next() => {}
            () = is_unread.cancelled() => say("Nothing reads the outcomes any more."),
        }
        say("Waiting for running commands; Ctrl-C again kills them.");
        tokio::spawn(async move {
            shutdown.next().await;
            interrupt.cancel();
            say("Releasing the messages of the killed commands; Ctrl-C again does not wait for that.");
            shutdown.exit_on_next().await;
        });
    };
    let stats = session.call(&args.queue, worker.run_until(stop, handler)).await?;
    if !output.json {
        let counts = [stats.completed, stats.released, stats.lost].map(grouped);
        output.line(&format!("{} completed, {} released, {} lost.", counts[0], counts[1], counts[2]))?;
    }
    match interrupted.is_cancelled() {
        true => Err(CliError::interrupted("running commands were killed, and their messages released")),
        false => Ok(()),
    }
}

/// Something for the person at the terminal.
fn say(text: &str) {
    if std::io::stderr().is_terminal() {
        note(text);
    }
}

/// For clap: `key=value,key=value`.
fn filter(text: &str) -> Result<Filter, String> {
    let mut pairs = text.split(',').map(parse_pair);
    let (key, value) = pairs.next().unwrap_or_else(|| parse_pair(text))?;
    pairs.try_fold(Filter::equals(key, value), |filter, next| next.map(|(key, value)| filter.and(key, value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_conjunctions() {
        assert_eq!(filter("a=1,b=2"), Ok(Filter::equals("a", "1").and("b", "2")));
        assert!(filter("a=1,b").is_err() && filter("").is_err());
    }
}
