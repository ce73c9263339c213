//! `tallystone completions SHELL`

use crate::args::Cli;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// For which shell
    shell: Shell,
}

pub(crate) fn run(args: CompletionsArgs, output: Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tallystone", &mut script);
    output.line(String::from_utf8_lossy(&script).trim_end())
}
