//! `tallystone msg redrive QUEUE ID…`

use super::outcome::change_each;
use super::selection::{SELECTED, SelectionArgs, change_selected};
use crate::connection::Session;
use crate::consent::Consent;
use crate::error::CliError;
use clap::Args;
use tallystone_client::{Change, State};

#[derive(Args, Debug)]
pub(crate) struct RedriveArgs {
    /// The queue
    queue: String,
    /// The ids of the messages
    #[arg(required_unless_present = SELECTED, conflicts_with = SELECTED)]
    ids: Vec<String>,
    /// Instead of ids: all errored messages, or all in this state
    #[arg(long, value_name = "STATE", num_args = 0..=1, default_missing_value = "errored", group = SELECTED)]
    all: Vec<State>,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: RedriveArgs, session: &Session) -> Result<(), CliError> {
    let RedriveArgs { queue, ids, all, selection, consent } = args;
    if let Some(selection) = selection.or(all).into_selection() {
        return change_selected(&queue, selection, Change::Redrive, &consent, session).await;
    }
    // A person who has typed the ids has confirmed them.
    if consent.is_dry_run() {
        return consent.of_ids("Redrive", &queue, ids.len(), session.output);
    }
    let redrive = async |ids: &[String]| session.call(&queue, session.client.redrive(&queue, ids.to_vec())).await;
    change_each(&ids, session, redrive).await
}
