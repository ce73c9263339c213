//! Sends a stream of lines to a server, several batches at a time, and reports the outcome.

use super::batch::{Batch, read_batches};
use super::{Item, Reader};
use crate::error::CliError;
use crate::flag_names::in_line;
use crate::output::{Output, grouped};
use crate::text::visible;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tallystone_client::Refused;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

/// Batches that are read while others are in flight.
const BATCHES_AHEAD: usize = 2;
/// Refused lines that the report names.
const SHOWN_MAX: usize = 20;
/// The reason of a line that is not an item.
const BAD_LINE: &str = "BAD_LINE";

/// What to send, and where.
pub(crate) struct Sending {
    /// The file; `-` for stdin.
    pub(crate) path: PathBuf,
    /// The destination, as a field of the report: `("queue", "flights")`.
    pub(crate) to: (&'static str, String),
    /// The words of the report: `("Enqueued", "messages")`.
    pub(crate) done: (&'static str, &'static str),
    /// Batches in flight at once.
    pub(crate) in_flight: usize,
}

/// The outcome of the input.
#[derive(Debug, Default, Serialize)]
struct Report {
    #[serde(flatten)]
    to: BTreeMap<&'static str, String>,
    accepted: u64,
    refused: u64,
    /// Whether an accepted message has created the queue; `None`: the destination is not a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_created: Option<bool>,
    /// The number of refused lines, by reason.
    refused_by_reason: BTreeMap<String, u64>,
    /// The first refused lines.
    refused_lines: Vec<RefusedLine>,
    elapsed_s: f64,
}

#[derive(Debug, Serialize)]
struct RefusedLine {
    line: u64,
    reason: String,
    error: String,
}

impl Report {
    fn refuse(&mut self, line: u64, reason: String, error: String) {
        self.refused += 1;
        *self.refused_by_reason.entry(reason.clone()).or_default() += 1;
        if self.refused_lines.len() < SHOWN_MAX {
            self.refused_lines.push(RefusedLine { line, reason, error });
        }
    }

    fn record<A>(
        &mut self,
        lines: &[u64],
        bad: Vec<(u64, String)>,
        results: Vec<Result<A, Refused>>,
        creates_queue: Option<fn(&A) -> bool>,
    ) {
        let mut refused: Vec<_> = bad.into_iter().map(|(line, error)| (line, BAD_LINE.to_owned(), error)).collect();
        for (line, result) in lines.iter().zip(results) {
            match result {
                Ok(accepted) => {
                    self.accepted += 1;
                    self.queue_created =
                        creates_queue.map(|is_creator| self.queue_created == Some(true) || is_creator(&accepted));
                }
                Err(item) => refused.push((*line, item.reason.clone(), in_line(&item))),
            }
        }
        refused.sort_unstable();
        for (line, reason, error) in refused {
            self.refuse(line, reason, error);
        }
    }
}

/// The batches without results.
#[derive(Default)]
struct Failures {
    lines: Vec<String>,
    first: Option<CliError>,
}

impl Failures {
    fn add(&mut self, lines: &[u64], error: CliError) {
        if let (Some(first), Some(last)) = (lines.first(), lines.last()) {
            self.lines.push(format!("{first} to {last}"));
        }
        self.first.get_or_insert(error);
    }

    /// The first error, with the lines that failed, and the one after which none was sent.
    fn into_error(self, last_sent: u64) -> Option<CliError> {
        let lines = self.lines.join(", ");
        self.first.map(|error| error.at(format!("lines {lines} failed, and no line after {last_sent} was sent")))
    }
}

impl Sending {
    /// Sends the whole input and shows the report. `creates_queue`: whether an accepted item has created the queue that it
    /// went to. Fails if the server refused a line, or if `send` failed.
    pub(crate) async fn run<T: Item, A>(
        self,
        output: Output,
        send: impl AsyncFn(Vec<T>) -> Result<Vec<Result<A, Refused>>, CliError>,
        creates_queue: Option<fn(&A) -> bool>,
    ) -> Result<(), CliError> {
        let done = self.done;
        let (report, failed) = self.send_all(output, send, creates_queue).await?;
        output.one(&report, |report| report_text(report, done))?;
        match (failed, report.refused) {
            (Some(error), _) => Err(error),
            (None, 0) => Ok(()),
            (None, refused) => {
                let lines = grouped(report.accepted + refused);
                Err(CliError::refused(format!("{} of {lines} lines were refused", grouped(refused))))
            }
        }
    }

    async fn send_all<T: Item, A>(
        self,
        output: Output,
        send: impl AsyncFn(Vec<T>) -> Result<Vec<Result<A, Refused>>, CliError>,
        creates_queue: Option<fn(&A) -> bool>,
    ) -> Result<(Report, Option<CliError>), CliError> {
        let Sending { path, to, in_flight, .. } = self;
        let input = open(&path)?;
        let bytes_total = std::fs::metadata(&path).ok().filter(|metadata| metadata.is_file()).map(|file| file.len());
        let progress = progress(bytes_total, output.json);
        let started = Instant::now();
        let queue_created = creates_queue.map(|_| false);
        let mut report = Report { to: BTreeMap::from([to]), queue_created, ..Report::default() };

        let (batches, read) = mpsc::channel(BATCHES_AHEAD);
        // On its own thread: a read from a terminal or pipe may block for ever, and must not keep the program running.
        std::thread::spawn(move || read_batches(Reader::new(input), |batch| batches.blocking_send(batch).is_ok()));
        // After a failure no batch is read any more. Those in flight still have an outcome.
        let stopped = CancellationToken::new();
        let mut sent = ReceiverStream::new(read)
            .take_until(Box::pin(stopped.cancelled()))
            .map(async |batch: io::Result<Batch<T>>| {
                let mut batch = batch?;
                let items = std::mem::take(&mut batch.items);
                let results = if items.is_empty() { Ok(Vec::new()) } else { send(items).await };
                if results.is_err() {
                    stopped.cancel();
                }
                io::Result::Ok((batch, results))
            })
            .buffered(in_flight);
        let (mut failures, mut unreadable_after, mut last_sent) = (Failures::default(), None, 0);
        while let Some(outcome) = sent.next().await {
            let (batch, results) = match outcome {
                Ok(outcome) => outcome,
                Err(error) => {
                    unreadable_after = Some(unreadable(&path, &error));
                    break;
                }
            };
            last_sent = batch.lines.last().copied().unwrap_or(last_sent);
            let results = match results {
                Ok(results) => results,
                Err(error) => {
                    failures.add(&batch.lines, error);
                    continue;
                }
            };
            report.record(&batch.lines, batch.bad, results, creates_queue);
            progress.set_position(batch.input_bytes);
            progress.set_message(format!("{} accepted, {} refused", grouped(report.accepted), grouped(report.refused)));
        }
        drop(sent);
        progress.finish_and_clear();
        report.elapsed_s = started.elapsed().as_secs_f64();
        Ok((report, failures.into_error(last_sent).or(unreadable_after)))
    }
}

fn report_text(report: &Report, (done, items): (&str, &str)) -> String {
    let rate = report.accepted as f64 / report.elapsed_s.max(0.001);
    let mut text = format!(
        "{done} {} {items} in {:.1} s ({}/s).\n",
        grouped(report.accepted),
        report.elapsed_s,
        grouped(rate as u64)
    );
    if report.queue_created == Some(true) {
        let queue = report.to.values().next().map_or("", String::as_str);
        text += &format!("This call created the queue '{}'.\n", visible(queue));
    }
    for (reason, count) in &report.refused_by_reason {
        text += &format!("Refused {} as {}.\n", grouped(*count), visible(reason));
    }
    for RefusedLine { line, reason, error } in &report.refused_lines {
        text += &format!("  line {line}: {}: {}\n", visible(reason), visible(error));
    }
    if report.refused > report.refused_lines.len() as u64 {
        text += &format!("  … and {} more\n", grouped(report.refused - report.refused_lines.len() as u64));
    }
    text
}

fn progress(bytes_total: Option<u64>, json: bool) -> ProgressBar {
    let (bar, template) = match bytes_total {
        Some(total) => (ProgressBar::new(total), "{bar:32} {percent:>3}% {msg}, {eta} left"),
        None => (ProgressBar::no_length(), "{spinner} {bytes} read, {msg}"),
    };
    if json {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}

/// A file to read, or stdin.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Read + Send>, CliError> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(path).map_err(|error| unreadable(path, &error))?))
}

/// The error of a file that cannot be read.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> CliError {
    CliError::usage(format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_client::NewMessage;

    #[tokio::test]
    async fn lines_that_were_in_flight_when_others_failed_are_in_the_report() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines: String = (0..5_000).map(|n| format!("{{\"id\":\"{n}\"}}\n")).collect();
        std::fs::write(file.path(), lines).unwrap();
        let (to, done) = (("queue", "flights".to_owned()), ("Enqueued", "messages"));
        let sending = Sending { path: file.path().to_owned(), to, done, in_flight: 3 };
        let output = Output { json: true, only_shows: false };
        // The second call fails while the first and the third have no answer yet.
        let calls = std::cell::Cell::new(0);
        let (third, failed) = (tokio::sync::Notify::new(), tokio::sync::Semaphore::new(0));
        let send = async |messages: Vec<NewMessage>| {
            calls.set(calls.get() + 1);
            if calls.get() == 2 {
                third.notified().await;
                failed.add_permits(2);
                return Err(CliError::unavailable("no answer"));
            }
            if calls.get() == 3 {
                third.notify_one();
            }
            let _after = failed.acquire().await;
            Ok(messages.iter().map(|_| Ok(())).collect())
        };
        let (report, failure) = sending.send_all(output, send, None).await.unwrap();
        let failure = failure.unwrap().to_string();
        assert_eq!(calls.get(), 3, "{failure}");
        assert_eq!(report.accepted, 2_000);
        assert_eq!(failure, "lines 1001 to 2000 failed, and no line after 3000 was sent: no answer");
    }

    #[test]
    fn refused_lines_are_counted_by_reason_and_only_the_first_kept() {
        let mut report = Report::default();
        for line in 0..30 {
            report.refuse(line, BAD_LINE.to_owned(), "no".to_owned());
        }
        assert_eq!((report.refused, report.refused_by_reason[BAD_LINE]), (30, 30));
        assert_eq!(report.refused_lines.len(), SHOWN_MAX);
        assert!(report_text(&report, ("Enqueued", "messages")).contains("and 10 more"));
    }
}
