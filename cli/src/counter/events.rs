//! `tallystone counter events COUNTER`

use super::session::{CounterSession, InNamespace};
use super::text::count_text;
use crate::duration::{format_time, parse_moment};
use crate::error::CliError;
use crate::limits::PAGE_ITEMS_MAX;
use crate::table::table;
use crate::text::visible;
use clap::Args;
use tallystone_client::CounterEvent;

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// The counter
    counter: String,
    /// Start: 2013-01-01T10:15:00Z, or 90m for 90 minutes ago [default: ten minutes before the end]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub(crate) since: Option<u64>,
    /// End [default: now]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    until: Option<u64>,
    #[command(flatten)]
    within: InNamespace,
}

pub(crate) async fn run(args: EventsArgs, session: &CounterSession) -> Result<(), CliError> {
    let namespace = &args.within.namespace;
    // The server chooses what is not given, by the store's clock.
    let (since, until) = (args.since.unwrap_or(0), args.until.unwrap_or(0));
    let (mut page_token, mut empty) = (String::new(), true);
    loop {
        let page = session.client.list_events(namespace, &args.counter, since, until, PAGE_ITEMS_MAX, &page_token);
        let page = session.call(namespace, page).await?;
        if !page.items.is_empty() {
            empty = false;
            session.output.many(&page.items, listed)?;
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if empty && !session.output.json {
        session.output.line(&format!("No events of {} in this time.", visible(&args.counter)))?;
    }
    Ok(())
}

/// A table. The columns of labels are there only if an add of the page has one (N20).
fn listed(events: &[CounterEvent]) -> String {
    let has_source = events.iter().any(|event| !event.source.is_empty());
    let has_key = events.iter().any(|event| !event.event_item_key.is_empty());
    let mut header = vec!["time", "#delta", "token"];
    header.extend(has_source.then_some("source"));
    header.extend(has_key.then_some("item key"));
    let row = |event: &CounterEvent| {
        let mut row = row(event);
        row.extend(has_source.then(|| event.source.clone()));
        row.extend(has_key.then(|| event.event_item_key.clone()));
        row
    };
    table(&header, events.iter().map(row))
}

fn row(event: &CounterEvent) -> Vec<String> {
    let what = match (event.clear, event.delta) {
        (true, _) => "cleared".to_owned(),
        (false, delta @ 0..) => format!("+{}", count_text(delta)),
        (false, delta) => count_text(delta),
    };
    vec![format_time(event.event_time_ms), what, event.token.clone()]
}
