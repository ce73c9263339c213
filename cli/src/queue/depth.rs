//! `tallystone queue depth [NAME]`

use crate::connection::{Session, cli_error};
use crate::duration::parse_moment;
use crate::error::CliError;
use crate::history::{HistoryFlags, behind, check_known};
use crate::output::grouped;
use crate::table::table;
use crate::text::parse_pair;
use clap::Args;
use serde::Serialize;
use tallystone_client::{Depth, DepthQuery, GroupBy, IndexedDepth, Queues};

/// Groups of one page.
const PAGE: u32 = 1_000;

#[derive(Args, Debug)]
pub(crate) struct DepthArgs {
    /// The queue [default: all queues]
    queue: Option<String>,
    /// All queues whose names begin with this text
    #[arg(long, value_name = "TEXT", conflicts_with = "queue")]
    prefix: Option<String>,
    /// Only messages with this metadata; repeat for several pairs, all of which must match
    #[arg(long = "where", value_name = "KEY=VALUE", value_parser = parse_pair)]
    pairs: Vec<(String, String)>,
    /// Only messages with this priority or a higher number
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority_min: Option<i64>,
    /// Only messages with this priority or a lower number
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    priority_max: Option<i64>,
    /// Only messages enqueued at this time or later: 2013-01-01T10:15:00Z, or 90m for 90 minutes ago
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    since: Option<u64>,
    /// Only messages enqueued before this time: 1h for messages that are older than an hour
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<u64>,
    /// Print a line for each value of this metadata key
    #[arg(long, value_name = "KEY", conflicts_with = "by_queue")]
    group_by: Option<String>,
    /// Print a line for each queue
    #[arg(long)]
    by_queue: bool,
    #[command(flatten)]
    pub(crate) history: HistoryFlags,
}

/// The counts of one line.
#[derive(Serialize)]
struct Line {
    /// The value of the metadata key or the name of the queue; absent in the line of all messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(flatten)]
    depth: Depth,
    /// Of all messages: those that may have changed since, or be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    uncertain: Option<Depth>,
}

pub(crate) async fn run(args: DepthArgs, session: &Session) -> Result<(), CliError> {
    let queues = match &args.queue {
        Some(queue) => Queues::One(queue.clone()),
        None => Queues::WithPrefix(args.prefix.unwrap_or_default()),
    };
    // What the lines are of.
    let header = match &args.group_by {
        Some(key) => key.clone(),
        None if args.by_queue => "queue".to_owned(),
        None => "messages".to_owned(),
    };
    let query = DepthQuery {
        metadata: args.pairs.into_iter().collect(),
        priority_min: args.priority_min,
        priority_max: args.priority_max,
        enqueued_from_ms: args.since.unwrap_or(0),
        enqueued_to_ms: args.until.unwrap_or(0),
        group_by: args.group_by.map(GroupBy::Key).or(args.by_queue.then_some(GroupBy::Queue)),
        page_size: PAGE,
        ..DepthQuery::of(queues)
    };
    let depth = depth(query, session).await?;
    if let Some(queue) = args.queue.filter(|_| depth.depth.total() == 0) {
        check_known(&queue, session).await?;
    }
    let group = |group: &tallystone_client::DepthGroup| Line {
        value: Some(group.value.clone()),
        depth: group.depth,
        uncertain: None,
    };
    let mut lines: Vec<Line> = depth.groups.iter().map(group).collect();
    let is_uncertain = depth.uncertain.total() > 0;
    lines.push(Line { value: None, depth: depth.depth, uncertain: is_uncertain.then_some(depth.uncertain) });
    session.output.many(&lines, |lines| text(&header, lines))?;
    if is_uncertain {
        session.output.remark(&format!(
            "{} of them are uncertain: transitions were lost, and they may have changed since, or be gone. `tallystone \
             history repair` settles it.",
            grouped(depth.uncertain.total())
        ))?;
    }
    session.output.remark(&behind(&depth.watermark))
}

/// The counts, with all pages of groups.
async fn depth(mut query: DepthQuery, session: &Session) -> Result<IndexedDepth, CliError> {
    let mut depth = session.client.indexed_depth(query.clone()).await.map_err(|error| cli_error(&error))?;
    while !depth.next_page_token.is_empty() {
        query.page_token = std::mem::take(&mut depth.next_page_token);
        let page = session.client.indexed_depth(query.clone()).await.map_err(|error| cli_error(&error))?;
        depth.groups.extend(page.groups);
        depth.next_page_token = page.next_page_token;
    }
    Ok(depth)
}

fn text(header: &str, lines: &[Line]) -> String {
    let row = |Line { value, depth, .. }: &Line| {
        let counts = [depth.invisible, depth.pending, depth.running, depth.completed, depth.canceled, depth.errored]
            .map(grouped);
        [vec![value.clone().unwrap_or_else(|| "all".to_owned())], counts.to_vec()].concat()
    };
    let header = [header, "#invisible", "#pending", "#running", "#completed", "#canceled", "#errored"];
    table(&header, lines.iter().map(row))
}
