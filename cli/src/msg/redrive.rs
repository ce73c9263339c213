//! `tallystone msg redrive QUEUE ID…`

use super::outcome::{ItemOutcome, show_outcomes};
use crate::connection::Session;
use crate::error::CliError;
use crate::limits::BATCH_ITEMS_MAX;
use clap::Args;
use tallystone_client::State;

#[derive(Args, Debug)]
pub(crate) struct RedriveArgs {
    /// The queue
    queue: String,
    /// The ids of the messages
    #[arg(required_unless_present = "all")]
    ids: Vec<String>,
    /// All messages in this state: errored or canceled
    #[arg(long, value_name = "STATE", conflicts_with = "ids")]
    all: Option<State>,
}

pub(crate) async fn run(args: RedriveArgs, session: &Session) -> Result<(), CliError> {
    let Some(state) = args.all else {
        for ids in args.ids.chunks(BATCH_ITEMS_MAX) {
            show_outcomes(&redrive(&args.queue, ids.to_vec(), session).await?, session)?;
        }
        return Ok(());
    };
    if !matches!(state, State::Errored | State::Canceled) {
        return Err(CliError::usage(format!("{state} messages cannot be redriven"))
            .hint("only errored and canceled messages can"));
    }
    for round in 0.. {
        // A redriven message leaves the state, so the next page is always the first.
        let page = session.client.list_messages(&args.queue, state, BATCH_ITEMS_MAX as u32, "");
        let ids: Vec<String> =
            session.call(&args.queue, page).await?.items.into_iter().map(|message| message.id).collect();
        if ids.is_empty() {
            if round == 0 && !session.output.json {
                session.output.line(&format!("No {state} messages in {}.", args.queue))?;
            }
            break;
        }
        // Fails if a message is refused: it would be on the first page for ever.
        show_outcomes(&redrive(&args.queue, ids, session).await?, session)?;
    }
    Ok(())
}

async fn redrive(queue: &str, ids: Vec<String>, session: &Session) -> Result<Vec<ItemOutcome>, CliError> {
    let results = session.call(queue, session.client.redrive(queue, ids.clone())).await?;
    Ok(ids.into_iter().zip(results).map(|(id, result)| ItemOutcome::new(id, result)).collect())
}
