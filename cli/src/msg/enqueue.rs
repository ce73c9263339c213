//! `tallystone msg enqueue QUEUE`: one message by flags, or many as NDJSON.

use super::ndjson::Reader;
use super::{BATCH_ITEMS_MAX, pair};
use crate::connection::{self, Session};
use crate::duration::parse_ms;
use crate::failure::Failure;
use crate::output::grouped;
use clap::Args;
use futures::StreamExt;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tallystone_client::{Enqueued, Error, NewMessage, Refused};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// A request may hold 4 MiB; this leaves room for the framing of a thousand messages.
const BATCH_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Batches read ahead of those in flight.
const BATCHES_AHEAD: usize = 2;
/// Refused lines that are shown one by one.
const SHOWN_MAX: usize = 20;
/// The reason of a line that is no message.
const BAD_LINE: &str = "BAD_LINE";

#[derive(Args, Debug)]
pub(crate) struct EnqueueArgs {
    /// The queue; one that is not there is made, simple unless a template of the server says otherwise
    queue: String,
    /// Messages as NDJSON, `-` for stdin; fields: id, payload or payload_base64, priority, metadata, lease_ms,
    /// invisibility_ms, max_attempts, coalesce
    #[arg(long, value_name = "FILE", conflicts_with = "one")]
    file: Option<PathBuf>,
    /// With --file: batches on their way at once; 1 keeps the order of equal priorities
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    in_flight: u8,
    #[command(flatten)]
    message: Message,
}

/// One message.
#[derive(Args, Debug)]
#[group(id = "one", multiple = true)]
struct Message {
    /// Its id; the same id and content again is the same message [default: a new one]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// What it carries, as text
    #[arg(long, value_name = "TEXT", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// What it carries, from a file; `-` for stdin
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// Lower runs first; the norm is a deadline in Unix ms [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Metadata; may be given up to 4 times
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = pair)]
    metadata: Vec<(String, String)>,
    /// Its lease [default: the queue's]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,
    /// How long nobody sees it [default: the queue's]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    invisibility: Option<u64>,
    /// How often it may run [default: the queue's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// A live message with this id stands for it
    #[arg(long, requires = "id")]
    coalesce: bool,
}

pub(crate) async fn run(args: EnqueueArgs, session: &Session) -> Result<(), Failure> {
    match args.file {
        Some(file) => many(&args.queue, file, usize::from(args.in_flight), session).await,
        None => one(&args.queue, args.message.into_message()?, session).await,
    }
}

impl Message {
    fn into_message(self) -> Result<NewMessage, Failure> {
        let payload = match (self.payload, self.payload_file) {
            (Some(text), _) => text.into_bytes(),
            (None, Some(path)) => {
                let mut bytes = Vec::new();
                open(&path)?.read_to_end(&mut bytes).map_err(|error| unreadable(&path, &error))?;
                bytes
            }
            (None, None) => Vec::new(),
        };
        let message = match self.id {
            Some(id) => NewMessage::new(id, payload),
            None => NewMessage::unnamed(payload),
        };
        Ok(NewMessage {
            priority: self.priority.unwrap_or_default(),
            metadata: self.metadata.into_iter().collect(),
            lease_ms: self.lease,
            invisibility_ms: self.invisibility,
            max_attempts: self.max_attempts,
            coalesce: self.coalesce,
            ..message
        })
    }
}

async fn one(queue: &str, message: NewMessage, session: &Session) -> Result<(), Failure> {
    let results = session.ask(queue, session.client.enqueue(queue, vec![message])).await?;
    for result in results {
        let enqueued = result.map_err(|refused| connection::refusal(&refused))?;
        session.output.one(&enqueued, |enqueued| format!("Enqueued {}.", enqueued.id))?;
    }
    Ok(())
}

/// Lines on their way to the server.
#[derive(Default)]
struct Batch {
    messages: Vec<NewMessage>,
    /// The line of each message.
    lines: Vec<u64>,
    /// Lines that are no messages, and why.
    bad: Vec<(u64, String)>,
    bytes: usize,
    /// How far the input was read with this batch.
    input_bytes: u64,
}

/// What became of the input.
#[derive(Debug, Default, Serialize)]
struct Report {
    queue: String,
    accepted: u64,
    refused: u64,
    /// Refused lines by reason.
    refused_by_reason: BTreeMap<String, u64>,
    /// The first of them.
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

    fn record(&mut self, lines: &[u64], bad: Vec<(u64, String)>, results: Vec<Result<Enqueued, Refused>>) {
        let mut refused: Vec<_> = bad.into_iter().map(|(line, error)| (line, BAD_LINE.to_owned(), error)).collect();
        for (line, result) in lines.iter().zip(results) {
            match result {
                Ok(_) => self.accepted += 1,
                Err(Refused { reason, message, .. }) => refused.push((*line, reason, message)),
            }
        }
        refused.sort_unstable();
        for (line, reason, error) in refused {
            self.refuse(line, reason, error);
        }
    }
}

async fn many(queue: &str, path: PathBuf, in_flight: usize, session: &Session) -> Result<(), Failure> {
    let input = open(&path)?;
    let bytes_total = std::fs::metadata(&path).ok().filter(|metadata| metadata.is_file()).map(|file| file.len());
    let progress = progress(bytes_total, session.output.json);
    let started = Instant::now();
    let mut report = Report { queue: queue.to_owned(), ..Report::default() };

    let (batches, read) = mpsc::channel(BATCHES_AHEAD);
    // A thread of its own: a read from a terminal or pipe may block for ever, and must not hold up our end.
    std::thread::spawn(move || read_batches(Reader::new(input), |batch| batches.blocking_send(batch).is_ok()));
    let client = &session.client;
    let mut sent = ReceiverStream::new(read)
        .map(async |batch: io::Result<Batch>| {
            let mut batch = batch?;
            let messages = std::mem::take(&mut batch.messages);
            let results = if messages.is_empty() { Ok(Vec::new()) } else { client.enqueue(queue, messages).await };
            io::Result::Ok((batch, results))
        })
        .buffered(in_flight);
    let mut failed = None;
    while let Some(outcome) = sent.next().await {
        let (batch, results) = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                failed = Some(unreadable(&path, &error));
                break;
            }
        };
        let results: Vec<Result<Enqueued, Refused>> = match results {
            Ok(results) => results,
            Err(error) => {
                failed = Some(stopped(&error, batch.lines.first().copied().unwrap_or_default()));
                break;
            }
        };
        report.record(&batch.lines, batch.bad, results);
        progress.set_position(batch.input_bytes);
        progress.set_message(format!("{} accepted, {} refused", grouped(report.accepted), grouped(report.refused)));
    }
    drop(sent);
    progress.finish_and_clear();
    report.elapsed_s = started.elapsed().as_secs_f64();
    session.output.one(&report, report_text)?;
    match (failed, report.refused) {
        (Some(failure), _) => Err(failure),
        (None, 0) => Ok(()),
        (None, refused) => {
            let lines = grouped(report.accepted + refused);
            Err(Failure::refused(format!("{} of {lines} lines were refused", grouped(refused))))
        }
    }
}

/// Why the rest was not sent.
fn stopped(error: &Error, line: u64) -> Failure {
    let failure = connection::failure(error).at(format!("stopped at line {line}"));
    if !error.is_unavailable() {
        return failure;
    }
    failure.hint("run it again with the same input: messages that carry an id are added once")
}

/// Reads the input to its end, a batch at a time; a batch is full, or all that there was without waiting.
fn read_batches<R: Read>(mut reader: Reader<R>, mut send: impl FnMut(io::Result<Batch>) -> bool) {
    let mut batch = Batch::default();
    loop {
        let line = match reader.next() {
            Ok(Some(line)) => line,
            Ok(None) => break,
            Err(error) => {
                send(Ok(std::mem::take(&mut batch)));
                send(Err(error));
                return;
            }
        };
        match line {
            (number, Ok(message)) => {
                let pairs: usize = message.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
                batch.bytes += message.payload.len() + message.id.len() + pairs;
                batch.messages.push(message);
                batch.lines.push(number);
            }
            (number, Err(error)) => batch.bad.push((number, error)),
        }
        batch.input_bytes = reader.bytes;
        let full = batch.messages.len() + batch.bad.len() >= BATCH_ITEMS_MAX || batch.bytes >= BATCH_BYTES_MAX;
        if (full || reader.is_drained()) && !send(Ok(std::mem::take(&mut batch))) {
            return;
        }
    }
    send(Ok(batch));
}

fn report_text(report: &Report) -> String {
    let rate = report.accepted as f64 / report.elapsed_s.max(0.001);
    let mut text = format!(
        "Enqueued {} messages in {:.1} s ({}/s).\n",
        grouped(report.accepted),
        report.elapsed_s,
        grouped(rate as u64)
    );
    for (reason, count) in &report.refused_by_reason {
        text += &format!("Refused {} as {reason}.\n", grouped(*count));
    }
    for RefusedLine { line, reason, error } in &report.refused_lines {
        text += &format!("  line {line}: {reason}: {error}\n");
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

fn open(path: &PathBuf) -> Result<Box<dyn Read + Send>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin()));
    }
    Ok(Box::new(File::open(path).map_err(|error| unreadable(path, &error))?))
}

fn unreadable(path: &std::path::Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: EnqueueArgs,
    }

    fn parse(line: &str) -> Result<EnqueueArgs, clap::Error> {
        Line::try_parse_from(std::iter::once("enqueue").chain(line.split(' '))).map(|line| line.args)
    }

    #[test]
    fn flags_make_one_message() {
        let args =
            parse("q --id a --payload hi --priority -9 --meta k=v --lease 5s --invisibility 1m --coalesce").unwrap();
        let message = args.message.into_message().unwrap();
        let expected = NewMessage::new("a", "hi").priority(-9).metadata("k", "v").lease_ms(5_000);
        assert_eq!(message, expected.invisibility_ms(60_000).coalesce());
        assert!(parse("q --file x --id a").is_err());
        assert!(parse("q --coalesce").is_err());
        assert!(parse("q --payload a --payload-file b").is_err());
        assert!(parse("q --file - --in-flight 0").is_err());
    }

    #[test]
    fn batches_are_bounded_by_items_and_bytes_and_keep_line_numbers() {
        let mut input: Vec<u8> = Vec::new();
        for n in 0..2_500 {
            input.extend(format!("{{\"id\":\"{n}\"}}\n").bytes());
        }
        input.extend(b"nonsense\n");
        let large = "x".repeat(32 * 1024);
        for n in 0..200 {
            input.extend(format!("{{\"id\":\"large{n}\",\"payload\":\"{large}\"}}\n").bytes());
        }
        let mut batches = Vec::new();
        let length = input.len() as u64;
        read_batches(Reader::new(&input[..]), |batch| {
            batches.push(batch.unwrap());
            true
        });
        assert_eq!(batches.iter().map(|batch| batch.messages.len()).sum::<usize>(), 2_700);
        for batch in &batches {
            assert!(batch.messages.len() <= BATCH_ITEMS_MAX && batch.bytes < BATCH_BYTES_MAX + 64 * 1024);
            assert_eq!(batch.messages.len(), batch.lines.len());
        }
        let lines: Vec<u64> = batches.iter().flat_map(|batch| batch.lines.clone()).collect();
        assert_eq!(lines, (1..=2_701).filter(|n| *n != 2_501).collect::<Vec<_>>());
        assert_eq!(batches.iter().flat_map(|batch| &batch.bad).map(|bad| bad.0).collect::<Vec<_>>(), [2_501]);
        assert_eq!(batches.last().unwrap().input_bytes.max(batches[batches.len() - 2].input_bytes), length);
    }

    #[test]
    fn what_trickles_in_is_sent_without_waiting_for_more() {
        /// A pipe: one line a read.
        struct Trickle(Vec<&'static [u8]>);
        impl Read for Trickle {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                let Some(line) = self.0.pop() else { return Ok(0) };
                buffer[..line.len()].copy_from_slice(line);
                Ok(line.len())
            }
        }
        let mut sizes = Vec::new();
        read_batches(Reader::new(Trickle(vec![b"{}\n", b"{}\n"])), |batch| {
            sizes.push(batch.unwrap().messages.len());
            true
        });
        assert_eq!(sizes, [1, 1, 0]);
    }

    #[test]
    fn refused_lines_are_counted_by_reason_and_only_the_first_kept() {
        let mut report = Report::default();
        for line in 0..30 {
            report.refuse(line, BAD_LINE.to_owned(), "no".to_owned());
        }
        assert_eq!((report.refused, report.refused_by_reason[BAD_LINE]), (30, 30));
        assert_eq!(report.refused_lines.len(), SHOWN_MAX);
        assert!(report_text(&report).contains("and 10 more"));
    }
}
