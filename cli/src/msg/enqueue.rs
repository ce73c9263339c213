//! `tallystone msg enqueue QUEUE`: one message by flags, or many as NDJSON.

use crate::connection::{self, Session};
use crate::duration::parse_ms;
use crate::error::CliError;
use crate::ndjson::{Sending, open, unreadable};
use crate::text::{parse_pair, visible};
use clap::Args;
use std::io::Read;
use std::path::PathBuf;
use tallystone_client::{Enqueued, Error, NewMessage};

#[derive(Args, Debug)]
pub(crate) struct EnqueueArgs {
    /// The queue; if it does not exist, the server creates it from its queue template or as a simple queue, unless its
    /// `create_on_enqueue` forbids it; the output says whether the queue was created
    queue: String,
    /// A file with messages as NDJSON, `-` for stdin; its fields: id, payload or payload_base64, priority, priority_class,
    /// metadata, lease_ms, invisibility_ms, max_attempts, coalesce
    #[arg(long, value_name = "FILE", conflicts_with = "one")]
    file: Option<PathBuf>,
    /// With --file: number of batches in flight; with 1, messages of equal priority keep their order
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    in_flight: u8,
    #[command(flatten)]
    message: Message,
}

/// The flags of one message.
#[derive(Args, Debug)]
#[group(id = "one", multiple = true)]
struct Message {
    /// The id; a second message with the same id and content adds nothing [default: a new id]
    #[arg(long, value_parser = clap::builder::NonEmptyStringValueParser::new())]
    id: Option<String>,
    /// The payload, as text
    #[arg(long, value_name = "TEXT", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// The payload, from a file; `-` for stdin
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
    /// The message with the lowest number runs first; usually a deadline in Unix ms [default: 0]
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// A priority class of the queue; the priority is the time of the enqueue plus the offset of the class
    #[arg(long, value_name = "CLASS", conflicts_with = "priority")]
    priority_class: Option<String>,
    /// Metadata; repeat for up to 4 pairs
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
    /// Length of the message's leases [default: the queue's]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,
    /// How long the message is invisible to workers at first [default: the queue's]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    invisibility: Option<u64>,
    /// Number of attempts before the message becomes errored [default: the queue's]
    #[arg(long, value_name = "N")]
    max_attempts: Option<u32>,
    /// If a live message has this id, merge into it: it keeps its content and takes the more urgent priority
    #[arg(long, requires = "id")]
    coalesce: bool,
}

pub(crate) async fn run(args: EnqueueArgs, session: &Session) -> Result<(), CliError> {
    match args.file {
        Some(file) => many(args.queue, file, usize::from(args.in_flight), session).await,
        None => one(&args.queue, args.message.into_message()?, session).await,
    }
}

impl Message {
    fn into_message(self) -> Result<NewMessage, CliError> {
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
            priority_class: self.priority_class,
            metadata: self.metadata.into_iter().collect(),
            lease_ms: self.lease,
            invisibility_ms: self.invisibility,
            max_attempts: self.max_attempts,
            coalesce: self.coalesce,
            ..message
        })
    }
}

async fn one(queue: &str, message: NewMessage, session: &Session) -> Result<(), CliError> {
    let results = session.call(queue, session.client.enqueue(queue, vec![message])).await?;
    for result in results {
        let enqueued = result.map_err(|refused| connection::refusal(&refused))?;
        session.output.one(&enqueued, |enqueued| match enqueued.queue_created {
            true => format!("Enqueued {} in queue '{queue}', which this call created.", visible(&enqueued.id)),
            false => format!("Enqueued {}.", visible(&enqueued.id)),
        })?;
    }
    Ok(())
}

async fn many(queue: String, path: PathBuf, in_flight: usize, session: &Session) -> Result<(), CliError> {
    let to = ("queue", queue.clone());
    let sending = Sending { path, to, done: ("Enqueued", "messages"), in_flight };
    let send = async |messages: Vec<NewMessage>| {
        session.client.enqueue(&queue, messages).await.map_err(|error| stopped(&error))
    };
    sending.run(session.output, send, Some(|enqueued: &Enqueued| enqueued.queue_created)).await
}

/// The error of an interrupted input.
fn stopped(error: &Error) -> CliError {
    let cli_error = connection::cli_error(error);
    if !error.is_unavailable() {
        return cli_error;
    }
    cli_error.hint("run it again with the same input: messages with an id are added once")
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
}
