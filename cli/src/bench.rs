//! `tallystone bench`

use crate::error::CliError;
use crate::output::Output;
pub(crate) use tallystone_bench::BenchArgs;
use tallystone_bench::BenchOutcome;

pub(crate) async fn run(mut args: BenchArgs, output: Output) -> Result<(), CliError> {
    // `tallystone --json bench queue` means the same as `tallystone bench queue --json`.
    if output.json {
        args.print_json();
    }
    match tallystone_bench::run(args).await.map_err(|error| CliError::unavailable(format!("{error:#}")))? {
        BenchOutcome::Measured => Ok(()),
        BenchOutcome::Worse(figures) => {
            Err(CliError::refused(format!("worse than the other build: {}", figures.join(", "))))
        }
    }
}
