//! `tallystone counter add COUNTER [DELTA]`: one event by flags, or many as NDJSON.

use super::session::{CounterSession, InNamespace, cli_error};
use super::text::{count_text, exactness};
use super::token::TokenArgs;
use crate::duration::{format_time, now_ms};
use crate::error::CliError;
use crate::ndjson::Sending;
use crate::text::visible;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;
use std::path::PathBuf;
use tallystone_client::{Added, AddedAndCounted, CounterType, Error, IdempotencyToken, NewAdd};

/// Batches in flight at once: the order of adds does not matter.
const IN_FLIGHT: usize = 4;

#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    /// The counter; `-` reads adds as NDJSON from stdin, with the fields counter, delta [default: 1], token,
    /// generation_time_ms, min, max, source, event_item_key
    #[arg(value_name = "COUNTER")]
    pub(crate) counter: String,
    /// The number to add, which may be negative [default: 1]
    #[arg(allow_negative_numbers = true)]
    pub(crate) delta: Option<i64>,
    /// Do not add a negative DELTA if the count would become less than this. The namespace must be ACCURATE, with
    /// buckets_per_id 1
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) min: Option<i64>,
    /// Do not add a positive DELTA if the count would become more than this
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max: Option<i64>,
    /// Where the add comes from, at most 64 bytes; kept with the event. `counter audit --by source` groups by it
    #[arg(long, value_name = "SOURCE", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) source: Option<String>,
    /// What the add counts, such as the key of an order, at most 64 bytes; kept with the event
    #[arg(long, value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) item_key: Option<String>,
    /// Show the count after the add
    #[arg(long)]
    pub(crate) get: bool,
    #[command(flatten)]
    pub(super) token: TokenArgs,
    #[command(flatten)]
    pub(super) within: InNamespace,
}

pub(crate) async fn run(args: AddArgs, session: &CounterSession) -> Result<(), CliError> {
    if args.counter == "-" {
        let has_bounds = args.min.is_some() || args.max.is_some();
        let has_labels = args.source.is_some() || args.item_key.is_some();
        if args.delta.is_some() || args.get || has_bounds || has_labels || args.token.is_given() {
            return Err(CliError::usage(concat!(
                "with `-`, the lines set delta, token, generation_time_ms, min, max, source and event_item_key; ",
                "remove DELTA and the flags --get, --min, --max, --source, --item-key, --token, --at",
            )));
        }
        return many(args.within.namespace, session).await;
    }
    one(args, session).await
}

/// An add and its outcome.
#[derive(Serialize)]
struct Outcome<'a> {
    counter: &'a str,
    delta: i64,
    #[serde(flatten)]
    token: &'a IdempotencyToken,
    #[serde(flatten)]
    added: Added,
    #[serde(flatten)]
    counted: Option<Counted>,
}

#[derive(Clone, Copy, Serialize)]
struct Counted {
    count: i64,
    exact_to_ms: u64,
}

async fn one(args: AddArgs, session: &CounterSession) -> Result<(), CliError> {
    let (namespace, delta, token) = (args.within.namespace, args.delta.unwrap_or(1), args.token.into_token());
    let (min, max) = (args.min, args.max);
    let (source, event_item_key) = (args.source.unwrap_or_default(), args.item_key.unwrap_or_default());
    let add = NewAdd::new(&args.counter, delta).token(token.clone());
    let add = NewAdd { min, max, source, event_item_key, ..add };
    let (added, counted) = match args.get {
        true => split(session.write(&namespace, &token, session.client.add_and_get(&namespace, add)).await?),
        false => (session.write(&namespace, &token, session.client.add(&namespace, add)).await?, None),
    };
    let outcome = Outcome { counter: &args.counter, delta, token: &token, added, counted };
    session.output.one(&outcome, text)
}

fn split(AddedAndCounted { added, count, exact_to_ms }: AddedAndCounted) -> (Added, Option<Counted>) {
    (added, Some(Counted { count, exact_to_ms }))
}

fn text(outcome: &Outcome<'_>) -> String {
    let at = match outcome.added.event_time_ms {
        0 => String::new(),
        ms => format!(" at {}", format_time(ms)),
    };
    let mut text = match outcome.added.duplicate {
        true => format!("Added nothing to {}: the event was already counted{at}.\n", visible(outcome.counter)),
        false => format!("Added {} to {}{at}.\n", count_text(outcome.delta), visible(outcome.counter)),
    };
    if let Some(Counted { count, exact_to_ms }) = outcome.counted {
        // Only the adds of best-effort counters are no events.
        let counter_type = (outcome.added.event_time_ms == 0).then_some(CounterType::BestEffort);
        text += &format!("{}  ({})\n", count_text(count), exactness(counter_type, exact_to_ms, now_ms()));
    }
    text
}

async fn many(namespace: String, session: &CounterSession) -> Result<(), CliError> {
    let to = ("namespace", namespace.clone());
    let sending = Sending { path: PathBuf::from("-"), to, done: ("Counted", "adds"), in_flight: IN_FLIGHT };
    let send = async |adds: Vec<NewAdd>| match session.client.add_many(&namespace, adds).await {
        Ok(results) => Ok(results),
        Err(error @ Error::Unavailable { .. }) => {
            Err(cli_error(&error).hint("run it again with the same input: lines with a token are counted once"))
        }
        Err(error) => Err(session.explained(&namespace, &error).await),
    };
    sending.run(session.output, send, None).await
}
