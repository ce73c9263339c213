//! `tallystone bench`

use crate::error::CliError;
use crate::output::Output;
#[cfg(feature = "bench")]
pub(crate) use tallystone_bench::BenchArgs;

#[cfg(feature = "bench")]
pub(crate) async fn run(mut args: BenchArgs, output: Output) -> Result<(), CliError> {
    use tallystone_bench::BenchOutcome;

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

/// Any arguments, so that the error says what is missing.
#[cfg(not(feature = "bench"))]
#[derive(Debug, clap::Args)]
pub(crate) struct BenchArgs {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

#[cfg(not(feature = "bench"))]
#[allow(clippy::unused_async, reason = "as with the feature")]
pub(crate) async fn run(_: BenchArgs, _: Output) -> Result<(), CliError> {
    Err(CliError::refused(
        "this program was built without bench; build it with: cargo build --release --locked -p tallystone",
    ))
}
