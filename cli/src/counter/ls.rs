//! `tallystone counter ls`

use super::session::{CounterSession, InNamespace};
use super::text::{count_text, time_or_nothing};
use crate::error::CliError;
use crate::limits::PAGE_ITEMS_MAX;
use crate::table::table;
use clap::Args;
use tallystone_client::CounterEntry;

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    within: InNamespace,
}

pub(crate) async fn run(args: LsArgs, session: &CounterSession) -> Result<(), CliError> {
    let namespace = &args.within.namespace;
    let (mut page_token, mut empty) = (String::new(), true);
    // Page by page, so that any number of counters takes bounded memory.
    loop {
        let page = session.client.list_counters(namespace, PAGE_ITEMS_MAX, &page_token);
        let page = session.call(namespace, page).await?;
        if !page.items.is_empty() {
            empty = false;
            session.output.many(&page.items, counters_table)?;
        }
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if empty && !session.output.json {
        session.output.line(&format!("No counters in {namespace}. `tallystone counter add NAME` creates one."))?;
    }
    Ok(())
}

/// Counters, a line each.
pub(super) fn counters_table(counters: &[CounterEntry]) -> String {
    table(&["counter", "#count", "exact to", "last write"], counters.iter().map(row))
}

fn row(entry: &CounterEntry) -> Vec<String> {
    vec![
        entry.counter.clone(),
        count_text(entry.count),
        time_or_nothing(entry.exact_to_ms),
        time_or_nothing(entry.last_write_ms),
    ]
}
