//! `tallystone queue describe NAME`

use super::describe_text::describe_text;
use crate::connection::Session;
use crate::duration::format_ago;
use crate::error::CliError;
use crate::output::grouped;
use crate::terminal::colored;
use crate::text::parse_pair;
use clap::Args;
use tallystone_client::{Filter, QueueSummary, State};

#[derive(Args, Debug)]
pub(crate) struct DescribeArgs {
    /// The queue
    name: String,
    /// Count only messages with this metadata; repeat for several pairs, all of which must match
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    filter: Vec<(String, String)>,
}

pub(crate) async fn run(args: DescribeArgs, session: &Session) -> Result<(), CliError> {
    let queue = session.call(&args.name, session.client.get_queue(&args.name)).await?;
    let mut pairs = args.filter.into_iter();
    let filter =
        pairs.next().map(|(key, value)| pairs.fold(Filter::equals(key, value), |filter, (k, v)| filter.and(k, v)));
    let depth = session.call(&args.name, session.client.depth(&args.name, filter)).await?;
    let ages = session.call(&args.name, session.client.ages(&args.name)).await?;
    session.output.one(&QueueSummary { queue, depth, ages }, |summary| {
        let counts = [depth.invisible, depth.pending, depth.running, depth.completed, depth.canceled, depth.errored];
        let lines = State::ALL.iter().zip(counts);
        let text = lines.fold(describe_text(&summary.queue), |text, (state, n)| {
            text + &format!("  {} {}\n", colored(&format!("{state:<15}")), grouped(n))
        });
        let ages = [("oldest pending", ages.oldest_pending_ms), ("oldest lease", ages.oldest_lease_ms)];
        ages.into_iter().fold(text, |text, (name, age_ms)| {
            text + &format!("  {name:<15} {}\n", age_ms.map_or_else(|| "none".to_owned(), format_ago))
        })
    })
}
