//! `tallystone bench`

use crate::error::CliError;
use crate::output::Output;
pub(crate) use tallystone_bench::BenchArgs;
use tallystone_bench::Verb;

pub(crate) async fn run(mut args: BenchArgs, output: Output) -> Result<(), CliError> {
    // `tallystone --json bench queue` is `tallystone bench queue --json`.
    match &mut args.verb {
        Verb::Queue(queue) => queue.json |= output.json,
        Verb::History(history) => history.json |= output.json,
        Verb::Counters(counters) => counters.json |= output.json,
    }
    tallystone_bench::run(args).await.map_err(|error| CliError::unavailable(format!("{error:#}")))
}
