//! `tallystone msg search`

use crate::connection::{Session, cli_error};
use crate::duration::{format_time, parse_moment};
use crate::error::CliError;
use crate::history::{HistoryFlags, UNCERTAIN, behind, check_known};
use crate::table::table;
use crate::text::{pairs_text, parse_pair, visible_bytes};
use clap::Args;
use tallystone_client::{IndexedMessage, Search, State};

/// Messages of one page.
const PAGE: u64 = 1_000;

#[derive(Args, Debug)]
pub(crate) struct SearchArgs {
    /// Only messages of this queue
    #[arg(long)]
    queue: Option<String>,
    /// Only messages with this id
    #[arg(long)]
    id: Option<String>,
    /// Only messages in this state; repeat for several states
    #[arg(long, value_name = "STATE")]
    state: Vec<State>,
    /// Only messages with this metadata; repeat for several pairs, all of which must match
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pairs: Vec<(String, String)>,
    /// Only messages whose current or last lease belongs to this worker
    #[arg(long)]
    worker: Option<String>,
    /// Only messages whose last reason contains this text
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Only messages whose last change was at this time or later: 2013-01-01T10:15:00Z, or 90m for 90 minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<u64>,
    /// Only messages whose last change was before this time
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<u64>,
    /// Also show messages that have been removed from their queue
    #[arg(long)]
    gone: bool,
    /// Maximum number of messages to show
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    #[command(flatten)]
    pub(crate) history: HistoryFlags,
}

pub(crate) async fn run(args: SearchArgs, session: &Session) -> Result<(), CliError> {
    let mut search = Search {
        queue: args.queue.unwrap_or_default(),
        id: args.id.unwrap_or_default(),
        states: args.state,
        metadata: args.pairs.into_iter().collect(),
        worker: args.worker.unwrap_or_default(),
        reason_contains: args.reason.unwrap_or_default(),
        changed_from_ms: args.since.unwrap_or(0),
        changed_to_ms: args.until.unwrap_or(0),
        include_gone: args.gone,
        page_size: 0,
        page_token: String::new(),
    };
    let (mut left, mut empty, mut uncertain) = (args.limit, true, false);
    while left > 0 {
        search.page_size = left.min(PAGE) as u32;
        let found = session.client.search_messages(search.clone()).await.map_err(|error| cli_error(&error))?;
        if !found.messages.is_empty() {
            uncertain |= found.messages.iter().any(|message| message.uncertain);
            empty = false;
            session.output.many(&found.messages, |messages| {
                let mut header = vec!["queue", "id", "state", "#attempts", "changed", "worker", "reason", "metadata"];
                // Few workers give results: the column is shown only with something in it.
                let has_results = messages.iter().any(|message| !message.result.is_empty());
                header.extend(has_results.then_some("result"));
                let row = |message| {
                    let mut cells = row(message);
                    cells.extend(has_results.then(|| visible_bytes(&message.result)));
                    cells
                };
                table(&header, messages.iter().map(row))
            })?;
        }
        left = left.saturating_sub(found.messages.len() as u64);
        search.page_token = found.next_page_token;
        if search.page_token.is_empty() || left == 0 {
            if empty {
                if !search.queue.is_empty() {
                    check_known(&search.queue, session).await?;
                }
                session.output.remark("No message matches.")?;
            }
            if !search.page_token.is_empty() {
                session.output.remark(&format!("There are more; use --limit {}", args.limit.saturating_mul(10)))?;
            }
            session.output.remark(&behind(&found.watermark))?;
            if uncertain {
                session.output.remark(UNCERTAIN)?;
            }
            return Ok(());
        }
    }
    Ok(())
}

fn row(message: &IndexedMessage) -> Vec<String> {
    let state = message.state.map_or("?", State::name);
    vec![
        message.queue.clone(),
        message.id.clone(),
        match (message.gone, message.uncertain) {
            (true, _) => format!("{state}, gone"),
            (false, true) => format!("{state}, uncertain"),
            (false, false) => state.to_owned(),
        },
        message.attempts.to_string(),
        format_time(message.changed_at_ms),
        message.worker.clone(),
        message.reason.clone(),
        pairs_text(&message.metadata),
    ]
}
