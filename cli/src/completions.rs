//! `tallystone completions SHELL`

use crate::args::Cli;
use crate::failure::Failure;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    shell: Shell,
}

pub(crate) fn run(args: CompletionsArgs) -> Result<(), Failure> {
    clap_complete::generate(args.shell, &mut Cli::command(), "tallystone", &mut std::io::stdout());
    Ok(())
}
