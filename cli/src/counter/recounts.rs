//! `tallystone counter recounts COUNTER`: what recounts have made of a count, and why (N12).

use super::session::{CounterSession, InNamespace};
use super::text::count_text;
use crate::duration::format_time;
use crate::error::CliError;
use crate::table::table;
use crate::text::visible;
use clap::Args;
use tallystone_client::Recount;

#[derive(Args, Debug)]
pub(crate) struct RecountsArgs {
    /// The counter
    counter: String,
    #[command(flatten)]
    within: InNamespace,
}

pub(crate) async fn run(args: RecountsArgs, session: &CounterSession) -> Result<(), CliError> {
    let namespace = &args.within.namespace;
    let recounts = session.call(namespace, session.client.recounts(namespace, &args.counter)).await?;
    session.output.many(&recounts, |recounts| match recounts {
        [] => format!("{} was not recounted.", visible(&args.counter)),
        some => table(&["#epoch", "time", "#old", "#new", "#adjusted", "base", "reason"], some.iter().map(row)),
    })
}

fn row(recount: &Recount) -> Vec<String> {
    vec![
        recount.epoch.to_string(),
        format_time(recount.recounted_ms),
        count_text(recount.old_count),
        count_text(recount.new_count),
        count_text(recount.adjustment),
        if recount.from_events { "events" } else { "count" }.to_owned(),
        visible(&recount.reason),
    ]
}
