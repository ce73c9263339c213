//! `tallystone counter crossings`: counts that have passed a threshold of their namespace (N16).

use super::session::{CounterSession, InNamespace};
use super::text::count_text;
use crate::duration::format_time;
use crate::error::CliError;
use crate::limits::PAGE_ITEMS_MAX;
use crate::shutdown::Shutdown;
use crate::table::table;
use crate::terminal::note;
use clap::Args;
use std::time::Duration;
use tallystone_client::{Crossing, CrossingDirection, Crossings};

/// How long the server waits for the next crossing.
const WAIT: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub(crate) struct CrossingsArgs {
    /// Continue after this position; `now` waits for new crossings [default: the oldest stored crossing]
    #[arg(long, value_name = "POSITION", default_value = "", hide_default_value = true)]
    pub(crate) after: String,
    /// Wait for further crossings, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    within: InNamespace,
}

/// Lists until there is none, or with --follow until a signal ends it. The last line has the position from which to continue.
pub(crate) async fn run(args: CrossingsArgs, session: &CounterSession) -> Result<(), CliError> {
    let CrossingsArgs { mut after, follow, within } = args;
    let (mut is_first, mut complete_to_ms) = (true, None);
    let wait = if follow { WAIT } else { Duration::ZERO };
    let mut stop = if follow { Some(Shutdown::listen().map_err(CliError::usage)?) } else { None };
    loop {
        let page = session.client.crossings(&within.namespace, &after, PAGE_ITEMS_MAX, wait);
        let page = session.call(&within.namespace, page);
        let page = match &mut stop {
            None => page.await?,
            Some(stop) => tokio::select! {
                page = page => page?,
                () = stop.next() => break,
            },
        };
        let Crossings { crossings, position, complete_to_ms: to_ms } = page;
        (after, complete_to_ms) = (position, Some(to_ms));
        if !crossings.is_empty() {
            session.output.many(&crossings, |crossings| text(crossings, is_first))?;
            is_first = false;
        } else if !follow {
            break;
        }
    }
    let Some(complete_to_ms) = complete_to_ms else { return Ok(()) };
    let remark = format!("complete to {}; continue with --after {after}", format_time(complete_to_ms));
    if follow {
        note(&remark);
        return Ok(());
    }
    session.output.remark(&remark)
}

/// A table; later parts of it have no header.
fn text(crossings: &[Crossing], has_header: bool) -> String {
    let text = table(&["committed", "#threshold", "way", "#count", "counter"], crossings.iter().map(row));
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    if has_header { text } else { rest.to_owned() }
}

fn row(crossing: &Crossing) -> Vec<String> {
    let way = match crossing.direction {
        CrossingDirection::Up => "up",
        CrossingDirection::Down => "down",
    };
    vec![
        format_time(crossing.committed_at_ms),
        count_text(crossing.threshold),
        way.to_owned(),
        count_text(crossing.count),
        crossing.counter.clone(),
    ]
}
