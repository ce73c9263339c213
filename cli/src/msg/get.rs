//! `tallystone msg get QUEUE ID`

use crate::connection::Session;
use crate::duration::{format_ms, format_time};
use crate::error::CliError;
use crate::table::table;
use crate::terminal::colored;
use crate::text::{pairs_text, visible, visible_byte_lines};
use clap::Args;
use tallystone_client::{Attempt, Message, State};

#[derive(Args, Debug)]
pub(crate) struct GetArgs {
    /// The queue
    queue: String,
    /// The message's id
    id: String,
}

pub(crate) async fn run(args: GetArgs, session: &Session) -> Result<(), CliError> {
    let message = session.call(&args.queue, session.client.get_message(&args.queue, &args.id)).await?;
    session.output.one(&message, message_text)
}

/// Where the values of a message begin, and each line of a payload.
const INDENT: usize = 18;

/// A message for people: one line per field; fields without a value are left out. Further lines of a payload or a result
/// begin below its first.
fn message_text(message: &Message) -> String {
    let time = |ms: u64| if ms == 0 { String::new() } else { format_time(ms) };
    let due = match message.state {
        State::Invisible => "visible at",
        State::Running => "lease expires",
        _ => "kept until",
    };
    let fencing_token = if message.fencing_token == 0 { String::new() } else { message.fencing_token.to_string() };
    let coalesced = if message.coalesced { "runs again when it completes" } else { "" };
    let lines = [
        ("state", colored(message.state.name())),
        ("since", time(message.state_since_ms)),
        (due, time(message.due_ms)),
        ("priority", message.priority.to_string()),
        ("priority class", visible(message.priority_class.as_deref().unwrap_or_default())),
        ("attempts", format!("{} of {}", message.attempts, message.max_attempts)),
        ("worker", visible(&message.worker)),
        ("fencing token", fencing_token),
        ("reason", visible(&message.reason)),
        ("coalesced", coalesced.to_owned()),
        ("enqueued", time(message.enqueued_at_ms)),
        ("version", message.version.to_string()),
        ("metadata", pairs_text(&message.metadata)),
        ("payload", visible_byte_lines(&message.payload, INDENT)),
        ("result", visible_byte_lines(&message.result, INDENT)),
    ];
    let shown = lines.iter().filter(|(_, value)| !value.is_empty());
    let text = shown.fold(format!("message {}\n", visible(&message.id)), |text, (name, value)| {
        text + &format!("  {name:<15} {value}\n")
    });
    match message.last_attempts.as_slice() {
        [] => text,
        attempts => text + "\n" + &attempts_text(attempts),
    }
}

/// The last attempts, one a line.
fn attempts_text(attempts: &[Attempt]) -> String {
    let row = |attempt: &Attempt| {
        let ran = match attempt.ended_at_ms {
            0 => "runs".to_owned(),
            ended_at_ms => format_ms(ended_at_ms.saturating_sub(attempt.leased_at_ms)),
        };
        vec![
            attempt.number.to_string(),
            format_time(attempt.leased_at_ms),
            ran,
            attempt.state.name().to_owned(),
            attempt.worker.clone(),
            attempt.reason.clone(),
        ]
    };
    table(&["#attempt", "began", "ran", "left it", "worker", "reason"], attempts.iter().map(row))
}
