//! `tallystone counter namespace delete NAME`

use crate::consent::Consent;
use crate::counter::session::CounterSession;
use crate::error::CliError;
use crate::limits::PAGE_ITEMS_MAX;
use crate::output::grouped;
use clap::Args;
use serde::Serialize;

/// Counters that are counted for the confirmation; a namespace may have very many.
const COUNTED_MAX: u64 = 10_000;

#[derive(Args, Debug)]
pub(crate) struct DeleteArgs {
    /// The namespace
    name: String,
    #[command(flatten)]
    consent: Consent,
}

/// A dry run.
#[derive(Serialize)]
struct DryRun<'a> {
    namespace: &'a str,
    dry_run: bool,
    /// At most [`COUNTED_MAX`], and then there are more.
    counters: u64,
    more: bool,
}

#[derive(Serialize)]
struct Report {
    deleted: String,
    incarnation: u64,
}

pub(crate) async fn run(args: DeleteArgs, session: &CounterSession) -> Result<(), CliError> {
    let name = &args.name;
    let namespace = session.call(name, session.client.get_namespace(name)).await?;
    if args.consent.shows_number() {
        let (counters, more) = counted(name, session).await?;
        let at_least = if more { "at least " } else { "" };
        let noun = if counters == 1 { "counter" } else { "counters" };
        let what = format!("Delete namespace {name} with {at_least}{} {noun}", grouped(counters));
        let dry_run = DryRun { namespace: name, dry_run: true, counters, more };
        if !args.consent.given_for(&what, &dry_run, session.output)? {
            return Ok(());
        }
    }
    session.call(name, session.client.delete_namespace(&namespace)).await?;
    let report = Report { deleted: namespace.name, incarnation: namespace.incarnation };
    session
        .output
        .one(&report, |report| format!("Deleted namespace {}. Its data is removed in the background.", report.deleted))
}

/// How many counters it has, and whether there are more.
async fn counted(name: &str, session: &CounterSession) -> Result<(u64, bool), CliError> {
    let (mut page_token, mut counters) = (String::new(), 0);
    loop {
        let page = session.call(name, session.client.list_counters(name, PAGE_ITEMS_MAX, &page_token)).await?;
        counters += page.items.len() as u64;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            return Ok((counters, false));
        }
        if counters >= COUNTED_MAX {
            return Ok((counters, true));
        }
    }
}
