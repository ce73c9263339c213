//! `tallystone msg …`: one file per verb. Here is what they share: pairs, ids, and how outcomes are shown.

mod cancel;
mod enqueue;
mod explain;
mod get;
mod ls;
mod ndjson;
mod redrive;
mod search;
mod trace;
mod update;

use crate::connection::Session;
use crate::duration::format_time;
use crate::error::CliError;
use crate::output::table;
pub(crate) use search::run as search;
pub(crate) use trace::{drawn, run as trace};

use clap::Subcommand;
use serde::Serialize;
use std::collections::BTreeMap;
use tallystone_client::{Message, Refused, State, Transition};

/// Items of one call, at most.
pub(crate) const BATCH_ITEMS_MAX: usize = 1_000;

#[derive(Debug, Subcommand)]
pub(crate) enum MsgVerb {
    /// Add one message, or many as NDJSON
    Enqueue(enqueue::EnqueueArgs),
    /// Show a message as it stands
    Get(get::GetArgs),
    /// List the messages of a state
    Ls(ls::LsArgs),
    /// Change the priority or visibility of a message that has not ended
    Update(update::UpdateArgs),
    /// Take messages out for good
    Cancel(cancel::CancelArgs),
    /// Run errored or canceled messages again, with all their attempts
    Redrive(redrive::RedriveArgs),
    /// Say why a message is not running
    Explain(explain::ExplainArgs),
    /// Draw everything that happened to a message
    Trace(trace::TraceArgs),
    /// Find messages by what is known of them, also those that have ended long ago
    Search(search::SearchArgs),
}

pub(crate) async fn run(verb: MsgVerb, session: &Session) -> Result<(), CliError> {
    match verb {
        MsgVerb::Enqueue(args) => enqueue::run(args, session).await,
        MsgVerb::Get(args) => get::run(args, session).await,
        MsgVerb::Ls(args) => ls::run(args, session).await,
        MsgVerb::Update(args) => update::run(args, session).await,
        MsgVerb::Cancel(args) => cancel::run(args, session).await,
        MsgVerb::Redrive(args) => redrive::run(args, session).await,
        MsgVerb::Explain(args) => explain::run(args, session).await,
        MsgVerb::Trace(args) => trace::run(args, session).await,
        MsgVerb::Search(args) => search::run(args, session).await,
    }
}

/// For clap: `key=value`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("say it like origin=JFK")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// `a=1 b=2`
pub(crate) fn pairs_text(pairs: &BTreeMap<String, String>) -> String {
    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}

/// A message for a person, a line per field; what is not set is left out.
/// A character that only shows itself.
fn visible(c: char) -> String {
    match c {
        '\n' | '\t' => c.to_string(),
        c if c.is_control() => c.escape_default().to_string(),
        c => c.to_string(),
    }
}

fn message_text(message: &Message) -> String {
    let time = |ms: u64| if ms == 0 { String::new() } else { format_time(ms) };
    let due = match message.state {
        State::Invisible => "visible at",
        State::Running => "lease expires",
        _ => "collected at",
    };
    let payload = match std::str::from_utf8(&message.payload) {
        // Whoever sent it must not write to the terminal of whoever looks at it.
        Ok(text) => text.chars().map(visible).collect(),
        Err(_) => format!("{} bytes that are no text; --json shows them", message.payload.len()),
    };
    let fencing_token = if message.fencing_token == 0 { String::new() } else { message.fencing_token.to_string() };
    let coalesced = if message.coalesced { "runs again when it completes" } else { "" };
    let lines = [
        ("state", message.state.to_string()),
        ("since", time(message.state_since_ms)),
        (due, time(message.due_ms)),
        ("priority", message.priority.to_string()),
        ("attempts", format!("{} of {}", message.attempts, message.max_attempts)),
        ("worker", message.worker.clone()),
        ("fencing token", fencing_token),
        ("reason", message.reason.clone()),
        ("coalesced", coalesced.to_owned()),
        ("enqueued", time(message.enqueued_at_ms)),
        ("version", message.version.to_string()),
        ("metadata", pairs_text(&message.metadata)),
        ("payload", payload),
    ];
    let shown = lines.iter().filter(|(_, value)| !value.is_empty());
    shown.fold(format!("message {}\n", message.id), |text, (name, value)| text + &format!("  {name:<15} {value}\n"))
}

/// What became of one item.
#[derive(Serialize)]
struct ItemOutcome {
    id: String,
    #[serde(flatten)]
    transition: Option<Transition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl ItemOutcome {
    fn new(id: String, result: Result<Transition, Refused>) -> Self {
        match result {
            Ok(transition) => ItemOutcome { id, transition: Some(transition), reason: None, error: None },
            Err(Refused { reason, message, .. }) => {
                ItemOutcome { id, transition: None, reason: Some(reason), error: Some(message) }
            }
        }
    }
}

/// Shows what became of each item; fails where some were refused.
fn show_outcomes(outcomes: &[ItemOutcome], session: &Session) -> Result<(), CliError> {
    session.output.many(outcomes, |outcomes| {
        let text = |outcome: &ItemOutcome| match (&outcome.transition, &outcome.error) {
            (Some(transition), _) => transition.state.to_string(),
            (None, error) => format!("refused: {}", error.as_deref().unwrap_or_default()),
        };
        table(&["id", "outcome"], outcomes.iter().map(|outcome| vec![outcome.id.clone(), text(outcome)]))
    })?;
    match outcomes.iter().filter(|outcome| outcome.error.is_some()).count() {
        0 => Ok(()),
        refused => Err(CliError::refused(format!("{refused} of {} were refused", outcomes.len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_may_hold_equals_signs() {
        assert_eq!(pair("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(pair("a").is_err());
    }
}
