//! `tallystone queue ls [PREFIX]`

use super::describe_text::type_text;
use crate::connection::Session;
use crate::duration::format_ago;
use crate::error::CliError;
use crate::output::grouped;
use crate::table::table;
use clap::Args;
use tallystone_client::QueueSummary;
use tallystone_model::names::INTERNAL_QUEUES;

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    /// Only queues whose names begin with this text
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Also the internal queues rollup/…, which hold the jobs that sum counters
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: LsArgs, session: &Session) -> Result<(), CliError> {
    let mut queues = session.queues(&args.prefix).await?;
    // A prefix that begins so wants them.
    let hidden = !args.all && !args.prefix.starts_with(INTERNAL_QUEUES);
    queues.retain(|summary| !(hidden && summary.queue.name.starts_with(INTERNAL_QUEUES)));
    session.output.many(&queues, |queues| match queues {
        [] => "No queues. `tallystone queue create NAME` creates one; so does the first `msg enqueue`.".to_owned(),
        queues => {
            let header = [
                "name",
                "type",
                "#invisible",
                "#pending",
                "#running",
                "#completed",
                "#canceled",
                "#errored",
                "#oldest pending",
                "#oldest lease",
                "state",
            ];
            table(&header, queues.iter().map(row))
        }
    })
}

fn row(QueueSummary { queue, depth, ages }: &QueueSummary) -> Vec<String> {
    let counts =
        [depth.invisible, depth.pending, depth.running, depth.completed, depth.canceled, depth.errored].map(grouped);
    let state = match (queue.config.enqueue_blocked == Some(true), queue.config.dequeue_blocked == Some(true)) {
        (_, true) => "paused",
        (true, false) => "closed",
        (false, false) if queue.shards_draining > 0 => "resharding",
        (false, false) => "",
    };
    let mut row = vec![queue.name.clone(), type_text(queue.config.queue_type.as_ref())];
    row.extend(counts);
    row.extend(
        [ages.oldest_pending_ms, ages.oldest_lease_ms].map(|age_ms| age_ms.map_or_else(String::new, format_ago)),
    );
    row.push(state.to_owned());
    row
}
