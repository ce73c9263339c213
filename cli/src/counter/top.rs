//! `tallystone counter top`: the counters with the highest counts (N16).

use super::ls::counters_table;
use super::session::{CounterSession, InNamespace};
use crate::duration::format_time;
use crate::error::CliError;
use clap::Args;
use tallystone_client::TopCounters;

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Only counters whose names begin with this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Maximum number of counters, up to 1,000
    #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    #[command(flatten)]
    within: InNamespace,
}

pub(crate) async fn run(args: TopArgs, session: &CounterSession) -> Result<(), CliError> {
    let TopArgs { prefix, limit, within } = args;
    let top = session.call(&within.namespace, session.client.top(&within.namespace, &prefix, limit)).await?;
    let TopCounters { counters, read_from_ms, read_to_ms } = top;
    if counters.is_empty() && !session.output.json {
        return session.output.line(&format!("No counter of {} has had a rollup yet.", within.namespace));
    }
    session.output.many(&counters, counters_table)?;
    session.output.remark(&format!("counts from {} to {}", format_time(read_from_ms), format_time(read_to_ms)))
}
