//! `tallystone msg redrive QUEUE ID…`

use super::outcome::{ItemOutcome, show_outcomes};
use crate::connection::Session;
use crate::consent::{Consent, Plan, messages};
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
    #[command(flatten)]
    consent: Consent,
}

pub(crate) async fn run(args: RedriveArgs, session: &Session) -> Result<(), CliError> {
    let RedriveArgs { queue, ids, all, consent } = args;
    let Some(state) = all else {
        let count = ids.len() as u64;
        let what = format!("Redrive {} of {queue}", messages(count));
        // Who has typed the ids has confirmed them.
        if consent.is_dry_run() {
            return consent.given(&Plan { what, queue: &queue, messages: count }, session.output).map(drop);
        }
        for ids in ids.chunks(BATCH_ITEMS_MAX) {
            show_outcomes(&redrive(&queue, ids.to_vec(), session).await?, session)?;
        }
        return Ok(());
    };
    let depth = session.call(&queue, session.client.depth(&queue, None)).await?;
    let count = match state {
        State::Errored => depth.errored,
        State::Canceled => depth.canceled,
        _ => {
            return Err(CliError::usage(format!("{state} messages cannot be redriven"))
                .hint("only errored and canceled messages can"));
        }
    };
    if count == 0 && !session.output.json {
        return session.output.line(&format!("No {state} messages in {queue}."));
    }
    let what = format!("Redrive {} of {queue}, all that are {state}", messages(count));
    if !consent.given(&Plan { what, queue: &queue, messages: count }, session.output)? {
        return Ok(());
    }
    redrive_all(&queue, state, session).await
}

async fn redrive_all(queue: &str, state: State, session: &Session) -> Result<(), CliError> {
    let mut page_token = String::new();
    loop {
        let page = session.client.list_messages(queue, state, BATCH_ITEMS_MAX as u32, &page_token);
        let page = session.call(queue, page).await?;
        let ids: Vec<String> = page.items.into_iter().map(|message| message.id).collect();
        if ids.is_empty() {
            if page.next_page_token.is_empty() {
                return Ok(());
            }
            page_token = page.next_page_token;
            continue;
        }
        // A redriven message leaves the state, so the next page is the first again.
        page_token.clear();
        // Fails if a message is refused: it would be on the first page for ever.
        show_outcomes(&redrive(queue, ids, session).await?, session)?;
    }
}

async fn redrive(queue: &str, ids: Vec<String>, session: &Session) -> Result<Vec<ItemOutcome>, CliError> {
    let results = session.call(queue, session.client.redrive(queue, ids.clone())).await?;
    Ok(ids.into_iter().zip(results).map(|(id, result)| ItemOutcome::new(id, result)).collect())
}
