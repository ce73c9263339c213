//! `tallystone completions SHELL`

use crate::error::CliError;
use crate::output::Output;
use clap::{Args, Command};
use clap_complete::Shell;

#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the script
    shell: Shell,
}

pub(crate) fn run(args: CompletionsArgs, program: &mut Command, output: Output) -> Result<(), CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, program, "tallystone", &mut script);
    output.line(String::from_utf8_lossy(&script).trim_end())
}
