//! `tallystone msg ls QUEUE`

use crate::connection::Session;
use crate::duration::format_time;
use crate::error::CliError;
use crate::limits::BATCH_ITEMS_MAX;
use crate::table::table;
use crate::text::pairs_text;
use clap::Args;
use tallystone_client::{Message, State};

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// The queue
    queue: String,
    /// The state: invisible, pending, running, completed, canceled or errored
    #[arg(long, default_value = "pending")]
    state: State,
    /// Maximum number of messages to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

pub(crate) async fn run(args: LsArgs, session: &Session) -> Result<(), CliError> {
    let (mut left, mut page_token, mut empty) = (args.limit as usize, String::new(), true);
    // Page by page, so that any number of messages takes bounded memory.
    while left > 0 {
        let page_size = left.min(BATCH_ITEMS_MAX) as u32;
        let page = session.client.list_messages(&args.queue, args.state, page_size, &page_token);
        let page = session.call(&args.queue, page).await?;
        if !page.items.is_empty() {
            empty = false;
            session.output.many(&page.items, |messages| {
                table(
                    &["id", "#priority", "#attempts", "due", "worker", "reason", "metadata"],
                    messages.iter().map(row),
                )
            })?;
        }
        left = left.saturating_sub(page.items.len());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if empty && !session.output.json {
        session.output.line(&format!("No {} messages in {}.", args.state, args.queue))?;
    }
    if !page_token.is_empty() && !session.output.json {
        session.output.line(&format!("There are more; use --limit {}", args.limit.saturating_mul(10)))?;
    }
    Ok(())
}

fn row(message: &Message) -> Vec<String> {
    vec![
        message.id.clone(),
        message.priority.to_string(),
        format!("{}/{}", message.attempts, message.max_attempts),
        if message.due_ms == 0 { String::new() } else { format_time(message.due_ms) },
        message.worker.clone(),
        message.reason.clone(),
        pairs_text(&message.metadata),
    ]
}
