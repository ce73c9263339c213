//! `tallystone msg update QUEUE ID`

use super::outcome::{ItemOutcome, show_outcomes};
use super::selection::{SelectionArgs, change_selected};
use crate::connection::Session;
use crate::consent::Consent;
use crate::error::CliError;
use clap::Args;
use std::time::SystemTime;
use tallystone_client::{Change, MessagePatch};

#[derive(Args, Debug)]
pub(crate) struct UpdateArgs {
    /// The queue
    queue: String,
    /// The message's id
    #[arg(required_unless_present = "state", conflicts_with = "state")]
    id: Option<String>,
    /// The new priority; the message with the lowest number runs first
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority: Option<i64>,
    /// Make it invisible until this time, such as 2030-01-01T00:00:00Z; a past time makes it pending now
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    visible_at: Option<SystemTime>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: UpdateArgs, session: &Session) -> Result<(), CliError> {
    let since_epoch = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let patch = MessagePatch {
        priority: args.priority,
        visible_at_ms: args.visible_at.map(|time| since_epoch(time).as_millis().try_into().unwrap_or(u64::MAX)),
    };
    if patch == MessagePatch::default() {
        return Err(CliError::usage("nothing to change").hint("give --priority or --visible-at"));
    }
    if let Some(selection) = args.selection.into_selection() {
        return change_selected(&args.queue, selection, Change::Update(patch), &args.consent, session).await;
    }
    if args.consent.is_dry_run() {
        return args.consent.of_ids("Update", &args.queue, 1, session.output);
    }
    let id = args.id.unwrap_or_default();
    let transition = session.call(&args.queue, session.client.update_message(&args.queue, &id, patch)).await?;
    show_outcomes(&[ItemOutcome::new(id, Ok(transition))], session)
}
