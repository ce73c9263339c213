//! `tallystone msg cancel QUEUE ID…`

use super::outcome::change_each;
use super::selection::{SelectionArgs, change_selected};
use crate::connection::Session;
use crate::consent::Consent;
use crate::error::CliError;
use clap::Args;
use tallystone_client::{Cancellation, Change};

#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// The queue
    queue: String,
    /// The ids of the messages
    #[arg(required_unless_present = "state", conflicts_with = "state")]
    ids: Vec<String>,
    /// Also cancel running messages; their workers lose the leases
    #[arg(long, conflicts_with = "state")]
    force: bool,
    /// The reason, stored with the message
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    #[command(flatten)]
    selection: SelectionArgs,
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: CancelArgs, session: &Session) -> Result<(), CliError> {
    if let Some(selection) = args.selection.into_selection() {
        let change = Change::Cancel { reason: args.reason };
        return change_selected(&args.queue, selection, change, &args.consent, session).await;
    }
    if args.consent.is_dry_run() {
        return args.consent.of_ids("Cancel", &args.queue, args.ids.len(), session.output);
    }
    let cancellation = |id: &String| Cancellation { force: args.force, ..Cancellation::of(id).reason(&args.reason) };
    let cancel = async |ids: &[String]| {
        let call = session.client.cancel(&args.queue, ids.iter().map(cancellation).collect());
        session.call(&args.queue, call).await
    };
    change_each(&args.ids, session, cancel).await
}
